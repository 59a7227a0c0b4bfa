"""Two generated tables: large logistic data, and a table whose CSV files are as dirty as a hospital's."""

from __future__ import annotations

import numpy as np
from table_sources import Cells, Table

NUM_COLUMNS = 20
LOGISTIC_SITES, LOGISTIC_ROWS, LOGISTIC_TEST = 3, 200_000, 20_000
DIRTY_SITES, DIRTY_ROWS, DIRTY_TEST = 5, 300, 3_000
SCORE_DEVIATION = 1.4  # of the logit: the best accuracy is then about 0.73


def logistic_table(seed: int, rows: int = LOGISTIC_ROWS) -> Table:
    """Twenty columns, of which one is log-normal and one has a deviation of 1,000; ranges do not look at the rows."""
    draws = np.random.default_rng([seed, 1])
    size = LOGISTIC_SITES * rows + LOGISTIC_TEST
    x = draws.normal(size=(size, NUM_COLUMNS))
    x[:, :8] += draws.normal(size=(size, 1))  # these are correlated
    skewed = np.exp(draws.normal(size=size))
    weights = draws.normal(size=NUM_COLUMNS)
    score = np.delete(x, [18], axis=1) @ np.delete(weights, 18) + 0.5 * skewed
    score = SCORE_DEVIATION * (score - score.mean()) / score.std() - 0.5
    labels = draws.random(size) < 1 / (1 + np.exp(-score))
    cells: Cells = {f"x{index + 1}": x[:, index] for index in range(18)}
    cells |= {"marker": skewed, "dose": 1_000 * x[:, 19], "outcome": np.where(labels, "ill", "well")}
    ranges = {**{f"x{index + 1}": [-8.0, 8.0] for index in range(18)}, "marker": [0.0, 100.0], "dose": [-6e3, 6e3]}
    columns = tuple({"name": name, "kind": "number", "range": span, "outside": "clip"} for name, span in ranges.items())
    sites = np.concatenate([np.repeat(np.arange(LOGISTIC_SITES), rows), np.full(LOGISTIC_TEST, -1)])
    lines = {"name": "outcome", "classes": ["well", "ill"]}
    return Table("logistic", cells, "outcome", columns, lines, sites=sites)


def dirty_table(seed: int) -> Table:
    """Clean cells, and beside them what the files say: gaps, values out of range, mixed spelling."""
    draws = np.random.default_rng([seed, 2])
    size = DIRTY_SITES * DIRTY_ROWS + DIRTY_TEST
    age, bmi = draws.uniform(20, 90, size).round(), draws.normal(27, 5, size).clip(15, 55).round(1)
    creatinine = np.exp(draws.normal(0, 0.5, size)).clip(0.2, 10).round(2)
    pressure = (draws.normal(135, 18, size) + 0.3 * (age - 55)).clip(80, 220).round()
    smoker, ward = draws.random(size) < 0.3, draws.integers(4, size=size)
    score = (
        0.035 * (age - 55)
        + 0.08 * (bmi - 27)
        + 0.6 * np.log(creatinine)
        + 0.01 * (pressure - 135)
        + 0.9 * (smoker - 0.3)
        + np.asarray([-0.6, -0.2, 0.2, 0.6])[ward]
    )
    outcome = draws.random(size) < 1 / (1 + np.exp(-1.3 * score + 0.4))
    wards = np.asarray(["surgery", "medicine", "neurology", "day clinic"])
    cells: Cells = {
        "age": age,
        "bmi": bmi,
        "creatinine": creatinine,
        "blood pressure": pressure,
        "smoker": np.where(smoker, "yes", "no"),
        "ward": wards[ward],
        "outcome": np.where(outcome, "readmitted", "home"),
    }
    ranges = {"age": [18.0, 100.0], "bmi": [10.0, 60.0], "creatinine": [0.0, 12.0], "blood pressure": [60.0, 240.0]}
    values = {"smoker": ["no", "yes"], "ward": sorted(wards.tolist())}
    columns = (
        *({"name": name, "kind": "number", "range": span, "outside": "clip"} for name, span in ranges.items()),
        *({"name": name, "kind": "category", "values": v, "outside": "missing"} for name, v in values.items()),
    )
    sites = np.concatenate([np.repeat(np.arange(DIRTY_SITES), DIRTY_ROWS), np.full(DIRTY_TEST, -1)])
    lines = {"name": "outcome", "classes": ["home", "readmitted"]}
    dirty = _make_dirty(cells, sites, draws)
    return Table("dirty CSV", cells, "outcome", columns, lines, sites=sites, dirty=dirty)


def _make_dirty(cells: Cells, sites: np.ndarray, draws: np.random.Generator) -> Cells:
    """A twentieth of all cells is missing, a third of one site's creatinine; some numbers lack their decimal point."""
    found: Cells = {}
    for name, clean in cells.items():
        texts = np.asarray([f"{cell:g}" if clean.dtype.kind == "f" else str(cell) for cell in clean], object)
        if name == "outcome":
            found[name] = texts
            continue
        if name == "bmi":
            slips = draws.random(len(texts)) < 0.02
            texts[slips] = [f"{10 * cell:g}" for cell in clean[slips]]
        if clean.dtype.kind != "f":
            spellings = (str, str.upper, str.capitalize, lambda text: f" {text} ")
            chosen = draws.choice(len(spellings), size=len(texts), p=[0.9, 0.04, 0.04, 0.02])
            texts[:] = [spellings[which](text) for which, text in zip(chosen, texts, strict=True)]
        share = np.where((sites == 2) & (name == "creatinine"), 0.33, 0.05)
        texts[draws.random(len(texts)) < share] = ""
        found[name] = texts
    return found
