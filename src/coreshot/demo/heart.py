"""Four hospitals with a table each: study, files, model folder and page, as the commands of data owners make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from coreshot.api import distill
from coreshot.data.files import read_records
from coreshot.demo.hospitals import HOSPITALS, write_example
from coreshot.fitted.folder import by_client, open_model, refit, write_model
from coreshot.fitted.message_facts import message_facts, not_told, told
from coreshot.fitted.model import FittedModel
from coreshot.privacy.promise import promise
from coreshot.progress import Progress
from coreshot.report.columns import draw_columns
from coreshot.report.drawing import Drawing
from coreshot.report.model_page import evaluate_model, model_page
from coreshot.report.tables import Grid
from coreshot.report.units import format_bytes
from coreshot.storage import write_bytes
from coreshot.study import Study
from coreshot.study.file import read_study_file
from coreshot.wire.messages import decode_message

Arrays = tuple[Float[np.ndarray, "n inputs"], Int[np.ndarray, " n"]]
LATE, FORGOTTEN = "va", "switzerland"


@dataclass(frozen=True)
class HeartStory:
    """What the second part of the page tells."""

    is_real: bool
    num_records: int
    num_test: int
    sites: Grid
    largest_file: int
    table_bytes: int  # of the four CSV files
    results: Grid
    accuracy: dict[str, float]
    auc: dict[str, float]
    told: list[str]
    not_told: list[str]
    promise: str
    columns: Drawing
    late: str
    forgotten: str
    is_same: bool
    study: str
    sentence: str


def tell_heart(folder: Path, real: Path | None, progress: Progress) -> HeartStory:
    """In `folder`: the example, a coreset for each hospital, the model, and its page."""
    progress.begin("hospitals: four files, a late one, one forgotten", 3)
    write_example(folder, real)
    file = read_study_file(folder / "study.toml")
    study = file.study
    data = {name: _read(study, folder / f"{name}.csv") for name in HOSPITALS}
    test = _read(study, folder / "held-out.csv")
    messages = {name: distill(study, *arrays, client=name) for name, arrays in data.items()}
    for name, message in messages.items():
        write_bytes(folder / f"{name}.coreset", message)
    progress.advance()
    coresets = by_client({folder / f"{name}.coreset": message for name, message in messages.items()})
    model, is_same = _late_and_forgotten(folder / "model", file, coresets)
    progress.advance()
    found = evaluate_model(model, *test, None)
    write_bytes(folder / "model.html", model_page(open_model(folder / "model"), model, found, "held-out.csv"))
    scores = _scores(model, data, test)
    first = HOSPITALS[0]
    sent = decode_message(messages[first], study_hash=study.hash, releases=study.releases)
    facts = message_facts(study, sent, study.read(first, sent))
    assert facts is not None  # a table, and sums
    progress.end()
    return HeartStory(
        real is not None,
        sum(len(y) for _, y in data.values()),
        len(test[1]),
        _site_grid(data, messages),
        max(map(len, messages.values())),
        sum((folder / f"{name}.csv").stat().st_size for name in HOSPITALS),
        _grid(scores),
        {name: one["accuracy"] for name, one in scores.items()},
        {name: one["auc"] for name, one in scores.items()},
        told(facts),
        not_told(facts),
        promise(study.releases),
        draw_columns(facts, f"the file of {first}"),
        LATE,
        FORGOTTEN,
        is_same,
        file.text,
        found.overall.sentence,
    )


def _read(study: Study, path: Path) -> Arrays:
    assert study.inputs is not None  # a study of a table has both
    assert study.target is not None
    records = read_records(path, study.inputs, study.target)
    return records.x, records.y


def _late_and_forgotten(path: Path, file: Any, coresets: Mapping[str, bytes]) -> tuple[FittedModel, bool]:
    """Three hospitals, then the late one; one is forgotten and comes back. Were the bytes those of a fit without it?"""
    early = {name: data for name, data in coresets.items() if name != LATE}
    others = {name: data for name, data in coresets.items() if name != FORGOTTEN}
    write_model(path, file, early, None, "mass", 0)
    refit(open_model(path), coresets)
    refit(open_model(path), others)
    forgotten = _posterior(path)
    never = path.with_name("never")
    write_model(never, file, others, None, "mass", 0)
    is_same = _posterior(never) == forgotten
    model = refit(open_model(path), coresets)
    return model, is_same


def _posterior(path: Path) -> bytes:
    [file] = path.glob("posterior-*.safetensors")
    return file.read_bytes()


def _scores(model: FittedModel, data: Mapping[str, Arrays], test: Arrays) -> dict[str, dict[str, float]]:
    from sklearn.linear_model import LogisticRegression

    def logistic(x: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        fitted = LogisticRegression(max_iter=1000).fit(x, y)
        return lambda inputs: fitted.predict_proba(inputs)[:, 1]

    x, y = test
    pooled = [np.concatenate([np.asarray(arrays[part]) for arrays in data.values()]) for part in range(2)]
    alone = [_score(logistic(*arrays)(x), y) for arrays in data.values()]
    mean = {key: float(np.mean([one[key] for one in alone])) for key in alone[0]}
    return {
        "coreshot, one file a hospital": _score(np.asarray(model.predict(x).mean)[:, 1], y),
        "all patients in one place, logistic regression": _score(logistic(*pooled)(x), y),
        "each hospital alone, mean of four": mean,
    }


def _score(p: Float[np.ndarray, " n"], y: Int[np.ndarray, " n"]) -> dict[str, float]:
    from sklearn.metrics import log_loss, roc_auc_score

    p = np.clip(p, 1e-6, 1 - 1e-6)
    return {
        "accuracy": float(np.mean((p > 0.5) == y)),
        "auc": float(roc_auc_score(y, p)),
        "nll": float(log_loss(y, p, labels=[0, 1])),
    }


def _grid(scores: Mapping[str, Mapping[str, float]]) -> Grid:
    lines = [[name, *(f"{one[key]:.3f}" for key in ("accuracy", "auc", "nll"))] for name, one in scores.items()]
    return Grid(["who", "accuracy", "AUC", "NLL"], lines)


def _site_grid(data: Mapping[str, Arrays], messages: Mapping[str, bytes]) -> Grid:
    lines = [
        [name, f"{len(y):,}", f"{100 * np.mean(y):.0f} %", format_bytes(len(messages[name]))]
        for name, (_, y) in data.items()
    ]
    return Grid(["hospital", "patients", "ill", "its file"], lines)
