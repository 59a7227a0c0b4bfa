"""study.toml: the agreement as a file that a person can read, send and sign. Its hash is in every coreset."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from coreshot.config import Count, NonNegative, NonNegativeInt, Positive, decode, decode_named, has_setting, settings
from coreshot.data.periods import with_periods
from coreshot.data.schema import Classes, Images, Quantity, Table, parse_inputs, parse_target
from coreshot.errors import CoreshotError, check_text
from coreshot.learners import LEARNERS
from coreshot.methods import METHODS, Glm
from coreshot.methods.protocol import Method
from coreshot.models import Model
from coreshot.models.networks import NETWORKS
from coreshot.study.study import Agreement, Study, decode_work

FORMAT = 1
NETWORK = {"name": "mlp", "hidden": [32], "activation": "relu"}  # of a study whose method has none


@settings
class Outline:
    """The top level of a study file."""

    format: Literal[1]
    name: str
    task: Literal["classification", "regression", "survival"]  # survival: time to an event, as binary records
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
    max_records: Count = 10_000_000  # of one site: what it says of its number is not believed beyond this
    max_input: Positive | None = None  # of the numbers in a site's points, scaled
    max_shift: NonNegativeInt = 0  # augmentation: random shifts of images in training, in pixels


@dataclass(frozen=True)
class StudyFile:
    """A study and the text that it was read from, which people have agreed on, comments included."""

    text: str
    study: Study


def read_study_text(path: Path) -> str:
    where = f"study {path}"
    if not path.is_file():
        raise CoreshotError(
            f"{where}: there is no such file; write one with `coreshot study new`, or ask the coordinator for it."
        )
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CoreshotError(f"{where}: not valid TOML ({error}); mend that line.") from None


def read_study_file(path: Path) -> StudyFile:
    return parse_study(read_study_text(path), f"study {path}")


def read_study(path: str | Path) -> Study:
    """A study from its TOML file, checked; a CoreshotError says what is wrong with it.

    Parameters
    ----------
    path : str or Path
        Of a file that `coreshot study new` has written, or a person.

    Returns
    -------
    Study

    Examples
    --------
    >>> study = coreshot.read_study("study.toml")  # doctest: +SKIP
    """
    return read_study_file(Path(path)).study


def parse_study(text: str, where: str) -> StudyFile:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CoreshotError(f"{where}: not valid TOML ({error}); mend that line.") from None
    except RecursionError:
        raise CoreshotError(f"{where}: its lists or tables are nested too deeply; it is no study.") from None
    check_text(values, where)
    return StudyFile(text, _build_study(values, where))


def _build_study(values: Mapping[str, Any], where: str) -> Study:
    if values.get("format") not in (None, FORMAT):
        raise CoreshotError(
            f"{where}: is of format {values['format']}, this coreshot reads {FORMAT}; use the coordinator's version."
        )
    outline = decode(Outline, values, where)
    if (outline.table is None) == (outline.image is None):
        raise CoreshotError(f"{where}: records are lines of a [table] or [image]s; describe one of them.")
    inputs = (
        _table(outline.table, where)
        if outline.table is not None
        else parse_inputs(outline.image or {}, f"{where}, image")
    )
    target = parse_target(outline.target, f"{where}, target")
    is_survival = isinstance(target, Classes) and bool(target.ends)
    if is_survival != (outline.task == "survival") or (is_survival and not isinstance(inputs, Table)):
        raise CoreshotError(
            f"{where}: a survival has a [table], and a [target] with classes, time and ends; make task and both agree."
        )
    if is_survival and isinstance(inputs, Table) and isinstance(target, Classes):
        inputs = with_periods(inputs, target, f"{where}, target")
    if isinstance(target, Classes) != (outline.task != "regression"):
        raise CoreshotError(
            f"{where}: a classification has a target with classes, a regression one with a range; "
            "make task and [target] agree."
        )
    if isinstance(inputs, Table) and any(column.name == target.name for column in inputs.columns):
        raise CoreshotError(f"{where}: {target.name!r} is both a column and the target; remove it from the table.")
    agreement = Agreement(
        task=outline.name,
        kind="regression" if outline.task == "regression" else "classification",
        input_shape=inputs.input_shape,
        num_outputs=target.num_outputs,
        prior_precision=outline.prior_precision,
        noise_scale=outline.noise_scale,
        seed=outline.seed,
        max_records=outline.max_records,
        max_input=outline.max_input,
        max_shift=outline.max_shift,
    )
    network = decode_named(NETWORKS, outline.network or NETWORK, f"{where}, network", "network")
    method = _for_table(_method(outline, where), inputs, target, agreement.model(network), where)
    if is_survival and not isinstance(method, Glm):
        raise CoreshotError(
            f"{where}: a person is several records of a survival, so a promise about a record would say too little; "
            "only the method glm has been tried with them, use it."
        )
    return Study(agreement, network, method, inputs, target)


def _for_table(method: Method, inputs: Table | Images, target: Classes | Quantity, model: Model, where: str) -> Method:
    """A generalised linear model takes powers of numbers alone, and products of all but indicators of missing cells."""
    if isinstance(target, Quantity) and target.counts:
        if not isinstance(method, Glm):
            raise CoreshotError(f"{where}, target: counts are for the method glm; use it, or leave counts away.")
        method = replace(method, largest_count=target.range[1])
    if not isinstance(method, Glm) or not isinstance(inputs, Table):
        return method
    powers = inputs.number_inputs if method.powers is None else method.powers
    products = inputs.product_inputs if method.products is None else method.products
    dimension = method.dimension or method.default_dimension(model)
    return replace(method, powers=powers, products=products, fills=inputs.filled_inputs, dimension=dimension)


def _table(values: Mapping[str, Any], where: str) -> Table:
    """[[table.column]] in the file, because each is a thing of its own; columns in the type."""
    plain = {**values, "columns": values.get("column", [])}
    plain.pop("column", None)
    if not plain["columns"]:
        raise CoreshotError(f"{where}: the table has no columns; add a [[table.column]] for each.")
    return decode(Table, plain, f"{where}, table")


def _method(outline: Outline, where: str) -> Method:
    """What a client does; with a [privacy] table, something that keeps it."""
    if (outline.learner is None) == (outline.method is None):
        raise CoreshotError(f"{where}: what a client does is a [method] or a [learner]; give one of them.")
    key, registry = ("learner", LEARNERS) if outline.learner is not None else ("method", METHODS)
    values = dict(outline.learner or outline.method or {})
    if outline.privacy is not None:
        values = {"privacy": outline.privacy, **values}
        if values["privacy"] != outline.privacy:
            raise CoreshotError(f"{where}: [privacy] and the {key}'s own privacy are not the same; keep one of them.")
        if not has_setting(registry, values.get("name"), "privacy"):
            raise CoreshotError(
                f"{where}: has [privacy], but {key} {values.get('name')!r} keeps no promise; "
                "use a private one, or remove it."
            )
    method = decode_work({key: values}, where, ", ")
    if method.num_rounds != 1:
        raise CoreshotError(
            f"{where}: method {values['name']!r} has many rounds, and files are sent once; use spectral or a learner."
        )
    return method
