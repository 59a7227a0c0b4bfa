"""A draft as the text of a study.toml, with comments that say what everything means and what is to be filled in."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence

import tomli_w

from coreshot.config import decode
from coreshot.data.schema import Column, parse_target
from coreshot.study.draft import Draft, DraftColumn, DraftTarget, LeftOut
from coreshot.study.file import FORMAT
from coreshot.study.method_defaults import image_method_lines, method_lines

FILL_IN, GUESSED = "FILL IN", "guessed"  # `study check` looks for these words in comments


def table_template(draft: Draft) -> str:
    columns = "".join(
        column_lines(column) + ("" if isinstance(column, LeftOut) and isinstance(after, LeftOut) else "\n")
        for column, after in zip(draft.columns, [*draft.columns[1:], None], strict=True)
    )
    return f"""{_head(draft.name)}
{toml_line("task", draft.target.task)} # classification: [target] has classes; regression: it has a range

{target_lines(draft.target)}

{_TABLE}
{columns}{method_lines(draft.target.task, _num_inputs(draft.kept))}"""


def image_template(name: str, shape: Sequence[int], classes: Sequence[str]) -> str:
    return f"""{_head(name)}
task = "classification"

[target]
name = "label"
{toml_line("classes", list(classes))}

[image]
{toml_line("shape", list(shape))} # lines, columns, channels
range = [0, 255] # of a pixel, public

{image_method_lines(shape)}"""


def _num_inputs(columns: Sequence[DraftColumn]) -> int | None:
    """With an indicator for each column; None while a kind is to be filled in."""
    if any(column.kind is None for column in columns):
        return None
    return sum(1 + (len(column.values) if column.kind == "category" else 1) for column in columns)


def _head(name: str) -> str:
    return f"""# A coreshot study: the public agreement between a coordinator and the sites that take part.
# Everybody has the same file; its hash is in every coreset, and a changed file is another study.
# Every site reads it, so it must hold nothing from a record: ranges and values are what is publicly known.
format = {FORMAT}
{toml_line("name", name)}
seed = 0 # of the random features that everybody shares"""


_TABLE = """[table]
# mean: a missing number counts as the mean of the site's others, and another input says that it was missing.
# indicator: it counts as the middle of its range, and another input says so. zero: without that input.
# refuse: no cell may be missing.
missing = "mean"
# missing_words = ["none", "unknown"] # what a category's cell says if it is not known; an empty cell is always missing

# The kinds of a column:
# kind = "number", with range = [low, high], the smallest and the largest value that can be expected anywhere
# kind = "category", with values = ["a", "b"]
# kind = "yes_no", for yes/no, true/false, 1/0 in any spelling
# kind = "date", with range = ["1930-01-01", "2025-12-31"]
# What may be added to a column:
# outside = "clip", what is done with a number outside of the range: "clip" (set to the nearer end), "missing", "refuse"
# outside = "missing", what is done with another value of a category: "missing" or "refuse"
# may_be_missing = true, if a site may have most cells, or all, of this column empty
# names = ["bmi", "BMI_kg_m2"], other names that the column has in sites' files
# aliases = { yes = ["j"], no = ["n"] }, other spellings of values; upper and lower case are the same already
"""


def target_lines(target: DraftTarget) -> str:
    lines = ["[target]", toml_line("name", target.name)]
    lines += [f"# {one_line(question)}" for question in target.questions]
    mark = f" # {GUESSED}: check" if target.is_guessed else ""
    if target.range is not None:
        note = f" # {GUESSED}: replace by what is publicly known" if target.is_guessed else ""
        lines += [toml_line("range", target.range) + note, 'outside = "clip" # sites count what they clip; or "refuse"']
    elif target.classes:
        lines += [toml_line("classes", target.classes) + mark]
        lines += [_value_lines(target.values)] if target.values else []
    else:
        lines += [
            f'classes = ["no", "yes"] # {FILL_IN}: every value of the column, in the order you want',
            '# range = [0, 100] # in place of classes, for a regression, with outside = "clip" or "refuse"',
        ]
    if not target.values and target.range is None:
        lines += ['# values = { healthy = ["0"], ill = ["1", "2"] } # if classes have other names in the sites\' files']
    for other in target.alternatives:
        lines += [f'# Or, with task = "{other.task}" above:']
        lines += [f"# {line}" for line in target_lines(_without_remarks(other)).splitlines()[2:]]
    return "\n".join(lines)


def _without_remarks(target: DraftTarget) -> DraftTarget:
    return DraftTarget(target.name, target.task, target.classes, target.values, target.range)


def _value_lines(values: Mapping[str, Sequence[str]]) -> str:
    entries = (f"{toml_key(name)} = [{', '.join(map(toml_value, texts))}]" for name, texts in values.items())
    return f"values = {{ {', '.join(entries)} }}"


def column_lines(column: DraftColumn | LeftOut) -> str:
    if isinstance(column, LeftOut):
        return f"# left out: {one_line(column.name)} ({one_line(column.reason)})\n"
    lines = ["[[table.column]]", toml_line("name", column.name)]
    mark = f" # {GUESSED}: check" if column.is_guessed else ""
    if column.kind is None:
        lines += [f'kind = "number" # {FILL_IN} the kind, and its range or values as above', "# range = [0, 100]"]
    else:
        lines += [toml_line("kind", column.kind) + ("" if column.range or column.values else mark)]
    if column.kind == "yes_no":
        lines += ['outside = "missing"']
    if column.range is not None:
        note = f" # {GUESSED}: replace by what is publicly known" if column.is_guessed else ""
        lines += [toml_line("range", column.range) + note, 'outside = "clip"']
    if column.values:
        lines += [toml_line("values", column.values) + mark, 'outside = "missing"']
    if column.missing_words:
        lines += [toml_line("missing_words", column.missing_words) + mark]
    if column.may_be_missing:
        lines += ["may_be_missing = true"]
    return "\n".join(lines) + "\n"


def check_column(column: DraftColumn) -> None:
    """A CoreshotError with the sentence that a study file with this column would get."""
    decode(Column, tomllib.loads(column_lines(column))["table"]["column"][0], "study")


def check_target(target: DraftTarget) -> None:
    parse_target(tomllib.loads(target_lines(target))["target"], "study")


def one_line(text: str) -> str:
    """A text for a comment: nothing in it can end the line, or the file's validity."""
    return re.sub(r"[^\S ]|[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", text)


def toml_line(key: str, value: str | Sequence[str] | Sequence[float] | Sequence[int]) -> str:
    """`key = value` in TOML, on one line."""
    if isinstance(value, str):
        return f"{key} = {toml_value(value)}"
    return f"{key} = [{', '.join(map(toml_value, value))}]"


def toml_value(value: str | float) -> str:
    """A whole number without its decimals."""
    plain = int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value
    return tomli_w.dumps({"entry": plain}).removeprefix("entry = ").rstrip("\n")


def toml_key(text: str) -> str:
    return tomli_w.dumps({text: 0}).removesuffix(" = 0\n")
