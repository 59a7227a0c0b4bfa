"""Four hospitals, one file each, one model: python examples/heart/run.py [FOLDER WITH cleveland.csv, hungarian.csv,
switzerland.csv, va.csv]

Each hospital distills what a random 80 % of its patients say into one file; the coordinator fits a model to the four
files; the other 20 % test
it, over several splits. Then each hospital in turn is left out altogether. Beside it stand what each hospital can do
alone, FedAvg, and the
patients pooled.
Without a folder it draws four hospitals that look like these (columns, missing cells and base rates alike; nobody's
patients).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.neural_network import MLPClassifier

from coreshot.api import distill
from coreshot.config import decode_named
from coreshot.data.files import read_records
from coreshot.demo.hospitals import HOSPITALS, look_alike
from coreshot.fitted.model import fit
from coreshot.methods import METHODS
from coreshot.models.networks import Mlp
from coreshot.runtime.simulate import simulate
from coreshot.study import Agreement, Study
from coreshot.study.file import read_study
from coreshot.types import make_points
from coreshot.wire.ledger import Ledger

STUDY = Path(str(files("coreshot"))) / "examples" / "heart" / "study.toml"
Split = dict[str, tuple[np.ndarray, np.ndarray]]
Model = Callable[[str, np.ndarray], np.ndarray]  # hospital and inputs -> probability of disease
FED_AVG = {
    "name": "fed_avg",
    "num_rounds": 100,
    "local_steps": 5,
    "batch_size": 32,
    "client_optimizer": {"name": "sgd", "step_size": 0.1},
    "server_optimizer": {"name": "sgd", "step_size": 1.0},
}


def split(data: Split, seed: int) -> tuple[Split, Split]:
    """80 % and 20 % of each hospital."""
    draws = np.random.default_rng(seed)
    train, test = {}, {}
    for name, (x, y) in data.items():
        order = draws.permutation(len(y))
        cut = len(y) // 5
        test[name], train[name] = (x[order[:cut]], y[order[:cut]]), (x[order[cut:]], y[order[cut:]])
    return train, test


def one_shot(study: Study, train: Split) -> tuple[Model, int]:
    files = [distill(study, x, y, client=name) for name, (x, y) in train.items()]
    model = fit(study, files)
    return lambda name, x: np.asarray(model.predict(x).mean)[:, 1], max(map(len, files))


def pooled(train: Split, make: Callable[[], Any]) -> Model:
    x, y = (np.concatenate(parts) for parts in zip(*train.values(), strict=True))
    model = make().fit(x, y)
    return lambda name, x: model.predict_proba(x)[:, 1]


def local(train: Split, make: Callable[[], Any]) -> Model:
    models = {name: make().fit(x, y) for name, (x, y) in train.items()}
    return lambda name, x: models[name].predict_proba(x)[:, 1]


def fed_avg(study: Study, train: Split) -> Model:
    """Of a logistic regression, 100 rounds with all hospitals."""
    terms = study.agreement
    agreement = Agreement(
        task="heart", kind="classification", input_shape=terms.input_shape, num_outputs=2, prior_precision=0.0
    )
    rounds = Study(
        agreement, Mlp(hidden=(), activation="relu"), method=decode_named(METHODS, FED_AVG, "example", "method")
    )
    clients = {name: make_points(x, np.eye(2)[y]) for name, (x, y) in train.items()}
    state = simulate(jax.random.key(0), rounds, clients, Ledger())
    return lambda name, x: np.asarray(jax.nn.softmax(rounds.model.apply(state.params, x)))[:, 1]


def logistic() -> Any:
    return LogisticRegression(max_iter=1000)


def network() -> Any:
    return MLPClassifier((16,), alpha=1.0, max_iter=1000, random_state=0)


def scores(model: Model, test: Split) -> dict[str, dict[str, float]]:
    found = {}
    for name, (x, y) in test.items():
        p = np.clip(model(name, x), 1e-6, 1 - 1e-6)
        auc = float(roc_auc_score(y, p)) if 0 < y.mean() < 1 else float("nan")
        found[name] = {
            "accuracy": float(np.mean((p > 0.5) == y)),
            "nll": float(log_loss(y, p, labels=[0, 1])),
            "auc": auc,
        }
    return found


def compare(study: Study, data: Split, seeds: range) -> tuple[dict[str, Any], int]:
    """By model and hospital, means over splits; and the largest file."""
    rows: dict[str, list[dict[str, dict[str, float]]]] = {}
    largest = 0
    for seed in seeds:
        train, test = split(data, seed)
        model, size = one_shot(study, train)
        largest = max(largest, size)
        models = {
            "coreshot, one file a hospital": model,
            "each hospital alone, logistic regression": local(train, logistic),
            "each hospital alone, MLP": local(train, network),
            "FedAvg, logistic regression": fed_avg(study, train),
            "pooled, logistic regression": pooled(train, logistic),
            "pooled, MLP": pooled(train, network),
        }
        for name, one in models.items():
            rows.setdefault(name, []).append(scores(one, test))
    return {name: _means(found) for name, found in rows.items()}, largest


def without_one(study: Study, data: Split) -> dict[str, Any]:
    """Trained on three hospitals, tested on all patients of the fourth."""
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for left in data:
        train, test = {name: part for name, part in data.items() if name != left}, {left: data[left]}
        models = {
            "coreshot, one file a hospital": one_shot(study, train)[0],
            "FedAvg, logistic regression": fed_avg(study, train),
            "pooled, logistic regression": pooled(train, logistic),
            "pooled, MLP": pooled(train, network),
        }
        for name, one in models.items():
            rows.setdefault(name, {}).update(scores(one, test))
    return {name: _with_mean(found) for name, found in rows.items()}


def _means(found: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    return _with_mean(
        {
            name: {key: float(np.nanmean([one[name][key] for one in found])) for key in found[0][name]}
            for name in found[0]
        }
    )


def _with_mean(found: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {
        **found,
        "mean": {key: float(np.nanmean([one[key] for one in found.values()])) for key in next(iter(found.values()))},
    }


def table(found: dict[str, Any]) -> str:
    places = list(next(iter(found.values())))
    lines = ["| | " + " | ".join(places) + " |", "|---" + "|---:" * len(places) + "|"]
    for name, row in found.items():
        cells = (" / ".join(f"{row[place][key]:.3f}" for key in ("accuracy", "nll", "auc")) for place in places)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Four hospitals, one file each, one model.")
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        help="with the four CSV files; without it, hospitals that look like them are drawn",
    )
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the numbers here, too")
    options = parser.parse_args()
    began, study = time.perf_counter(), read_study(STUDY)
    with tempfile.TemporaryDirectory() as drawn:
        folder = options.folder or Path(drawn)
        if options.folder is None:
            look_alike(folder)
        data: Split = {}
        for name in HOSPITALS:
            records = read_records(folder / f"{name}.csv", study.inputs, study.target)  # type: ignore[arg-type]
            data[name] = records.x, records.y
    found, largest = compare(study, data, range(options.splits))
    left_out = without_one(study, data)
    print(
        f"{'real' if options.folder else 'drawn'} hospitals, {options.splits} splits; "
        "accuracy / NLL / AUC on the 20 % that were left out\n"
    )
    print(table(found))
    print("\ntrained on three hospitals, tested on the fourth\n")
    print(table(left_out))
    print(f"\nlargest file: {largest:,} bytes; {time.perf_counter() - began:.0f} s")
    if options.json:
        options.json.write_text(
            json.dumps({"splits": found, "left_out": left_out, "largest_file": largest}, indent=1) + "\n"
        )


if __name__ == "__main__":
    sys.exit(main())
