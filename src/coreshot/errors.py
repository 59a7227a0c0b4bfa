"""What a person is told: the error for a mistake, and text from files that cannot steer a terminal.

A study's name with a new line and an escape code could print a sentence of its own and hide one of ours.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_STEERING = frozenset(("Cc", "Cs", "Zl", "Zp"))  # control codes, half characters, ends of lines and paragraphs


class CoreshotError(ValueError):
    """A mistake in something from outside (data, settings, a message, a folder); the command line exits with code 2.

    Its text is one sentence: what was found, where, and what to do.

    Examples
    --------
    >>> try:
    ...     coreshot.table_study("tumours", num_inputs=0)
    ... except coreshot.CoreshotError as error:
    ...     print(error)
    table_study: num_inputs is 0; a record has at least one column.
    """


def visible(text: str) -> str:
    """The text on one line, with an escape for each character that cannot be printed or that turns the direction."""
    return "".join(sign if sign.isprintable() and sign not in _DIRECTIONS else ascii(sign)[1:-1] for sign in text)


def steers(sign: str) -> bool:
    """Whether a character moves the cursor, ends a line, turns the direction of text, or is none at all."""
    return unicodedata.category(sign) in _STEERING or sign in _DIRECTIONS


def without_marks(name: str) -> str:
    """A name without marks that turn the direction of text: nobody sees them, and no study can write them."""
    return "".join(sign for sign in name if sign not in _DIRECTIONS)


def check_text(values: Any, where: str) -> None:
    """A CoreshotError where a text in plain values (of TOML or JSON), at any depth, holds a character that steers."""
    waiting: list[tuple[str, Any]] = [("", values)]  # not recursive: a file may nest as deeply as it likes
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(f"a key of {path}" if path else "a key", key) for key in value]
            waiting += [(f"{path}.{key}" if path else str(key), item) for key, item in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(path, item) for item in value]
        elif not isinstance(value, str) or (value.isascii() and value.isprintable()):  # most texts, without a loop
            continue
        elif (found := next(filter(steers, value), None)) is not None:
            raise CoreshotError(
                f"{where}: {visible(path) or 'a text'} holds the control character U+{ord(found):04X}, which could "
                "change what a terminal shows; remove it."
            )
