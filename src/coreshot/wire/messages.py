"""Messages as bytes, checked when they arrive.

A message is a safetensors file with one metadata entry, "coreshot", which is canonical JSON: format, kind, round,
client and study; a client's message also has releases, and may have a signature (`coreshot.wire.signatures`). There is
one entry because safetensors does not fix the order of several, and the same message must be the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Array

from coreshot.errors import CoreshotError, check_text
from coreshot.privacy.releases import Release, parse_releases, releases_match

FORMAT = 1
MAX_HEADER = 1_000_000  # bytes of JSON; ours have a few thousand
MAX_ROUND = 10**6
MAX_NAME = 256  # characters of a kind, a client, a study and an array
Tree = TypeVar("Tree")


@dataclass(frozen=True)
class Message:
    """The only thing that a client and the server exchange. Arrays are named by their path in a tree."""

    kind: str
    round: int
    arrays: dict[str, Array]
    releases: tuple[Release, ...] = ()  # of a client's message: what it reveals about the records


def encode_message(message: Message, *, study_hash: str, client: str, releases: Sequence[Release] = ()) -> bytes:
    """A client's message declares its releases; a server's message has none."""
    header: dict[str, Any] = {
        "format": FORMAT,
        "kind": message.kind,
        "round": message.round,
        "client": client,
        "study": study_hash,
    }
    header |= {"releases": [release.to_dict() for release in releases]} if releases else {}
    return pack(header, {name: np.asarray(array, order="C") for name, array in message.arrays.items()})


def pack(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    return safetensors.numpy.save(dict(arrays), {"coreshot": json.dumps(header, sort_keys=True, separators=(",", ":"))})


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays, without checking their content."""
    header = read_header(data)
    try:
        return header, safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _not_a_message(data, error) from None


def hash_arrays(arrays: Mapping[str, np.ndarray]) -> list[list[Any]]:
    """Name, type, shape and SHA-256 of each array: equal for equal arrays, however they are stored."""
    return [
        [name, array.dtype.str, list(array.shape), hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()]
        for name, array in sorted(arrays.items())
    ]


def decode_message(
    data: bytes,
    *,
    study_hash: str,
    client: str | None = None,
    releases: Sequence[Release] | None = None,
    on_device: bool = True,
) -> Message:
    """The message in `data`, with finite jax arrays, or a CoreshotError that says what is wrong.

    If releases are given (those of the study), the message must declare exactly them. Without on_device, arrays are
    NumPy's: a server of many thousand messages has no use for copies of them.
    """
    header, arrays = unpack(data)
    where = f"client {header['client']}, round {header['round']}, {header['kind']}"
    if header["format"] != FORMAT:
        raise CoreshotError(
            f"{where}: written in format {header['format']}, this version reads {FORMAT}; "
            "use the same coreshot on both sides."
        )
    if header["study"] != study_hash:
        raise CoreshotError(
            f"{where}: belongs to study {header['study'][:12]}, this is study {study_hash[:12]}; "
            "distill again with this study."
        )
    if client is not None and header["client"] != client:
        raise CoreshotError(f"{where}: came in the name of {client}; check who sent it.")
    declared = parse_releases(header.get("releases", []), where)
    if releases is not None and not releases_match(declared, releases):
        raise CoreshotError(
            f"{where}: declares other releases of its records than the study; distill again with this study."
        )
    for name, array in arrays.items():
        if array.dtype not in (np.float32, np.int32, np.uint8):
            raise CoreshotError(
                f"{where}: array {name!r} is of type {array.dtype}, not float32, int32 or uint8; "
                "the message is refused."
            )
        if not np.all(np.isfinite(array)):
            raise CoreshotError(f"{where}: array {name!r} has values that are not finite; the message is refused.")
    # jax arrays, not NumPy's: runs with and without bytes in between must take the same code paths, to the last bit.
    # By device_put: jnp.asarray compiles a program for each new shape, and every code has another length.
    found: dict[str, Any] = {name: jax.device_put(array) for name, array in arrays.items()} if on_device else arrays
    return Message(header["kind"], header["round"], found, declared)


def flatten_tree(prefix: str, tree: Any) -> dict[str, Array]:
    """The arrays of a tree, named by their path: params/Dense_0/kernel."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {f"{prefix}/{_path_name(path)}": jnp.asarray(leaf) for path, leaf in leaves}


def unflatten_tree(arrays: Mapping[str, Array], prefix: str, template: Tree, where: str) -> Tree:
    """A tree like `template` (arrays or shapes) from named arrays; an error names the first array that does not fit."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    found = []
    for path, leaf in leaves:
        name = f"{prefix}/{_path_name(path)}"
        if name not in arrays:
            raise CoreshotError(f"{where}: array {name!r} is missing; both sides must use the same study.")
        array = arrays[name]
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise CoreshotError(
                f"{where}: array {name!r} is {array.dtype}{list(array.shape)}, "
                f"the study wants {leaf.dtype}{list(leaf.shape)}; use the same study."
            )
        found.append(array)
    return jax.tree.unflatten(structure, found)


def _path_name(path: Sequence[Any]) -> str:
    return "/".join(jax.tree_util.keystr((part,), simple=True) for part in path)


def read_header(data: bytes, where: str = "") -> dict[str, Any]:
    """Format, kind, round, client and study of a message; nothing else is read. `where` it was found is for errors."""
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER:
        raise _not_a_message(data, f"it claims a header of {length:,} bytes", where)
    try:
        outer = json.loads(data[8 : 8 + length])
        header = json.loads(outer["__metadata__"]["coreshot"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _not_a_message(data, error, where) from None
    expected = {"format": int, "kind": str, "round": int, "client": str, "study": str}
    if not isinstance(header, dict) or any(type(header.get(key)) is not kind for key, kind in expected.items()):
        raise _not_a_message(data, "its header lacks format, kind, round, client or study", where)
    names = [header["kind"], header["client"], header["study"], *outer]
    if max(map(len, names)) > MAX_NAME or not 0 <= header["round"] <= MAX_ROUND or abs(header["format"]) > MAX_ROUND:
        raise _not_a_message(data, "a name in its header is too long, or a number too large", where)
    check_text([header, list(outer)], f"{where and f'{where}: '}message of {len(data)} bytes")
    return header


def _not_a_message(data: bytes, reason: object, where: str = "") -> CoreshotError:
    return CoreshotError(
        f"{where and f'{where}: '}message of {len(data)} bytes: not a coreshot message ({reason}); "
        "ask the sender for it again."
    )
