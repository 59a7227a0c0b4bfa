"""One checkpoint format: a tree of arrays and some JSON words, as one safetensors file.

Arrays are named by their path in the tree. Words are JSON in one array of bytes. Records cannot be written: what holds
`RecordPoints` or a `Local` anywhere in the tree is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from coreshot.errors import CoreshotError
from coreshot.privacy.guarded_records import Local, RecordPoints
from coreshot.wire.messages import flatten_tree, unflatten_tree

WORDS = "words"  # the name of the array that holds the JSON
Tree = TypeVar("Tree")


def encode_checkpoint(tree: Any, words: Mapping[str, Any]) -> bytes:
    """A TypeError names the first part of the tree that must not be written, or that is no array."""
    parts, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_private)
    for path, part in parts:
        if _is_private(part) or not isinstance(part, jax.Array | np.ndarray | np.generic | int | float):
            raise TypeError(
                f"checkpoint: {jax.tree_util.keystr(path)} is a {type(part).__name__}, which is not written to disk; "
                "keep it in a Local field of the state, and compute it again."
            )
    arrays = {name: np.asarray(array, order="C") for name, array in flatten_tree("state", tree).items()}
    return safetensors.numpy.save({**arrays, WORDS: np.frombuffer(json.dumps(words).encode(), np.uint8)})


def decode_checkpoint(data: bytes, template: Tree, where: str) -> tuple[Tree, dict[str, Any]]:
    """A tree like `template`, and the words; whole numbers of the template are whole numbers again."""
    words, arrays = read_words(data, where), safetensors.numpy.load(data)
    shapes = jax.tree.map(jnp.asarray, template)
    loaded = unflatten_tree({name: jnp.asarray(array) for name, array in arrays.items()}, "state", shapes, where)
    return jax.tree.map(lambda old, new: int(new) if isinstance(old, int) else new, template, loaded), words


def read_words(data: bytes, where: str) -> dict[str, Any]:
    """The words alone: they say whether the rest is wanted, before there is a template for it."""
    try:
        return dict(json.loads(safetensors.numpy.load(data)[WORDS].tobytes()))
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CoreshotError(
            f"{where}: the state of an earlier run cannot be read ({error}); remove it, and the work begins again."
        ) from None


def _is_private(part: Any) -> bool:
    return isinstance(part, RecordPoints | Local)
