"""A model as one HTML page: how good it is on some records, whether it means what it says, who is in it, and what is promised about their records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from coreshot.fitted.calibration import INTERVAL, LEVELS, coverage
from coreshot.fitted.folder import ModelFolder
from coreshot.fitted.metrics import NUM_BINS
from coreshot.fitted.model import FittedModel
from coreshot.privacy.promise import promise
from coreshot.report.calibration import draw_coverage, draw_reliability
from coreshot.report.drawing import Drawing, render
from coreshot.report.page import Grid, render_page, shown_image
from coreshot.report.tables import METRICS, NOTHING, Column

COVERAGE = Column("coverage_90", "inside 90 % interval", ".3f")


@dataclass(frozen=True)
class Evaluated:
    """What a model made of some records, all together and by client where that is known."""

    overall: dict[str, Any]  # number of records, and metrics
    clients: dict[str, dict[str, Any]]
    drawing: Drawing


def evaluate_model(model: FittedModel, x: np.ndarray, y: np.ndarray, clients: np.ndarray | None) -> Evaluated:
    everyone = np.ones(len(x), bool)
    parts = {} if clients is None else {str(name): clients == name for name in sorted(set(clients.tolist()))}
    rows = [
        {"records": int(chosen.sum()), **_metrics(model, x[chosen], y[chosen])}
        for chosen in (everyone, *parts.values())
    ]
    is_classification = model.study.agreement.kind == "classification"
    drawing = (
        draw_reliability(model.sums(x, y))
        if is_classification
        else draw_coverage(coverage(model.predict(x), y, LEVELS))
    )
    return Evaluated(rows[0], dict(zip(parts, rows[1:], strict=True)), drawing)


def _metrics(model: FittedModel, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    found = {name: value for name, value in asdict(model.evaluate(x, y)).items() if value is not None}
    if model.study.agreement.kind == "regression":
        found[COVERAGE.name] = float(coverage(model.predict(x), y, np.asarray([INTERVAL]))[0])
    return found


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
        figure=shown_image(found.drawing, render(found.drawing, "png")),
        clients=_client_grid(folder),
        num_suspects=sum(standing["verdict"] == "suspect" for standing in folder.standings.values()),
        promise=promise(study.releases),
        releases=Grid(
            ["release", "what it is", "mechanism"],
            [
                [release.name, release.content, "exact, no noise" if release.is_exact else release.mechanism]
                for release in study.releases
            ],
            first_number=3,
        ),
        num_bins=NUM_BINS,
        study=folder.study_file.text,
        study_hash=study.hash,
        settings=(folder.path / "model.toml").read_text(),
    )


def _metric_grid(found: Evaluated) -> Grid:
    columns = [column for column in (*METRICS, COVERAGE) if column.name in found.overall]
    lines = [
        [name, f"{row['records']:,}", *(format(row[column.name], column.format) for column in columns)]
        for name, row in [("everyone", found.overall), *found.clients.items()]
    ]
    return Grid(["records of", "records", *(column.heading for column in columns)], lines)


def _client_grid(folder: ModelFolder) -> Grid:
    lines = []
    for client, data in folder.coresets().items():
        standing = folder.standings.get(client, {})
        agreement = f"{standing['agreement']:.2f} ± {standing['error']:.2f}" if "agreement" in standing else NOTHING
        lines.append(
            [client, standing.get("words", NOTHING), standing.get("verdict", NOTHING), agreement, f"{len(data):,}"]
        )
    return Grid(
        ["client", "when it is left out", "beside the others", "agreement", "bytes sent"], lines, first_number=2
    )
