"""The type checker that `pytest --jaxtyping-packages=coreshot,shape_checks.check_shapes` puts around functions.

beartype looks at those arguments and results whose types name a shape or a dtype; mypy has checked all the others.
Fields of dataclasses are left out: a pytree also holds masks, labels, and batches of what its fields describe.
A function without such a type is left as it is: jaxtyping would bind its arguments at each call, and small functions
are called a million times.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jaxtyping
from beartype import beartype

_check_all = jaxtyping.jaxtyped


def has_shape(hint: Any) -> bool:
    """Whether a type contains one of jaxtyping's: Float[Array, "n"] is a class of its module."""
    return "jaxtyping." in repr(hint)


def check_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    shaped = {name: hint for name, hint in function.__annotations__.items() if has_shape(hint)}
    if not shaped or function.__name__ == "__init__":
        return function
    function.__annotations__ = shaped
    return beartype(function)


def check_where_shaped(decorated: Any = None, *, typechecker: Any) -> Any:
    if decorated is None:
        return partial(check_where_shaped, typechecker=typechecker)
    function = decorated.fget if isinstance(decorated, property) else getattr(decorated, "__func__", decorated)
    if inspect.isfunction(function) and not any(map(may_have_shape, _hints(function))):
        return decorated
    return _check_all(decorated, typechecker=typechecker)


def _hints(function: Callable[..., Any]) -> list[Any]:
    """Its annotations are text, which may name what its module defines later."""
    return [partial(eval, hint, function.__globals__) for hint in function.__annotations__.values()]


def may_have_shape(evaluate: Callable[[], Any]) -> bool:
    try:
        return has_shape(evaluate())
    except Exception:
        return True


# jaxtyping imports this file for the first function of coreshot; from the second on, modules find this decorator.
jaxtyping.jaxtyped = check_where_shaped
