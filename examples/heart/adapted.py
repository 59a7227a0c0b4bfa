"""From the study to models that fit each hospital: python examples/heart/adapted.py [FOLDER] [--splits 20]

Each hospital distills 80 % of its patients into one file, as in run.py. Then it adapts the model of the other hospitals
to its own 80 % (`coreshot adapt`); the other 20 % test it. And each hospital in turn is left out altogether: it has a
model of the other three, and knows of its own patients nothing, the columns without the outcome (`--unlabelled`), or
how many are ill (`--share`). Without a folder it draws hospitals that resemble the real ones.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
import run as heart

from coreshot.api import distill
from coreshot.data.files import read_records
from coreshot.errors import CoreshotError
from coreshot.fitted.adapting import adapt_to_records, adapt_to_shares, adapt_to_unlabelled
from coreshot.fitted.model import Contents, FittedModel, fit_contents, read_messages
from coreshot.study import Study
from coreshot.study.file import read_study


def send(study: Study, data: heart.Split) -> Contents:
    return read_messages(study, [distill(study, x, y, client=name) for name, (x, y) in data.items()])


def without(study: Study, contents: Contents, name: str) -> tuple[FittedModel, Contents]:
    others = {one: content for one, content in contents.items() if one != name}
    return fit_contents(study, others, None, "mass", 0), others


def ask(models: dict[str, FittedModel]) -> heart.Model:
    """Each hospital asks its own model."""
    return lambda name, x: np.asarray(models[name].predict(x).mean)[:, 1]


def adapted(study: Study, data: heart.Split, seeds: range) -> dict[str, Any]:
    rows: dict[str, list[Any]] = {}
    for seed in seeds:
        train, test = heart.split(data, seed)
        contents = send(study, train)
        whole = fit_contents(study, contents, None, "mass", 0)
        locals_ = {name: adapt_to_records(without(study, contents, name)[0], *train[name]).model for name in data}
        models = {
            "each hospital alone, logistic regression": heart.local(train, heart.logistic),
            "pooled, logistic regression": heart.pooled(train, heart.logistic),
            "coreshot, one file a hospital": ask(dict.fromkeys(data, whole)),
            "coreshot, adapted at each hospital": ask(locals_),
        }
        for name, model in models.items():
            rows.setdefault(name, []).append(heart.scores(model, test))
    return {name: heart._means(found) for name, found in rows.items()}


def left_out(study: Study, data: heart.Split) -> tuple[dict[str, Any], list[str]]:
    contents, refused = send(study, data), []
    rows: dict[str, dict[str, FittedModel]] = {}
    for name, (x, y) in data.items():
        model, others = without(study, contents, name)
        rows.setdefault("coreshot, as it is", {})[name] = model
        try:
            unlabelled = adapt_to_unlabelled(model, others, x).model
        except CoreshotError as error:
            refused.append(f"{name}: {error}")
            unlabelled = model
        rows.setdefault("coreshot, --unlabelled", {})[name] = unlabelled
        share = {"present": float(np.clip(np.mean(y), 0.01, 0.99))}
        rows.setdefault("coreshot, --share", {})[name] = adapt_to_shares(model, others, share).model
        rows.setdefault("coreshot, --share and DATA", {})[name] = adapt_to_shares(model, others, share, x).model
    found = {name: heart._with_mean(heart.scores(ask(models), data)) for name, models in rows.items()}
    return found, refused


def main() -> None:
    parser = argparse.ArgumentParser(description="Models that fit each hospital.")
    parser.add_argument("folder", type=Path, nargs="?", help="with the four CSV files")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the numbers here, too")
    options = parser.parse_args()
    began, study = time.process_time(), read_study(heart.STUDY)
    with tempfile.TemporaryDirectory() as drawn:
        folder = options.folder or Path(drawn)
        if options.folder is None:
            heart.look_alike(folder)
        data: heart.Split = {}
        for name in heart.HOSPITALS:
            records = read_records(folder / f"{name}.csv", study.inputs, study.target)  # type: ignore[arg-type]
            data[name] = records.x, records.y
    found = adapted(study, data, range(options.splits))
    new, refused = left_out(study, data)
    what = "real" if options.folder else "drawn"
    print(f"{what} hospitals, {options.splits} splits; accuracy / NLL / AUC on the 20 % that were left out\n")
    print(heart.table(found))
    print("\na model of the other three hospitals, tested on all patients of this one\n")
    print(heart.table(new))
    print("\nrefused:", *refused, sep="\n- ")
    print(f"\n{time.process_time() - began:.0f} s of a processor")
    if options.json:
        values = {"splits": found, "left_out": new, "refused": refused}
        options.json.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
