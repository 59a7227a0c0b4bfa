"""Random keys by name: a client's key depends on its name and the round, not on which other clients take part."""

from __future__ import annotations

import zlib

import jax
from jaxtyping import Array, Key

from coreshot.types import PRNGKey


def fold_each(keys: Key[Array, " clients"], data: int) -> Key[Array, " clients"]:
    return jax.vmap(lambda key: jax.random.fold_in(key, data))(keys)


def named_key(key: PRNGKey, name: str) -> PRNGKey:
    """Fold a name into a key. CRC-32 is the same on every machine and in every process; hash() is not."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def client_key(key: PRNGKey, round: int, client: str) -> PRNGKey:
    return named_key(jax.random.fold_in(key, round), client)
