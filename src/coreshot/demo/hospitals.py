"""Four hospitals that look like those of UCI Heart Disease, drawn here: nobody's patients. And a folder to try them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from coreshot.errors import CoreshotError
from coreshot.storage import write_bytes

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
HELD_OUT = 5  # one record of so many is kept for testing
COMMANDS = """coreshot study check study.toml
coreshot distill study.toml cleveland.csv --out cleveland.coreset
coreshot inspect cleveland.coreset --study study.toml --html cleveland.html
coreshot fit *.coreset --study study.toml --out model
coreshot evaluate model held-out.csv --html model.html"""
AT_WORK = """coreshot check model va.csv --labelled
coreshot adapt model va.csv --client va --out va-model
coreshot evaluate va-model va.csv
coreshot export va-model --onnx va.onnx --card va.md"""
README = f"""# Four hospitals, one file each

{{origin}} Each hospital has its own missing columns and its own share of ill patients. `held-out.csv` has a fifth of
the patients of each hospital; no hospital's own file has them.

The coordinator writes `study.toml`, which everybody has. Each hospital then makes one file, here the first of them:

    {COMMANDS.replace(chr(10), chr(10) + "    ")}

Repeat the second line for hungarian, switzerland and va before `fit`. No promise of privacy is made in this study:
`coreshot inspect` says what each file tells.

Then the model is at work. Here the VA's hospital looks whether it fits there, fits it to its own patients, and writes a
file for programs without coreshot (`pip install 'coreshot[export]'`) and a card for people:

    {AT_WORK.replace(chr(10), chr(10) + "    ")}
"""


def study_text() -> str:
    return (files("coreshot") / "examples" / "heart" / "study.toml").read_text(encoding="utf-8")


def look_alike(folder: Path, seed: int = 0) -> None:
    """Four files with the study's columns: a logistic truth, base rates and missing columns as the real hospitals
    have them.
    """
    draws = np.random.default_rng(seed)
    sizes, shifts = (303, 294, 123, 200), (0.0, -0.5, 3.0, 1.2)
    absent = {"hungarian": {"slope", "ca", "thal"}, "switzerland": {"chol", "fbs", "ca"}, "va": {"ca", "thal"}}
    for name, size, shift in zip(HOSPITALS, sizes, shifts, strict=True):
        lines = [_patient(draws, shift) for _ in range(size)]
        for line in lines:
            for key in line:
                if key in absent.get(name, ()) or (key != "num" and draws.random() < 0.03):
                    line[key] = ""
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(lines[0]))
            writer.writeheader()
            writer.writerows(lines)


def _patient(draws: np.random.Generator, shift: float) -> dict[str, Any]:
    age, sex, pain = draws.integers(30, 78), draws.integers(2), draws.integers(1, 5)
    rate, peak = draws.integers(90, 200), draws.gamma(1.0, 1.0)
    score = 0.05 * (age - 55) + 0.9 * sex + 0.8 * (pain - 3) - 0.02 * (rate - 145) + 0.7 * (peak - 1) + shift
    return {
        "age": age,
        "sex": sex,
        "cp": pain,
        "trestbps": draws.integers(100, 180),
        "chol": draws.integers(150, 350),
        "fbs": draws.integers(2),
        "restecg": draws.integers(3),
        "thalach": rate,
        "exang": int(draws.random() < 0.2 + 0.1 * pain),
        "oldpeak": round(float(min(peak, 6)), 1),
        "slope": draws.integers(1, 4),
        "ca": draws.integers(4),
        "thal": (3, 6, 7)[draws.integers(3)],
        "num": int(draws.random() < 1 / (1 + np.exp(-score))),
    }


def write_example(folder: Path, real: Path | None = None) -> list[Path]:
    """study.toml, a file for each hospital, held-out.csv and README.md: the five commands of a study work there.

    The hospitals are those of the four CSV files in `real`, or drawn.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CoreshotError(f"{folder}: is there already and not empty; give another folder with --to.")
    folder.mkdir(parents=True, exist_ok=True)
    if real is None:
        look_alike(folder)
    tables = {name: _read((real or folder) / f"{name}.csv") for name in HOSPITALS}
    columns = tables[HOSPITALS[0]][0]
    held_out: list[list[str]] = []
    for name, (own, lines) in tables.items():
        if own != columns:
            raise CoreshotError(f"{real}: {name}.csv has other columns than {HOSPITALS[0]}.csv; mend the files.")
        order = np.random.default_rng(len(lines)).permutation(len(lines))
        cut = len(lines) // HELD_OUT
        held_out += [lines[row] for row in sorted(order[:cut])]
        _write(folder / f"{name}.csv", columns, [lines[row] for row in sorted(order[cut:])])
    _write(folder / "held-out.csv", columns, held_out)
    write_bytes(folder / "study.toml", study_text().encode())
    origin = "The data are drawn, after UCI Heart Disease." if real is None else "The data are yours."
    write_bytes(folder / "README.md", README.format(origin=origin).encode())
    return sorted(folder.iterdir())


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    if not path.is_file():
        raise CoreshotError(f"{path}: there is no such file; a folder of hospitals has {', '.join(HOSPITALS)} as CSV.")
    with path.open(newline="", encoding="utf-8") as file:
        first, *rest = _lines(file, path)
    return first, rest


def _lines(file: Any, path: Path) -> Iterator[list[str]]:
    try:
        lines = [line for line in csv.reader(file) if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise CoreshotError(f"{path}: is no CSV file ({error}); give the file of a hospital.") from None
    if len(lines) <= HELD_OUT:
        raise CoreshotError(f"{path}: has {len(lines)} lines, too few for a hospital; give the file of a hospital.")
    yield from lines


def _write(path: Path, columns: list[str], lines: list[list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *lines])
