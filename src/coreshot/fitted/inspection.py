"""What a message contains: its arrays, what was released of the records, and which privacy follows from that."""

from __future__ import annotations

from dataclasses import dataclass

import safetensors
import safetensors.numpy

from coreshot.errors import CoreshotError
from coreshot.privacy.promise import promise, promised_epsilon
from coreshot.privacy.releases import Release, parse_releases
from coreshot.wire.messages import read_header


@dataclass(frozen=True)
class Inspected:
    summary: str
    arrays: list[tuple[str, str, str, int]]  # name, type, shape, bytes
    releases: tuple[Release, ...]
    promise: str


def inspect_message(data: bytes, where: str) -> Inspected:
    header = read_header(data, where)
    try:
        arrays = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CoreshotError(f"{where}: its arrays cannot be read ({error}); distill it again.") from None
    releases = parse_releases(header.get("releases", []), where)
    summary = (
        f"{header['kind']} of client {header['client']}, study {header['study'][:12]}, "
        f"round {header['round']}, {len(data):,} bytes"
    )
    rows = [
        (name, str(array.dtype), " x ".join(map(str, array.shape)), array.nbytes)
        for name, array in sorted(arrays.items())
    ]
    return Inspected(summary, rows, releases, _as_declared(releases))


def _as_declared(releases: tuple[Release, ...]) -> str:
    """A promise holds only if the header's list of releases is true, which cannot be checked from the message."""
    sentence = promise(releases)
    is_promise = promised_epsilon(releases) is not None
    return f"According to the releases that its header declares, this holds: {sentence}" if is_promise else sentence
