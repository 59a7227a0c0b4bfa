"""study.toml: the agreement as a file that a person can read, send around and sign. Its hash binds every coreset to it."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from coreshot.config import NonNegative, Positive, decode, decode_named, settings
from coreshot.data.records import check_header
from coreshot.errors import CoreshotError
from coreshot.learners import LEARNERS
from coreshot.methods import METHODS
from coreshot.models import NETWORKS
from coreshot.schema import Classes, Table, as_text, inputs_of, target_of
from coreshot.study import Agreement, Study

FORMAT = 1
NETWORK = {"name": "mlp", "hidden": [32], "activation": "relu"}  # of a study whose method has none
MAX_GUESSED = 12  # different values up to which a column of whole numbers is taken for a category


@settings
class Outline:
    """The top level of a study file."""

    format: Literal[1]
    name: str
    task: Literal["classification", "regression"]
    target: dict[str, Any]
    table: dict[str, Any] | None = None
    image: dict[str, Any] | None = None
    method: dict[str, Any] | None = None
    learner: dict[str, Any] | None = None
    network: dict[str, Any] | None = None
    privacy: dict[str, float] | None = None
    prior_precision: NonNegative = 1.0
    noise_scale: Positive = 1.0
    seed: int = 0


def read_study(path: Path) -> Study:
    where = f"study {path}"
    if not path.is_file():
        raise CoreshotError(f"{where}: there is no such file; write one with `coreshot study new`, or ask the coordinator for it.")
    try:
        values = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CoreshotError(f"{where}: not valid TOML ({error}); mend that line.") from None
    return study_of(values, where)


def study_of(values: Mapping[str, Any], where: str) -> Study:
    if values.get("format") not in (None, FORMAT):
        raise CoreshotError(f"{where}: is of format {values['format']}, this coreshot reads {FORMAT}; use the coordinator's version.")
    outline = decode(Outline, values, where)
    if (outline.table is None) == (outline.image is None):
        raise CoreshotError(f"{where}: records are lines of a [table] or [image]s; describe one of them.")
    inputs = _table(outline.table, where) if outline.table is not None else inputs_of(outline.image or {}, f"{where}, image")
    target = target_of(outline.target, f"{where}, target")
    if isinstance(target, Classes) != (outline.task == "classification"):
        raise CoreshotError(f"{where}: a classification has a target with classes, a regression one with a range; make task and [target] agree.")
    if isinstance(inputs, Table) and any(column.name == target.name for column in inputs.columns):
        raise CoreshotError(f"{where}: {target.name!r} is both a column and the target; remove it from the table.")
    agreement = Agreement(
        task=outline.name,
        kind=outline.task,
        input_shape=inputs.input_shape,
        num_outputs=target.num_outputs,
        prior_precision=outline.prior_precision,
        noise_scale=outline.noise_scale,
        seed=outline.seed,
    )
    network = decode_named(NETWORKS, outline.network or NETWORK, f"{where}, network", "network")
    return Study(agreement, network, **_work(outline, where), inputs=inputs, target=target)


def _table(values: Mapping[str, Any], where: str) -> Table:
    """[[table.column]] in the file, because each is a thing of its own; columns in the type."""
    plain = {**values, "columns": values.get("column", [])}
    plain.pop("column", None)
    if not plain["columns"]:
        raise CoreshotError(f"{where}: the table has no columns; add a [[table.column]] for each.")
    return decode(Table, plain, f"{where}, table")


def _work(outline: Outline, where: str) -> dict[str, Any]:
    """What a client does; with a [privacy] table, something that keeps it."""
    if (outline.learner is None) == (outline.method is None):
        raise CoreshotError(f"{where}: what a client does is a [method] or a [learner]; give one of them.")
    key, registry = ("learner", LEARNERS) if outline.learner is not None else ("method", METHODS)
    values = dict(outline.learner or outline.method or {})
    if outline.privacy is not None:
        values = {"privacy": outline.privacy, **values}
        if values["privacy"] != outline.privacy:
            raise CoreshotError(f"{where}: [privacy] and the {key}'s own privacy are not the same; keep one of them.")
        if "privacy" not in getattr(registry.get(str(values.get("name"))), "__dataclass_fields__", {}):
            raise CoreshotError(f"{where}: has [privacy], but {key} {values.get('name')!r} keeps no promise; use a private one, or remove it.")
    work = decode_named(registry, values, f"{where}, {key}", key)
    if key == "method" and work.num_rounds != 1:
        raise CoreshotError(f"{where}: method {values['name']!r} has many rounds, and files are sent once; use spectral or a learner.")
    return {key: work}


def table_template(name: str, header: Sequence[str], target: str, records: Sequence[Mapping[str, Any]] | None) -> str:
    """A study for a table with these columns; with records, kinds, ranges and values are guessed from them."""
    if target not in header:
        raise CoreshotError(f"study new: the target {target!r} is not among the columns {', '.join(header)}; name one of them.")
    guessed = records is not None
    columns = [_column_lines(column, [record.get(column) for record in records or ()], guessed) for column in header if column != target]
    task, values = _guessed_target([record.get(target) for record in records], target) if records is not None else _TARGET
    return f"""{_head(name)}
task = "{task}" # classification: [target] has classes; regression: it has range = [low, high]

[target]
name = {_quoted(target)}
{values}

[table]
# indicator: a missing cell is 0, and a further column says that it was missing. zero: it is 0. refuse: no cell may be missing.
missing = "indicator"
{"".join(columns)}
{_METHOD.format(features=_VECTOR_FEATURES, max_bytes="9_000")}"""


def image_template(name: str, shape: Sequence[int], classes: Sequence[str]) -> str:
    return f"""{_head(name)}
task = "classification"

[target]
name = "label"
classes = {_list(classes)}

[image]
shape = {list(shape)} # lines, columns, channels
range = [0, 255] # of a pixel, public

{_METHOD.format(features=_IMAGE_FEATURES if min(shape[:2]) >= 16 else _SMALL_IMAGE_FEATURES, max_bytes="70_000")}"""


def _head(name: str) -> str:
    return f"""# A coreshot study: the public agreement between a coordinator and the sites that take part.
# Everybody has this same file; its hash is in every coreset, and a changed file is another study.
format = {FORMAT}
name = {_quoted(name)}
seed = 0 # of the random features that everybody shares"""


_METHOD = """# What a site computes and sends, once. See docs/learners.md for others.
[method]
name = "spectral"
max_bytes = {max_bytes}
features = {features}

# For a promise about single records: name = "private_spectral" above, without max_bytes, and
# [privacy]
# epsilon = 3.0
# delta = 1e-5
"""
_VECTOR_FEATURES = '{ name = "random_vector", dimension = 96, nonlinearity = "relu", input_scale = 3.0, with_inputs = true }'
_IMAGE_FEATURES = '{ name = "random_conv", dimension = 1024 }'
_SMALL_IMAGE_FEATURES = '{ name = "random_conv", dimension = 512, num_filters = 64, size = 3, grid = 3 }'


_OTHER_NAMES = """# values = { healthy = ["0"], ill = ["1", "2"] } # if a class has other names, or several, in people's files"""
_TARGET = ("classification", f'classes = ["no", "yes"] # FILL IN: every value of the column, in the order you want\n{_OTHER_NAMES}')


def _guessed_target(cells: Sequence[Any], target: str) -> tuple[str, str]:
    """Task, and what its target is made of: many different numbers are a quantity, all else is classes."""
    texts = {text for cell in cells if (text := as_text(cell)) is not None}
    if len(texts) < 2:
        raise CoreshotError(f"study new --guess: the target {target!r} has {len(texts)} different values; give a CSV with at least two.")
    numbers = _numbers(texts)
    if len(numbers) > MAX_GUESSED:
        return "regression", _guessed_range(numbers)
    return "classification", f"classes = {_list(sorted(texts))} # guessed: check\n{_OTHER_NAMES}"


def _guessed_range(numbers: Sequence[float]) -> str:
    """With all digits: the CSV itself must be inside."""
    return f"range = [{min(numbers)}, {max(numbers)}] # guessed: widen to what is publicly known"


def _numbers(texts: Iterable[str]) -> list[float]:
    """None at all where one is not a number."""
    try:
        return [float(text) for text in texts]
    except ValueError:
        return []


def _column_lines(name: str, cells: Sequence[Any], is_guessed: bool) -> str:
    head = f"\n[[table.column]]\nname = {_quoted(name)}\n"
    if not is_guessed:
        return head + 'kind = "number" # or "category", with values = ["a", "b"]\n# FILL IN, from what is publicly known: range = [low, high]\n'
    texts = [text for cell in cells if (text := as_text(cell)) is not None]
    different = sorted(set(texts))
    numbers = _numbers(texts)
    is_whole = bool(numbers) and all(number.is_integer() for number in numbers)
    if not numbers or (is_whole and len(different) <= MAX_GUESSED):
        return head + f'kind = "category"\nvalues = {_list(different)} # guessed: check\noutside = "missing"\n'
    return head + f'kind = "number"\n{_guessed_range(numbers)}\noutside = "clip"\n'


def _list(names: Sequence[str]) -> str:
    return "[" + ", ".join(map(_quoted, names)) + "]"


def _quoted(name: str) -> str:
    """A basic string of TOML; JSON escapes the same characters in the same way."""
    return json.dumps(name, ensure_ascii=False)


def csv_header(path: Path) -> list[str]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CoreshotError(f"{path}: cannot be read as CSV ({error}); give a file whose first line names the columns.") from None
    if not header:
        raise CoreshotError(f"{path}: the first line does not name columns; add a header.")
    return check_header(header, path)
