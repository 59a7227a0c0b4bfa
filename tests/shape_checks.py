"""The type checker that `pytest --jaxtyping-packages=coreshot,shape_checks.check_shapes` puts around functions.

beartype looks at those arguments and results whose types name a shape or a dtype; mypy has checked all the others.
Fields of dataclasses are left out: a pytree also holds masks, labels, and batches of what its fields describe.
A function without such a type is left as it is: jaxtyping would bind its arguments at each call, and small functions
are called a million times. For the same reason arrays whose shapes and dtypes have passed a function's check are not
checked by it again: nothing else of an array is looked at.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Hashable
from functools import partial, update_wrapper, wraps
from types import CodeType, FunctionType, NoneType
from typing import Any

import jaxtyping
from beartype import beartype

_check_all = jaxtyping.jaxtyped
_found = threading.local()  # a result that is to be checked
_checks: dict[CodeType, Checks] = {}
_are_checked: dict[CodeType, bool] = {}

ABSENT, PLAIN, LAST = object(), (NoneType, bool, int, float), 1000
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


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
    if inspect.isfunction(decorated) and decorated.__name__ != "__init__":
        return check_once(decorated, typechecker) if _is_checked(decorated) else decorated
    function = decorated.fget if isinstance(decorated, property) else getattr(decorated, "__func__", decorated)
    if inspect.isfunction(function) and not _is_checked(function):
        return decorated
    return _check_all(decorated, typechecker=typechecker)


def _is_checked(function: Any) -> bool:
    """Asked whenever a function within another is made anew, as one code."""
    if function.__code__ not in _are_checked:
        _are_checked[function.__code__] = any(map(may_have_shape, _hints(function).values()))
    return _are_checked[function.__code__]


def _hints(function: Callable[..., Any]) -> dict[str, Callable[[], Any]]:
    """Its annotations are text, which may name what its module defines later."""
    return {name: partial(eval, hint, function.__globals__) for name, hint in function.__annotations__.items()}


def may_have_shape(evaluate: Callable[[], Any]) -> bool:
    try:
        return has_shape(evaluate())
    except Exception:
        return True


def check_once(function: Any, typechecker: Any) -> Callable[..., Any]:
    """Like jaxtyping's decorator, but what has passed is remembered."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        if (checks := _checks.get(function.__code__)) is None:
            checks = _checks[function.__code__] = Checks(function, typechecker)
        asked = checks.describe_arguments(args, kwargs)
        if asked not in checks.passed:
            checks.arguments(*args, **kwargs)
        result = function(*args, **kwargs)
        answered = (asked, _describe(result)) if checks.has_result else (asked, ABSENT)
        if answered not in checks.passed:
            _found.result = result
            checks.result(*args, **kwargs)
            _found.result = None
        if asked is not None:
            checks.passed |= {asked} if answered[1] is None else {asked, answered}
        return result

    return call


class Checks:
    """Of all functions of one code. When one is called, all names of its annotations are defined."""

    def __init__(self, function: Any, typechecker: Any) -> None:
        self.passed: set[Hashable] = set()  # arguments, and arguments with results
        signature = inspect.signature(function)
        give = _gives_found(function)
        self.result = _check_all(give, typechecker=typechecker)
        give = _gives_found(function)
        give.__signature__ = signature.replace(return_annotation=signature.empty)  # type: ignore[attr-defined]
        self.arguments = _check_all(give, typechecker=typechecker)
        shaped = {name for name, hint in _hints(function).items() if may_have_shape(hint)}
        self.has_result = "return" in shaped
        self.follows_from_arrays = _follows_from_arrays(function)
        self.places = []  # positions and names of the arguments that are checked
        for position, (name, parameter) in enumerate(signature.parameters.items()):
            if name in shaped:
                assert parameter.kind not in VARIADIC, f"{function}: {name}"
                self.places.append((LAST if parameter.kind == parameter.KEYWORD_ONLY else position, name))

    def describe_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
        """None: each call is checked."""
        if not self.follows_from_arrays:
            return None
        return _describe(tuple(args[i] if i < len(args) else kwargs.get(name, ABSENT) for i, name in self.places))


def _gives_found(function: Any) -> Callable[..., Any]:
    """A function of the same signature, whose result is there already."""

    def give(*args: Any, **kwargs: Any) -> Any:
        return getattr(found, "result", None)

    found = _found
    return update_wrapper(FunctionType(give.__code__, function.__globals__, None, None, give.__closure__), function)


def _follows_from_arrays(function: Any) -> bool:
    """Not where a size is the value of an argument ("{size}"), nor where beartype looks at one of several at random."""
    hints = " ".join(map(_written_out, _hints(function).values()))
    return "{" not in hints and ", ...]" not in hints


def _written_out(evaluate: Callable[[], Any]) -> str:
    try:
        return repr(evaluate())
    except Exception:  # checked by nobody
        return ""


def _describe(value: Any) -> Hashable:
    """All that a check looks at in arrays, numbers, and tuples of them; None: something else."""
    if type(value) in PLAIN or value is ABSENT:
        return (type(value),)
    if type(value) is tuple:
        parts = tuple(map(_describe, value))
        return None if None in parts else (tuple, parts)
    try:
        return (type(value), value.shape, value.dtype)
    except AttributeError:
        return None


# jaxtyping imports this file for the first function of coreshot; from the second on, modules find this decorator.
jaxtyping.jaxtyped = check_where_shaped
