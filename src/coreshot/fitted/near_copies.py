"""Files of two clients that hold almost the same numbers: one may be a copy of the other with a few numbers changed.

Exact copies are refused (`coreshot.fitted.model.refuse_copies`). This only warns: it finds copies that were changed a
little, by mistake or without effort. Who adds noise to a copy is not found; only a roster says who sent a file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from coreshot.methods.protocol import Content
from coreshot.spectral.received import ReceivedRows

MIN_SHARE = 0.6  # of equal numbers; honest sites of one population have at most a quarter (moments of five columns)
RELATIVE = 1e-5  # numbers this close are equal: means over different records are, at best, 1e-4 apart
MAX_NUMBERS = 1_000  # of a client that are compared, spread over what it sent
PAIRS_AT_ONCE = 10_000
NUM_PLACES = 16  # at which neighbours are looked for: one changed place of a copy hides nothing


def near_copies(contents: Mapping[str, Content]) -> dict[str, tuple[str, float]]:
    """By client: an earlier client with almost the same numbers, and the share of numbers that are equal.

    Decoded numbers are compared: codes have bytes that are the same in every file.
    """
    groups: dict[int, list[tuple[str, np.ndarray]]] = {}
    for client, content in contents.items():
        numbers = np.concatenate([np.zeros(1), *_arrays(content)])
        groups.setdefault(len(numbers), []).append((client, numbers[:: -(-len(numbers) // MAX_NUMBERS)]))
    parts = [([name for name, _ in group], np.stack([row for _, row in group])) for group in groups.values()]
    return {client: found for names, rows in parts for client, found in near_copies_of(names, rows).items()}


def _arrays(value: Any) -> Iterator[np.ndarray]:
    """All arrays of numbers in a content, at any depth, in the order of its fields."""
    if isinstance(value, np.ndarray | jax.Array):
        yield np.ravel(np.asarray(value, np.float64))
    elif isinstance(value, ReceivedRows):
        yield value.sample
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _arrays(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for name in sorted(value):
            yield from _arrays(value[name])
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _arrays(item)


def near_copies_of(names: Sequence[str], rows: Float[np.ndarray, "clients numbers"]) -> dict[str, tuple[str, float]]:
    """Of clients with so many numbers each.

    Only pairs that are next to each other, and equal, at one of a few places are compared: a copy is, and all pairs of
    ten thousand clients would be too many.
    """
    codes = [np.zeros(0, np.int64)]  # of pairs: of a hundred thousand clients there may be a million
    for place in np.unique(np.linspace(0, rows.shape[1] - 1, NUM_PLACES).astype(int)):
        order = np.argsort(rows[:, place], kind="stable")
        low, high = rows[order[:-1], place], rows[order[1:], place]
        is_equal = (high - low <= RELATIVE * np.maximum(np.abs(low), np.abs(high))) & (high != 0)
        one, other = order[:-1][is_equal], order[1:][is_equal]
        codes.append(np.minimum(one, other) * len(rows) + np.maximum(one, other))
    best: dict[int, tuple[str, float]] = {}
    ordered = np.stack(np.divmod(np.unique(np.concatenate(codes)), max(len(rows), 1)), axis=1)
    for part in np.array_split(ordered, -(-len(ordered) // PAIRS_AT_ONCE) or 1):
        shares = _equal_shares(rows[part[:, 0]], rows[part[:, 1]])
        for place in np.flatnonzero(shares >= MIN_SHARE):
            earlier, later = part[place].tolist()
            if shares[place] >= best.get(later, ("", 0.0))[1]:
                best[later] = names[earlier], float(shares[place])
    return {names[later]: best[later] for later in sorted(best)}


def _equal_shares(
    one: Float[np.ndarray, "pairs numbers"], other: Float[np.ndarray, "pairs numbers"]
) -> Float[np.ndarray, " pairs"]:
    """Of the places where one of them is not zero: zeros are equal in many files."""
    size = np.maximum(np.abs(one), np.abs(other))
    is_equal = np.abs(one - other) <= RELATIVE * size
    return np.sum(is_equal & (size > 0), axis=1) / np.maximum(1, np.sum(size > 0, axis=1))
