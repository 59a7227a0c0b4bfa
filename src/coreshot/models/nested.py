"""Nested dictionaries of weights as flat ones, and back: what flax.traverse_util does, where there is no flax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flatten_dict(nested: Mapping[str, Any], sep: str | None = None) -> dict[Any, Any]:
    """By path: a tuple of names, or with `sep` the names joined by it."""
    flat: dict[Any, Any] = {}

    def walk(path: tuple[str, ...], value: Any) -> None:
        if isinstance(value, Mapping):
            for name, part in value.items():
                walk((*path, name), part)
        else:
            flat[path if sep is None else sep.join(path)] = value

    walk((), nested)
    return flat


def unflatten_dict(flat: Mapping[Any, Any], sep: str | None = None) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        *above, last = path if sep is None else path.split(sep)
        inner = nested
        for name in above:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return nested
