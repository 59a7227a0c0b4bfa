"""A simulated secure sum: whole numbers modulo 2^32 under masks that clients share in pairs and that cancel in the sum.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017.

Different from the paper: the agreement on keys is replaced by keys of the simulation, and the recovery of a sum with a
missing client is left out. So all clients must answer, or there is no sum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from coreshot.errors import CoreshotError
from coreshot.keys import named_key
from coreshot.methods.protocol import Invitation
from coreshot.types import PRNGKey
from coreshot.wire.messages import Message

WORD = 2**32  # the modulus of masked numbers


def invite_sharers(clients: Sequence[str], num_sharers: int, method: str) -> Invitation:
    """An invitation that names all clients of the sum, with whom each of them shares a mask."""
    if len(clients) != num_sharers:
        raise CoreshotError(
            f"{method}: num_sharers is {num_sharers}, but there are {len(clients)} clients; make them agree."
        )
    names = np.frombuffer(json.dumps(sorted(clients)).encode(), np.uint8)
    return Invitation(tuple(clients), Message("invitation", 0, {"sharers": jnp.asarray(names)}))


def read_sharers(invitation: Message, client: str, num_sharers: int, method: str) -> list[str]:
    """The clients of the sum, checked before anything is computed: a server that invited a client alone would get its
    message without a mask and with only a share of the noise."""
    try:
        names = json.loads(np.asarray(invitation.arrays.get("sharers", [])).tobytes())
    except ValueError:
        names = None
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not is_list or len(set(names)) != len(names) or len(names) != num_sharers or client not in names:
        raise CoreshotError(
            f"{method}: a secure sum of {num_sharers} clients is simulated with all of them at once, and client "
            f"{client} was not asked so; leave num_sharers out, or simulate it."
        )
    return list(names)


def mask_levels(
    key: PRNGKey, client: str, sharers: Sequence[str], levels: Int[np.ndarray, " numbers"]
) -> dict[str, Array]:
    """The arrays of a client's message: its whole numbers plus the masks that it shares with each of the others."""
    total = (levels % WORD).astype(np.uint32)
    for other in sharers:
        if other != client:
            mask = _pair_mask(key, min(client, other), max(client, other), len(total))
            total = total + mask if client < other else total - mask
    return {"masked": jnp.asarray(total.view(np.int32))}


def _pair_mask(key: PRNGKey, first: str, second: str, size: int) -> UInt32[np.ndarray, " numbers"]:
    """Drawn from a key of the simulation; in practice two clients agree on a key that nobody else has."""
    words = np.asarray(jax.random.key_data(named_key(named_key(key, f"mask {first}"), second))).tolist()
    return np.random.Generator(np.random.Philox(words)).integers(WORD, size=size, dtype=np.uint32)


def read_masked(arrays: Mapping[str, Array], count: int, where: str) -> UInt32[np.ndarray, " numbers"]:
    words = np.asarray(arrays["masked"])
    if words.shape != (count,) or words.dtype != np.int32:
        raise CoreshotError(
            f"{where}: masked is {words.dtype}{list(words.shape)}, not int32[{count}]; distill it again."
        )
    return words.view(np.uint32)


def sum_masked(words: Sequence[UInt32[np.ndarray, " numbers"]], num_sharers: int) -> Float[np.ndarray, " numbers"]:
    """The sum of all clients' whole numbers; the masks cancel modulo 2^32."""
    if len(words) != num_sharers:
        raise CoreshotError(
            f"round 0: {len(words)} of {num_sharers} sharers answered, so their masks do not cancel; "
            "ask all of them again."
        )
    return np.stack(words).sum(axis=0, dtype=np.uint32).view(np.int32).astype(np.float64)
