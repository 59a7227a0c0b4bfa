"""Tables that no constant was chosen on: drawn ones, each with one difficulty, and iris."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.datasets import load_iris, make_classification, make_friedman1
from table_sources import Cells, Source, Table, describe, public_range

NUM_TEST = 3_000
WORDS = ("no", "yes")


def _label(score: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    return (draws.random(len(score)) < 1 / (1 + np.exp(-score))).astype(int)


def _sites(sizes: Sequence[int]) -> np.ndarray:
    """The site of each row; the last rows are the test."""
    return np.concatenate([np.repeat(np.arange(len(sizes)), sizes), np.full(NUM_TEST, -1)])


def _numbers(x: np.ndarray) -> tuple[Cells, list[dict[str, Any]]]:
    cells = {f"x{place + 1}": column for place, column in enumerate(x.T)}
    spans = {name: public_range(float(column.min()), float(column.max())) for name, column in cells.items()}
    return cells, [{"name": name, "kind": "number", "range": span, "outside": "clip"} for name, span in spans.items()]


def _classes(name: str, x: np.ndarray, labels: np.ndarray, sites: np.ndarray, words: Sequence[str] = WORDS) -> Table:
    cells, columns = _numbers(x)
    goal = np.asarray(words)[labels]
    lines = {"name": "outcome", "classes": list(words)}
    return Table(name, {**cells, "outcome": goal}, "outcome", tuple(columns), lines, sites=sites)


def _quantity(name: str, x: np.ndarray, y: np.ndarray, sites: np.ndarray) -> Table:
    cells, columns = _numbers(x)
    lines = {"name": "outcome", "range": public_range(float(y.min()), float(y.max()))}
    return Table(name, {**cells, "outcome": y}, "outcome", tuple(columns), lines, sites=sites)


def rare_class(draws: np.random.Generator) -> Table:
    """One record in a thousand."""
    sites = _sites([10_000] * 3)
    x = draws.normal(size=(len(sites), 8))
    return _classes("rare class", x, _label(x @ np.linspace(-0.8, 0.8, 8) - 7.8, draws), sites)


def one_class(draws: np.random.Generator) -> Table:
    """One of four sites has no record of a class."""
    sizes = [400] * 4
    x = draws.normal(size=(sum(sizes) + NUM_TEST + 400, 6))
    labels = _label(x @ np.asarray([1.0, -1.0, 0.5, 0.5, 0.0, 0.0]) - 0.5, draws)
    well = np.flatnonzero(labels == 0)[:400]
    order = np.concatenate([well, np.setdiff1d(np.arange(len(x)), well)])[: sum(sizes) + NUM_TEST]
    return _classes("one class", x[order], labels[order], _sites(sizes))


def heavy_tails(draws: np.random.Generator) -> Table:
    """Student's t with two degrees of freedom; the score grows as the logarithm."""
    sites = _sites([500] * 4)
    x = draws.standard_t(2.0, size=(len(sites), 8))
    score = (np.sign(x) * np.log1p(np.abs(x))) @ np.asarray([1.5, -1.5, 1.0, 1.0, 0.5, 0.0, 0.0, 0.0])
    return _classes("heavy tails", x, _label(score, draws), sites)


def nonlinear(draws: np.random.Generator) -> Table:
    """A product, a ring and a wave: next to nothing is linear."""
    sites = _sites([800] * 3)
    x = draws.uniform(-2, 2, size=(len(sites), 6))
    score = 1.5 * x[:, 0] * x[:, 1] + 2.0 * (x[:, 2] ** 2 + x[:, 3] ** 2 - 2.5) + 2.0 * np.sin(2 * x[:, 4])
    return _classes("nonlinear", x, _label(score, draws), sites)


def split_by_column(draws: np.random.Generator) -> Table:
    """Three sites have the lowest, the middle and the highest values of a column that matters."""
    sizes = [400] * 3
    x = draws.normal(size=(sum(sizes) + NUM_TEST, 6))
    train = sum(sizes)
    x[:train] = x[:train][np.argsort(x[:train, 0])]
    return _classes(
        "split by column", x, _label(1.2 * x[:, 0] - 0.8 * x[:, 1] + 0.4 * x[:, 0] ** 2, draws), _sites(sizes)
    )


def many_categories(draws: np.random.Generator) -> Table:
    """A category of 80 values, of which most are rare, beside four numbers."""
    sites = _sites([400] * 5)
    x = draws.normal(size=(len(sites), 4))
    shares = 1.0 / np.arange(1, 81)
    place = draws.choice(80, size=len(sites), p=shares / shares.sum())
    labels = _label(x[:, 0] - x[:, 1] + draws.normal(size=80)[place], draws)
    table = _classes("many categories", x, labels, sites)
    values = [f"ward {number}" for number in range(80)]
    column = {"name": "ward", "kind": "category", "values": values}
    cells = {**table.cells, "ward": np.asarray(values)[place]}
    return Table(table.name, cells, "outcome", (*table.columns, column), table.target_lines, sites=sites)


def wide(draws: np.random.Generator) -> Table:
    """300 columns, of which ten matter, and 200 records."""
    sites = _sites([67, 67, 66])
    x = draws.normal(size=(len(sites), 300))
    return _classes("wide", x, _label(x[:, :10] @ np.full(10, 0.7), draws), sites)


def skewed_classes(draws: np.random.Generator) -> Table:
    """Three classes in clusters; each site has mostly one of them."""
    x, labels = make_classification(
        1_200 + NUM_TEST,
        10,
        n_informative=6,
        n_classes=3,
        n_clusters_per_class=2,
        random_state=int(draws.integers(2**31)),
    )
    own = np.argsort(np.where(draws.random(1_200) < 0.8, labels[:1_200], draws.integers(3, size=1_200)), kind="stable")
    order = np.concatenate([own, np.arange(1_200, len(x))])
    return _classes("skewed classes", x[order], labels[order], _sites([400] * 3), ("a", "b", "c"))


def friedman(draws: np.random.Generator) -> Table:
    """Friedman's first function: a product, a square and two linear terms of ten columns."""
    sites = _sites([300] * 3)
    return _quantity("friedman", *make_friedman1(len(sites), noise=1.0, random_state=int(draws.integers(2**31))), sites)


def heavy_noise(draws: np.random.Generator) -> Table:
    """A quantity whose noise is Student's t with three degrees of freedom."""
    sites = _sites([200] * 3)
    x = draws.normal(size=(len(sites), 8))
    y = x @ np.linspace(-2, 2, 8) + x[:, 0] * x[:, 1] + draws.standard_t(3.0, len(sites))
    return _quantity("heavy noise", x, y, sites)


def _iris() -> Table:
    """Four sites by chance, or by class, as the splits of other tables are."""
    found = load_iris()
    names = [str(column) for column in found.feature_names]
    cells = {column: found.data[:, place].astype(float) for place, column in enumerate(names)}
    goal = np.asarray([str(word) for word in found.target_names])[found.target]
    return describe("iris", {**cells, "target": goal}, Source("sklearn", "", "target"))


DRAWN = (
    rare_class,
    one_class,
    heavy_tails,
    nonlinear,
    split_by_column,
    many_categories,
    wide,
    skewed_classes,
    friedman,
    heavy_noise,
)
MADE = {
    **{make.__name__.replace("_", " "): ("drawn",) for make in DRAWN},
    "iris": ("iid", "label"),
}


def made_table(name: str, seed: int) -> Table:
    if name == "iris":
        return _iris()
    place, make = next((place, one) for place, one in enumerate(DRAWN) if one.__name__.replace("_", " ") == name)
    return make(np.random.default_rng([seed, 10 + place]))
