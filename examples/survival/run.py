"""Time to an event in six regions, one file each: python examples/survival/run.py [FOLDER] [--json FILE]

FOLDER has brca.csv, centers.csv and train_test_split.csv of FLamby's Fed-TCGA-BRCA (in its repository, under
flamby/datasets/fed_tcga_brca; look at its terms of use). Without it, six regions are drawn: nobody's patients, with
proportional hazards and the sizes of these. Each region distills its training patients into one file; the test
patients of all regions judge the model of the six files, each region's own model, the model adapted at each region, and
the Cox regression of all patients pooled if the package lifelines is there.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

from coreshot.api import distill
from coreshot.data.files import EncodedRecords, read_records
from coreshot.fitted.adapting import adapt_to_records
from coreshot.fitted.model import FittedModel, fit
from coreshot.fitted.survival import People, curves, survival_quality
from coreshot.study.file import read_study

STUDY = Path(__file__).resolve().parent / "study.toml"
REGIONS = ("northeast", "south", "west", "midwest", "europe", "canada")
SIZES = ((248, 63), (156, 40), (164, 42), (129, 33), (129, 33), (40, 11))
Rows = list[dict[str, Any]]


def from_flamby(folder: Path) -> dict[str, tuple[Rows, Rows]]:
    """Its 39 inputs are indicators; here they are the columns that these stand for."""
    with (folder / "train_test_split.csv").open(newline="") as file:
        places = {row["pid"]: row["fold2"] for row in csv.DictReader(file)}
    found: dict[str, tuple[Rows, Rows]] = {name: ([], []) for name in REGIONS}
    with (folder / "brca.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["pid"] in places:
                part, region = places[row["pid"]].split("_")
                found[REGIONS[int(region)]][part == "test"].append(_columns(row))
    return found


def _columns(row: dict[str, str]) -> dict[str, Any]:
    def first(names: dict[str, str]) -> str:
        return next((value for name, value in names.items() if float(row[name])), "other")

    stages = {"Stage IA": "I", "Stage IIA": "IIA", "Stage IIB": "IIB", "Stage IIIA": "III", "Stage IIIC": "III"}
    stages = {f"ajcc_pathologic_stage_{key}": value for key, value in stages.items()}
    return {
        "age": float(row["age_at_index"]),
        "stage": first({**stages, "tumor_stage_stage i": "I"}),
        "size": first({f"ajcc_pathologic_t_{key}": key[:2] for key in ("T1c", "T2", "T3")}),
        "nodes": first({f"ajcc_pathologic_n_{key}": key[:2] for key in ("N0 (i-)", "N1", "N1a", "N2", "N2a")}),
        "type": first({"morphology_8500/3": "ductal", "morphology_8520/3": "lobular"}),
        "earlier_cancer": "yes" if float(row["prior_malignancy_yes"]) else "no",
        "therapy_known": "no" if float(row["treatment_or_therapy_not reported"]) else "yes",
        "days": float(row["T"]),
        "died": "yes" if float(row["E"]) else "no",
    }


def drawn(seed: int = 0) -> dict[str, tuple[Rows, Rows]]:
    """Weibull times; ill and old patients die earlier, and regions differ."""
    draws = np.random.default_rng(seed)
    shifts = 0.3 * draws.normal(size=len(REGIONS))
    return {
        name: tuple([_patient(draws, shift) for _ in range(size)] for size in sizes)  # type: ignore[misc]
        for name, sizes, shift in zip(REGIONS, SIZES, shifts, strict=True)
    }


def _patient(draws: np.random.Generator, shift: float) -> dict[str, Any]:
    age, stage = float(np.clip(draws.normal(58, 13), 26, 90)), int(draws.choice(4, p=[0.17, 0.33, 0.25, 0.25]))
    nodes = int(draws.choice(3, p=[0.5, 0.35, 0.15]))
    risk = 0.035 * (age - 58) + 0.5 * (stage - 1) + 0.3 * nodes + shift
    death = 4_500 * (-np.log(draws.uniform()) / np.exp(risk)) ** (1 / 1.3)
    seen = draws.exponential(1_300)
    return {
        "age": round(age),
        "stage": ("I", "IIA", "IIB", "III")[stage],
        "size": ("T1", "T2", "T3")[min(stage, int(draws.integers(3)))],
        "nodes": ("N0", "N1", "N2")[nodes],
        "type": "lobular" if draws.random() < 0.18 else "ductal",
        "earlier_cancer": "yes" if draws.random() < 0.06 else "no",
        "therapy_known": "yes" if draws.random() < 0.8 else "no",
        "days": round(float(min(death, seen))),
        "died": "yes" if death < seen else "no",
    }


def read(rows: Rows, folder: Path) -> EncodedRecords:
    study, path = read_study(STUDY), folder / "region.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return read_records(path, study.inputs, study.target)  # type: ignore[arg-type]


def score(parts: list[tuple[FittedModel, EncodedRecords]]) -> dict[str, float]:
    """Of all people of all regions; each region asks its own model."""
    target = parts[0][0].study.target
    found = []
    for model, one in parts:
        people = People.of_records(one.x, one.y, one.owner, len(target.ends))  # type: ignore[union-attr]
        found.append((people, curves(model, people.x)))
    whole = People(
        *(np.concatenate([getattr(people, name) for people, _ in found]) for name in ("x", "periods", "events")),
        num_periods=found[0][0].num_periods,
    )
    quality = survival_quality(whole, np.concatenate([survival for _, survival in found]), target)  # type: ignore[arg-type]
    return {
        **{one.name: one.value for one in quality.measures},
        **{f"{one.name}, constant": one.baseline for one in quality.measures if one.baseline is not None},
    }


def cox(data: dict[str, tuple[Rows, Rows]]) -> dict[str, float] | None:
    """Pooled, on the same columns; a small ridge, because some columns are nearly the same."""
    try:
        import lifelines
        import pandas
    except ImportError:
        return None
    train, test = (
        pandas.get_dummies(
            pandas.DataFrame([row for parts in data.values() for row in parts[place]]).assign(
                died=lambda table: (table["died"] == "yes").astype(float)
            ),
            dtype=float,
        )
        for place in (0, 1)
    )
    fitted = lifelines.CoxPHFitter(penalizer=0.1).fit(train, "days", "died")
    risk = fitted.predict_partial_hazard(test.reindex(columns=train.columns, fill_value=0.0))
    return {"concordance": lifelines.utils.concordance_index(test["days"], -risk, test["died"])}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time to an event in six regions.")
    parser.add_argument("folder", type=Path, nargs="?", help="of FLamby's Fed-TCGA-BRCA")
    parser.add_argument("--json", type=Path, help="write the numbers here, too")
    options = parser.parse_args()
    data, study = from_flamby(options.folder) if options.folder else drawn(), read_study(STUDY)
    with tempfile.TemporaryDirectory() as folder:
        train = {name: read(parts[0], Path(folder)) for name, parts in data.items()}
        test = {name: read(parts[1], Path(folder)) for name, parts in data.items()}
    files = {name: distill(study, one.x, one.y, client=name) for name, one in train.items()}
    model = fit(study, files.values())
    own = {name: fit(study, [file]) for name, file in files.items()}
    adapted = {}
    for name, one in train.items():
        others = fit(study, [file for key, file in files.items() if key != name])
        adapted[name] = adapt_to_records(others, one.x, one.y).model
    rows: dict[str, Any] = {
        "one file a region": score([(model, one) for one in test.values()]),
        "adapted at each region": score([(adapted[name], one) for name, one in test.items()]),
        "each region alone": score([(own[name], one) for name, one in test.items()]),
    }
    pooled = cox(data)
    if pooled:
        rows["Cox regression of all patients pooled"] = pooled
    rows["largest file"] = {"bytes": max(map(len, files.values()))}
    print(f"{'FLamby' if options.folder else 'drawn'}: {sum(len(parts[1]) for parts in data.values())} test patients")
    for name, values in rows.items():
        print(f"{name}: " + ", ".join(f"{key} {value:.4g}" for key, value in values.items()))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
