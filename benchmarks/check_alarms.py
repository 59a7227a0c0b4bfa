"""How often `coreshot check` raises an alarm: on records of the federation, and on records that something happened to.

`python benchmarks/check_alarms.py [FOLDER]` halves the records of the four hospitals (of FOLDER, or drawn ones) and of
scikit-learn's digits in ten clients. One half is distilled; from the other, 100 times, 100 records are drawn: of all
clients, or of one in turn. Then the same draws after something went wrong: every age ten years higher, cholesterol in
mmol/l, pressure in kPa, two columns exchanged; images turned by 90 degrees, upside down, or negative. It writes
results/at_work/check_alarms.json: alarms in 100 draws.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

from coreshot.api import distill
from coreshot.data.digits import Digits
from coreshot.data.table_files import read_columns
from coreshot.demo.hospitals import HOSPITALS, look_alike, study_text
from coreshot.fitted.fits_here import check_fit
from coreshot.fitted.model import Contents, FittedModel, fit, read_messages
from coreshot.methods.spectral import Spectral
from coreshot.models.networks import Mlp
from coreshot.spectral.features import RandomConv
from coreshot.study import Agreement, Study
from coreshot.study.file import parse_study

OUT = Path(__file__).resolve().parent.parent / "results" / "at_work" / "check_alarms.json"
NUM_DRAWS, NUM_RECORDS, NUM_CLIENTS = 100, 100, 10
Cells = dict[str, np.ndarray]


def _numbers(change: Callable[[float], float]) -> Callable[[Any], Any]:
    return lambda cell: cell if cell in (None, "") else change(float(cell))


def _changed(cells: Cells, name: str, change: Callable[[float], float]) -> Cells:
    return {**cells, name: np.asarray([_numbers(change)(cell) for cell in cells[name]], object)}


ACCIDENTS: dict[str, Callable[[Cells], Cells]] = {
    "age, ten years more": lambda cells: _changed(cells, "age", lambda age: min(age + 10, 90)),
    "cholesterol in mmol/l": lambda cells: _changed(cells, "chol", lambda one: round(one * 0.02586, 2)),
    "pressure in kPa": lambda cells: _changed(cells, "trestbps", lambda one: round(one * 0.1333, 1)),
    "pressure and heart rate exchanged": lambda cells: {
        **cells, "trestbps": cells["thalach"], "thalach": cells["trestbps"],
    },
}  # fmt: skip
TURNS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "turned by 90 degrees": lambda x: np.rot90(x, axes=(1, 2)).copy(),
    "upside down": lambda x: x[:, ::-1].copy(),
    "negative": lambda x: 1 - x,
}


def hospitals(folder: Path) -> dict[str, Any]:
    study = parse_study(study_text(), "study").study
    draws, parts, kept = np.random.default_rng(0), {}, {}
    for name in HOSPITALS:
        cells = {key: np.asarray(column, object) for key, column in read_columns(folder / f"{name}.csv").items()}
        order = draws.permutation(len(cells["age"]))
        parts[name] = encode(study, take(cells, order[: len(order) // 2]))
        kept[name] = take(cells, order[len(order) // 2 :])
    model, contents = federation(study, parts)
    every = {key: np.concatenate([part[key] for part in kept.values()]) for key in kept["cleveland"]}

    def ask(cells: Cells, rows: np.ndarray) -> bool:
        return check_fit(model, contents, encode(study, take(cells, rows))[0]).is_alarm

    found = {"records of all": count(lambda rows: ask(every, rows), len(every["age"]))}
    for name, cells in kept.items():
        found[f"records of {name}"] = count(lambda rows, cells=cells: ask(cells, rows), len(cells["age"]))
    for name, change in ACCIDENTS.items():
        wrong = change(every)
        found[name] = count(lambda rows, wrong=wrong: ask(wrong, rows), len(every["age"]))
    return found


def encode(study: Study, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    assert study.inputs is not None
    assert study.target is not None
    plain = {key: column.tolist() for key, column in cells.items()}
    return study.inputs.encode(plain, "records")[0], study.target.encode(plain["num"], "records")[0]  # type: ignore[arg-type,return-value]


def take(cells: Cells, rows: np.ndarray) -> Cells:
    return {key: column[rows] for key, column in cells.items()}


def federation(study: Study, parts: dict[str, tuple[np.ndarray, np.ndarray]]) -> tuple[FittedModel, Contents]:
    messages = [distill(study, x, y, client=name) for name, (x, y) in parts.items()]
    return fit(study, messages), read_messages(study, messages)


def count(ask: Callable[[np.ndarray], bool], size: int) -> int:
    draws = np.random.default_rng(1)
    return sum(ask(draws.permutation(size)[:NUM_RECORDS]) for _ in range(NUM_DRAWS))


def digits() -> dict[str, Any]:
    features = RandomConv(dimension=256, num_filters=32, size=3, grid=2)
    terms = Agreement(task="digits", kind="classification", input_shape=(8, 8, 1), num_outputs=10, prior_precision=1.0)
    study = Study(terms, Mlp(hidden=(5,), activation="relu"), Spectral(features=features))
    data = Digits(num_clients=NUM_CLIENTS, alpha=1.0, test_fraction=0.5).make(0)
    parts = {name: (np.asarray(one.x), np.asarray(one.y).argmax(axis=1)) for name, one in data.clients.items()}
    model, contents = federation(study, parts)
    x = np.asarray(data.test.x)
    asked = {"records of all": lambda one: one, **TURNS}
    return {
        name: count(lambda rows, turn=turn: check_fit(model, contents, turn(x[rows])).is_alarm, len(x))
        for name, turn in asked.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path, nargs="?", help="with the four CSV files of the hospitals")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as drawn:
        look_alike(Path(drawn))
        found = {"drawn hospitals": hospitals(Path(drawn)), "digits": digits()}
    if options.folder:
        found = {"real hospitals": hospitals(options.folder), **found}
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1), file=sys.stdout)


if __name__ == "__main__":
    main()
