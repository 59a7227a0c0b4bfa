"""A new study.toml with comments that say what to fill in; with records, kinds, ranges and values are guessed."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from coreshot.data.files import check_header
from coreshot.data.schema import as_text
from coreshot.errors import CoreshotError
from coreshot.study.file import FORMAT

MAX_GUESSED = 12  # a column of whole numbers with at most this many different values is guessed to be a category


def table_template(name: str, header: Sequence[str], target: str, records: Sequence[Mapping[str, Any]] | None) -> str:
    """The text of a study of a table with these columns; with records, kinds, ranges and values are guessed."""
    if target not in header:
        raise CoreshotError(
            f"study new: the target {target!r} is not among the columns {', '.join(header)}; name one of them."
        )
    guessed = records is not None
    columns = [
        _column_lines(column, [record.get(column) for record in records or ()], guessed)
        for column in header
        if column != target
    ]
    task, values = (
        _guessed_target([record.get(target) for record in records], target) if records is not None else _TARGET
    )
    return f"""{_head(name)}
{_line("task", task)} # classification: [target] has classes; regression: it has range = [low, high]

[target]
{_line("name", target)}
{values}

[table]
# indicator: a missing cell is 0, and another column says that it was missing.
# zero: a missing cell is 0. refuse: no cell may be missing.
missing = "indicator"
{"".join(columns)}
{_METHOD.format(features=_VECTOR_FEATURES, max_bytes="9_000")}"""


def image_template(name: str, shape: Sequence[int], classes: Sequence[str]) -> str:
    return f"""{_head(name)}
task = "classification"

[target]
name = "label"
{_line("classes", list(classes))}

[image]
{_line("shape", list(shape))} # lines, columns, channels
range = [0, 255] # of a pixel, public

{_METHOD.format(features=_IMAGE_FEATURES if min(shape[:2]) >= 16 else _SMALL_IMAGE_FEATURES, max_bytes="70_000")}"""


def _head(name: str) -> str:
    return f"""# A coreshot study: the public agreement between a coordinator and the sites that take part.
# Everybody has the same file; its hash is in every coreset, and a changed file is another study.
format = {FORMAT}
{_line("name", name)}
seed = 0 # of the random features that everybody shares"""


_METHOD = """# What a site computes and sends, once. See docs/learners.md for others.
[method]
name = "spectral"
max_bytes = {max_bytes}
features = {features}

# For differential privacy of single records: name = "private_spectral" above, without max_bytes, and
# [privacy]
# epsilon = 3.0
# delta = 1e-5
"""
_VECTOR_FEATURES = (
    '{ name = "random_vector", dimension = 96, nonlinearity = "relu", input_scale = 3.0, with_inputs = true }'
)
_IMAGE_FEATURES = '{ name = "random_conv", dimension = 1024 }'
_SMALL_IMAGE_FEATURES = '{ name = "random_conv", dimension = 512, num_filters = 64, size = 3, grid = 3 }'


_OTHER_NAMES = (
    """# values = { healthy = ["0"], ill = ["1", "2"] } # if a class has other names, or several, in the sites' files"""
)
_TARGET = (
    "classification",
    f'classes = ["no", "yes"] # FILL IN: every value of the column, in the order you want\n{_OTHER_NAMES}',
)


def _guessed_target(cells: Sequence[Any], target: str) -> tuple[str, str]:
    """The task and the lines of its target: many different numbers are a quantity, everything else is classes."""
    texts = {text for cell in cells if (text := as_text(cell)) is not None}
    if len(texts) < 2:
        raise CoreshotError(
            f"study new --guess: the target {target!r} has {len(texts)} different values; give a CSV with at least two."
        )
    numbers = _numbers(texts)
    if len(numbers) > MAX_GUESSED:
        return "regression", _guessed_range(numbers)
    return "classification", f"{_line('classes', sorted(texts))} # guessed: check\n{_OTHER_NAMES}"


def _guessed_range(numbers: Sequence[float]) -> str:
    """With all digits, so that the records of the CSV file are inside."""
    return f"{_line('range', [min(numbers), max(numbers)])} # guessed: widen to what is publicly known"


def _numbers(texts: Iterable[str]) -> list[float]:
    """The texts as numbers; an empty list if one of them is not a number."""
    try:
        return [float(text) for text in texts]
    except ValueError:
        return []


def _column_lines(name: str, cells: Sequence[Any], is_guessed: bool) -> str:
    head = f"\n[[table.column]]\n{_line('name', name)}\n"
    if not is_guessed:
        return (
            head
            + 'kind = "number" # or "category", with values = ["a", "b"]\n'
            + "# FILL IN, from what is publicly known: range = [low, high]\n"
        )
    texts = [text for cell in cells if (text := as_text(cell)) is not None]
    different = sorted(set(texts))
    numbers = _numbers(texts)
    is_whole = bool(numbers) and all(number.is_integer() for number in numbers)
    if not numbers or (is_whole and len(different) <= MAX_GUESSED):
        return head + f'kind = "category"\n{_line("values", different)} # guessed: check\noutside = "missing"\n'
    return head + f'kind = "number"\n{_guessed_range(numbers)}\noutside = "clip"\n'


def _line(key: str, value: str | Sequence[str] | Sequence[float]) -> str:
    """`key = value` in TOML, on one line."""
    if isinstance(value, str):
        return tomli_w.dumps({key: value}).rstrip("\n")
    entries = (tomli_w.dumps({"entry": entry}).removeprefix("entry = ").rstrip("\n") for entry in value)
    return f"{key} = [{', '.join(entries)}]"


def csv_header(path: Path) -> list[str]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CoreshotError(
            f"{path}: cannot be read as CSV ({error}); give a file whose first line names the columns."
        ) from None
    if not header:
        raise CoreshotError(f"{path}: the first line does not name columns; add a header.")
    return check_header(header, path)
