"""The type checker that `pytest --jaxtyping-packages=coreshot,shape_checks.check_shapes` puts around every function.

beartype looks at those arguments and results whose types name a shape or a dtype; mypy has checked all the others.
Fields of dataclasses are left out: a pytree also holds masks, labels, and batches of what its fields describe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beartype import beartype


def has_shape(hint: Any) -> bool:
    """Whether a type contains one of jaxtyping's: Float[Array, "n"] is a class of its module."""
    return "jaxtyping." in repr(hint)


def check_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    shaped = {name: hint for name, hint in function.__annotations__.items() if has_shape(hint)}
    if not shaped or function.__name__ == "__init__":
        return function
    function.__annotations__ = shaped
    return beartype(function)
