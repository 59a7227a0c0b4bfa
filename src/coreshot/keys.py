"""Random keys by name: a client's key depends on its id and the round, never on who else takes part."""

from __future__ import annotations

import zlib

import jax
from jaxtyping import Array, Key

from coreshot.types import PRNGKey


def fold_each(keys: Key[Array, " clients"], data: int) -> Key[Array, " clients"]:
    return jax.vmap(lambda key: jax.random.fold_in(key, data))(keys)


def named_key(key: PRNGKey, name: str) -> PRNGKey:
    """CRC-32 rather than hash(): the same on every machine and in every process."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def client_key(key: PRNGKey, round: int, client: str) -> PRNGKey:
    return named_key(jax.random.fold_in(key, round), client)
