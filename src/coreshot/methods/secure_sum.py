"""Noisy whole numbers on the wire: rounded below their noise and coded; or, for a secure sum, under masks that cancel.

In a secure sum clients answer with whole numbers modulo 2^32, under masks that they share in pairs and that cancel in the sum of all of them
(Bonawitz et al. 2017). The agreement on keys and the rescue of a sum whose client is missing are not simulated: without all of them there is no sum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from coreshot.errors import CoreshotError
from coreshot.keys import named_key
from coreshot.methods.protocol import Invitation
from coreshot.types import PRNGKey
from coreshot.wire.coding import MAX_LEVEL, decode_rows, encode_rows
from coreshot.wire.messages import Message

STEPS_PER_DEVIATION = 8  # how finely a client's own noise is kept on the wire
STEPS_OF_SHARE = 64  # and a share of a common noise, whose roundings add up
WORD = 2**32  # of the masked numbers


def step_below(deviation: float, num_sharers: int | None) -> float:
    """The steps of numbers whose noise, in this client's message, has that deviation."""
    return float(np.float32(deviation / (STEPS_OF_SHARE if num_sharers else STEPS_PER_DEVIATION)))


def check_names(message: Message, wanted: set[str], kind: str, where: str) -> None:
    if message.kind != kind or set(message.arrays) != wanted:
        found = ", ".join(sorted(message.arrays)) or "none"
        raise CoreshotError(f"{where}: found {found}, the study wants {', '.join(sorted(wanted))}; distill it again.")


def coded(name: str, numbers: Int[np.ndarray, "rows columns"], finest: float) -> dict[str, Array]:
    """In steps below the noise; in larger ones where numbers are so large that the code has no levels for them."""
    step = float(np.float32(max(finest, np.max(np.abs(numbers)) / (MAX_LEVEL - 1))))
    code = encode_rows(numbers.astype(np.float64), step, keep_zeros=True)
    return {name: jnp.asarray(np.frombuffer(code, np.uint8)), f"{name}_step": jnp.asarray([step], jnp.float32)}


def decoded(
    arrays: Mapping[str, Array], name: str, shape: tuple[int, int], where: str
) -> Float[np.ndarray, "rows columns"]:
    step = np.asarray(arrays[f"{name}_step"])
    if step.shape != (1,) or step.dtype != np.float32 or not step[0] > 0 or arrays[name].dtype != np.uint8:
        raise CoreshotError(f"{where}: {name} is not a code with one step above 0; distill it again.")
    rows = decode_rows(np.asarray(arrays[name]).tobytes(), float(step[0]), shape[1], shape[0], where)
    if len(rows) != shape[0]:
        raise CoreshotError(f"{where}: {name} has {len(rows)} rows, not {shape[0]}; distill it again.")
    return rows.astype(np.float64)


def invite(clients: Sequence[str], num_sharers: int | None, method: str) -> Invitation:
    """Without content; to sharers, the names of all of them."""
    if num_sharers and len(clients) != num_sharers:
        raise CoreshotError(
            f"{method}: num_sharers is {num_sharers}, but there are {len(clients)} clients; make them agree."
        )
    names = json.dumps(sorted(clients)).encode() if num_sharers else b""
    return Invitation(
        tuple(clients),
        Message("invitation", 0, {"sharers": jnp.asarray(np.frombuffer(names, np.uint8))} if names else {}),
    )


def check_sharers(invitation: Message, client: str, num_sharers: int, method: str) -> list[str]:
    """Before anything is computed: a server that invited a client alone would get its share of the noise without a mask."""
    try:
        names = json.loads(np.asarray(invitation.arrays.get("sharers", [])).tobytes())
    except ValueError:
        names = None
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not is_list or len(set(names)) != len(names) or len(names) != num_sharers or client not in names:
        raise CoreshotError(
            f"{method}: a secure sum of {num_sharers} clients is simulated with all of them at once, and client {client} was not asked so; "
            "leave num_sharers out, or simulate it."
        )
    return list(names)


def masked(key: PRNGKey, client: str, sharers: Sequence[str], levels: Int[np.ndarray, " numbers"]) -> dict[str, Array]:
    total = (levels % WORD).astype(np.uint32)
    for other in sharers:
        if other != client:
            mask = _pair_mask(key, min(client, other), max(client, other), len(total))
            total = total + mask if client < other else total - mask
    return {"masked": jnp.asarray(total.view(np.int32))}


def _pair_mask(key: PRNGKey, first: str, second: str, size: int) -> Int[np.ndarray, " numbers"]:
    """What two clients would draw from a key that they have agreed on and nobody else has; here it comes from the simulation's."""
    words = np.asarray(jax.random.key_data(named_key(named_key(key, f"mask {first}"), second))).tolist()
    return np.random.Generator(np.random.Philox(words)).integers(WORD, size=size, dtype=np.uint32)


def masked_words(arrays: Mapping[str, Array], count: int, where: str) -> Int[np.ndarray, " numbers"]:
    words = np.asarray(arrays["masked"])
    if words.shape != (count,) or words.dtype != np.int32:
        raise CoreshotError(
            f"{where}: masked is {words.dtype}{list(words.shape)}, not int32[{count}]; distill it again."
        )
    return words.view(np.uint32)


def unmasked(
    words: Mapping[str, Int[np.ndarray, " numbers"]], num_sharers: int | None
) -> Float[np.ndarray, " numbers"]:
    """The sum of all sharers' levels."""
    if len(words) != num_sharers:
        raise CoreshotError(
            f"round 0: {len(words)} of {num_sharers} sharers answered, so their masks do not cancel; ask all of them again."
        )
    return np.stack(list(words.values())).sum(axis=0, dtype=np.uint32).view(np.int32).astype(np.float64)
