"""Strict settings: frozen dataclasses decoded from TOML; an error names the bad key and the nearest good one."""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol, TypeVar, runtime_checkable

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as _pydantic_dataclass
from pydantic.fields import FieldInfo
from typing_extensions import dataclass_transform

from coreshot.errors import CoreshotError

T = TypeVar("T")

Count = Annotated[int, Field(gt=0)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings(cls: type[T]) -> type[T]:
    """Make a frozen, hashable, keyword-only dataclass that refuses unknown keys and values of a wrong type."""
    strict = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return _pydantic_dataclass(frozen=True, kw_only=True, config=strict)(cls)  # type: ignore[return-value]


def choose(what: str, name: Any, choices: Mapping[str, T], where: str) -> T:
    """Return choices[name], or raise an error that lists the choices."""
    if name in choices:
        return choices[name]
    raise CoreshotError(
        f"{where}: {what} {name!r} does not exist{_nearest(str(name), choices)}; "
        f"there are {', '.join(sorted(choices))}."
    )


def decode(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """Make the settings dataclass `cls` from plain TOML values."""
    try:
        # Pydantic's strict mode accepts a table as a dataclass and a list as a tuple only when it reads JSON.
        return TypeAdapter(cls).validate_json(json.dumps(dict(values), default=str))
    except ValidationError as error:
        raise CoreshotError(explain(error, cls, where)) from None


def decode_named(registry: Mapping[str, type[Any]], values: Mapping[str, Any], where: str, what: str) -> Any:
    """As `decode`, for the class that the key "name" chooses from the registry."""
    if "name" not in values:
        raise CoreshotError(f"{where}: the key 'name' is missing; say which {what}: {', '.join(sorted(registry))}.")
    cls = choose(what, values["name"], registry, where)
    return decode(cls, {key: value for key, value in values.items() if key != "name"}, where)


def has_setting(registry: Mapping[str, type[Any]], name: Any, setting: str) -> bool:
    """Whether what is registered under this name has such a setting; a name that is not registered has none."""
    return name in registry and any(field.name == setting for field in dataclasses.fields(registry[name]))


def parse_assignment(text: str) -> tuple[str, Any]:
    """Read the key and the value of `--set a.b=1`; the value is in TOML notation, or a string without quotes."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise CoreshotError(f"--set {text}: not of the form a.b=1; name a key and its new value.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


@runtime_checkable
class Encodes(Protocol):
    """Settings that hold something registered, whose name must not be lost."""

    def encode_settings(self, encode_part: Callable[[Any], dict[str, Any]]) -> dict[str, Any]: ...


def encode(value: Any) -> dict[str, Any]:
    """Return the plain values of a settings dataclass, the inverse of `decode`."""
    if isinstance(value, Encodes):
        return value.encode_settings(encode)
    return {key: list(item) if isinstance(item, tuple) else item for key, item in dataclasses.asdict(value).items()}


def encode_named(
    registry: Mapping[str, type[Any]], value: Any, encode_part: Callable[[Any], dict[str, Any]] = encode
) -> dict[str, Any]:
    name = next(name for name, cls in registry.items() if type(value) is cls)
    return {"name": name, **encode_part(value)}


def canonical(value: Any) -> dict[str, Any]:
    """Plain values of a settings dataclass without those at their defaults: a later version's new setting changes
    nothing here. `name` always stays, since it tells one kind of settings from another."""
    if isinstance(value, Encodes):
        return value.encode_settings(canonical)
    return {
        field.name: _canonical_item(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if field.name == "name" or not _is_default(field, getattr(value, field.name))
    }


def _canonical_item(item: Any) -> Any:
    if dataclasses.is_dataclass(item):
        return canonical(item)
    if isinstance(item, tuple | list):
        return [_canonical_item(part) for part in item]
    if isinstance(item, dict):
        return {key: _canonical_item(part) for key, part in item.items()}
    return item


def _is_default(field: dataclasses.Field[Any], item: Any) -> bool:
    default = field.default_factory() if callable(field.default_factory) else field.default
    # A pydantic Field(...) as default is described there, not given here.
    default = default.get_default(call_default_factory=True) if isinstance(default, FieldInfo) else default
    return bool(type(default) is type(item) and default == item)


def explain(error: ValidationError, cls: type[Any], where: str) -> str:
    """Write the first error of pydantic as one sentence: what was found, where, what to do."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    names = [field.name for field in dataclasses.fields(cls)]
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        if len(first["loc"]) > 1:  # a key of an inner table, whose fields are not in `names`
            return f"{where}: unknown key {key!r}; remove it or mend its spelling."
        return f"{where}: unknown key {key!r}{_nearest(key, names)}; known keys are {', '.join(names)}."
    if first["type"] in ("missing", "missing_keyword_only_argument"):
        return f"{where}: the key {key!r} is missing; add it (it has no default)."
    if isinstance(cause := first.get("ctx", {}).get("error"), CoreshotError):
        return str(cause)
    if first["type"] == "too_short":
        found, least = first["ctx"]["actual_length"], first["ctx"]["min_length"]
        return f"{where}: {key} has {found} entries, and at least {least} are needed; add some."
    message = first["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return f"{where}: {key or 'value'} = {first['input']!r}: {message}; change it." if key else f"{where}: {message}"


def _nearest(name: str, names: Any) -> str:
    close = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
