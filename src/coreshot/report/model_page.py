"""The page of a fitted model: its quality on some records, its calibration, its clients, and its privacy promise."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Shaped

from coreshot.fitted.calibration import INTERVAL, LEVELS, coverage
from coreshot.fitted.folder import ModelFolder
from coreshot.fitted.metrics import NUM_BINS
from coreshot.fitted.model import FittedModel
from coreshot.privacy.promise import promise
from coreshot.report.calibration import draw_coverage, draw_reliability
from coreshot.report.drawing import Drawing, render
from coreshot.report.page import embed_image, render_page
from coreshot.report.tables import METRICS, NO_VALUE, Grid, TableColumn, columns_with_values

RECORDS = TableColumn("records", "records", ",.0f")
COVERAGE = TableColumn("coverage_90", "inside 90 % interval", ".3f")


@dataclass(frozen=True)
class Evaluated:
    """A model's metrics on some records: on all of them, and by client where clients are known."""

    overall: dict[str, Any]  # number of records, and metrics
    clients: dict[str, dict[str, Any]]
    drawing: Drawing


def evaluate_model(
    model: FittedModel,
    x: Float[np.ndarray, "n ..."],
    y: Shaped[np.ndarray, "n ..."],
    clients: Shaped[np.ndarray, " n"] | None,
) -> Evaluated:
    """`clients` has the name of each record's client, where it is known."""
    names = [] if clients is None else sorted(set(clients.tolist()))
    parts = {str(name): _evaluate_part(model, x, y, clients == name) for name in names}
    is_classification = model.study.agreement.kind == "classification"
    drawing = (
        draw_reliability(model.sums(x, y))
        if is_classification
        else draw_coverage(coverage(model.predict(x), y, LEVELS))
    )
    return Evaluated(_evaluate_part(model, x, y, np.ones(len(x), bool)), parts, drawing)


def _evaluate_part(
    model: FittedModel,
    x: Float[np.ndarray, "n ..."],
    y: Shaped[np.ndarray, "n ..."],
    chosen: Bool[np.ndarray, " n"],
) -> dict[str, Any]:
    x, y = x[chosen], y[chosen]
    metrics = {name: value for name, value in asdict(model.evaluate(x, y)).items() if value is not None}
    if model.study.agreement.kind == "regression":
        metrics[COVERAGE.name] = float(coverage(model.predict(x), y, np.asarray([INTERVAL]))[0])
    return {RECORDS.name: len(x), **metrics}


def model_page(folder: ModelFolder, model: FittedModel, found: Evaluated, source: str) -> bytes:
    study = model.study
    return render_page(
        "model.html.j2",
        name=study.agreement.task,
        kind=study.agreement.kind,
        target=study.target.name if study.target else "target",
        source=source,
        num_records=found.overall["records"],
        metrics=_metric_grid(found),
        figure=embed_image(found.drawing, render(found.drawing, "png")),
        clients=_client_grid(folder),
        num_suspects=sum(standing["verdict"] == "suspect" for standing in folder.standings.values()),
        promise=promise(study.releases),
        releases=_release_grid(model),
        num_bins=NUM_BINS,
        study=folder.study_file.text,
        study_hash=study.hash,
        settings=(folder.path / "model.toml").read_text(),
    )


def _metric_grid(found: Evaluated) -> Grid:
    rows = [("everyone", found.overall), *found.clients.items()]
    columns = columns_with_values([found.overall], (RECORDS, *METRICS, COVERAGE))
    lines = [[name, *(column.cell([row]) for column in columns)] for name, row in rows]
    return Grid(["records of", *(column.heading for column in columns)], lines)


def _client_grid(folder: ModelFolder) -> Grid:
    lines = []
    for client, data in folder.coresets().items():
        standing = folder.standings.get(client, {})
        agreement = f"{standing['agreement']:.2f} ± {standing['error']:.2f}" if "agreement" in standing else NO_VALUE
        words, verdict = standing.get("words", NO_VALUE), standing.get("verdict", NO_VALUE)
        lines.append([client, words, verdict, agreement, f"{len(data):,}"])
    headings = ["client", "when it is left out", "beside the others", "agreement", "bytes sent"]
    return Grid(headings, lines, first_number=2)


def _release_grid(model: FittedModel) -> Grid:
    lines = [
        [release.name, release.content, "exact, no noise" if release.is_exact else release.mechanism]
        for release in model.study.releases
    ]
    return Grid(["release", "what it is", "mechanism"], lines, first_number=3)
