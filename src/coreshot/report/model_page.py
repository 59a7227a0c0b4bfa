"""The page of a fitted model: its quality on some records, its calibration, its clients, and its privacy promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped

from coreshot.data.schema import Classes, Quantity
from coreshot.fitted.between_clients import ClientDifference, between_clients
from coreshot.fitted.calibration import LEVELS, coverage
from coreshot.fitted.class_quality import class_quality
from coreshot.fitted.folder import ModelFolder
from coreshot.fitted.metrics import NUM_BINS, class_sums
from coreshot.fitted.model import FittedModel, read_messages
from coreshot.fitted.quality import THRESHOLD, Answers, Quality, ask
from coreshot.fitted.quantity_quality import quantity_quality
from coreshot.fitted.survival import People, curves, is_survival, survival_quality
from coreshot.privacy.promise import promise
from coreshot.report.between_clients import HERE, draw_between
from coreshot.report.calibration import draw_coverage, draw_reliability
from coreshot.report.drawing import Drawing
from coreshot.report.page import embed_drawing, render_page
from coreshot.report.quality_tables import calibration_grid, clients_grid, confusion_grid, measures_grid
from coreshot.report.survival import draw_survival
from coreshot.report.tables import NO_VALUE, Grid
from coreshot.study import Study

UNIT = (-1.0, 1.0)  # the range of a target without units


@dataclass(frozen=True)
class Evaluated:
    """A model's quality on some records: on all of them, and by client where clients are known."""

    overall: Quality
    clients: dict[str, Quality]
    drawing: Drawing
    here: ClientDifference | None = None  # what was seen in these records, and expected


def evaluate_model(
    model: FittedModel,
    x: Float[np.ndarray, "n ..."],
    y: Shaped[np.ndarray, "n ..."],
    clients: Shaped[np.ndarray, " n"] | None,
    *,
    positive: str | None = None,
    threshold: float = THRESHOLD,
    owner: Int[np.ndarray, " n"] | None = None,
) -> Evaluated:
    """`clients` has the name of each record's client, where it is known; `owner`, of a time to an event, the person."""
    if is_survival(model.study) and owner is not None:
        return _evaluate_survival(model, x, y, clients, owner)
    answers = ask(model, x, y)
    names = [] if clients is None else sorted(set(clients.tolist()))
    parts = {str(name): _quality(model.study, answers.select(clients == name), positive, threshold) for name in names}
    overall = _quality(model.study, answers, positive, threshold)
    return Evaluated(overall, parts, _draw(model.study, answers), _here(model.study, answers))


def _here(study: Study, answers: Answers) -> ClientDifference:
    seen, expected = float(np.mean(answers.y[:, -1])), float(np.mean(answers.mean[:, -1]))
    if isinstance(study.target, Quantity):
        seen, expected = study.target.in_units(np.asarray([[seen], [expected]]))[:, 0].tolist()
    return ClientDifference(HERE, len(answers.y), seen, expected)


def _evaluate_survival(
    model: FittedModel,
    x: Float[np.ndarray, "n inputs"],
    y: Int[np.ndarray, " n"],
    clients: Shaped[np.ndarray, " n"] | None,
    owner: Int[np.ndarray, " n"],
) -> Evaluated:
    target = model.study.target
    assert isinstance(target, Classes)
    people = People.of_records(x, y, owner, len(target.ends))
    survival = curves(model, people.x)
    where = np.unique(owner, return_index=True)[1]
    of_person = np.full(len(where), "") if clients is None else clients[where]
    names = [] if clients is None else sorted(set(of_person.tolist()))
    parts = {
        str(name): survival_quality(people.select(of_person == name), survival[of_person == name], target)
        for name in names
    }
    overall = survival_quality(people, survival, target)
    return Evaluated(overall, parts, draw_survival(people, survival, target))


def _quality(study: Study, answers: Answers, positive: str | None, threshold: float) -> Quality:
    target = study.target
    if study.agreement.kind == "regression":
        return quantity_quality(
            answers, target if isinstance(target, Quantity) else Quantity(name="target", range=UNIT)
        )
    return class_quality(answers, _class_names(study), positive, threshold)


def _class_names(study: Study) -> tuple[str, ...]:
    """A study of arrays has no names: its classes are numbers."""
    if study.target is None or isinstance(study.target, Quantity):
        return tuple(map(str, range(study.agreement.num_outputs)))
    return study.target.classes


def _draw(study: Study, answers: Answers) -> Drawing:
    if study.agreement.kind == "classification":
        return draw_reliability(class_sums(answers.mean, answers.y, float(np.sum(answers.log_prob))))
    return draw_coverage(coverage(answers.mean, answers.deviation, answers.y, LEVELS))


def model_page(folder: ModelFolder, model: FittedModel, found: Evaluated, source: str) -> bytes:
    study = model.study
    return render_page(
        "model.html.j2",
        name=study.agreement.task,
        kind=study.agreement.kind,
        target=study.target.name if study.target else "target",
        source=source,
        quality=found.overall,
        metrics=measures_grid(found.overall),
        confusion=confusion_grid(found.overall),
        calibration=calibration_grid(found.overall),
        by_client=clients_grid(found.clients),
        figure=embed_drawing(found.drawing),
        clients=_client_grid(folder),
        between=_draw_between(folder, model, found),
        num_suspects=sum(standing["verdict"] == "suspect" for standing in folder.standings.values()),
        promise=promise(study.releases),
        releases=_release_grid(model),
        num_bins=NUM_BINS,
        study=folder.study_file.text,
        study_hash=study.hash,
        settings=(folder.path / "model.toml").read_text(),
    )


def _draw_between(folder: ModelFolder, model: FittedModel, found: Evaluated) -> dict[str, Any] | None:
    """None where the clients' messages do not say how they differ, and of a model that was adapted to a place."""
    if folder.local is not None:
        return None
    clients = between_clients(model, read_messages(model.study, folder.coresets().values()))
    return embed_drawing(draw_between(clients, model.study, found.here)) if clients else None


def _client_grid(folder: ModelFolder) -> Grid:
    lines = []
    sizes = {} if folder.local is not None else {name: f"{len(data):,}" for name, data in folder.coresets().items()}
    for client in folder.clients:
        standing = folder.standings.get(client, {})
        agreement = f"{standing['agreement']:.2f} ± {standing['error']:.2f}" if "agreement" in standing else NO_VALUE
        words, verdict = standing.get("words", NO_VALUE), standing.get("verdict", NO_VALUE)
        lines.append([client, words, verdict, agreement, sizes.get(client, NO_VALUE)])
    headings = ["client", "when it is left out", "beside the others", "agreement", "bytes sent"]
    return Grid(headings, lines, first_number=2)


def _release_grid(model: FittedModel) -> Grid:
    lines = [
        [release.name, release.content, "exact, no noise" if release.is_exact else release.mechanism]
        for release in model.study.releases
    ]
    return Grid(["release", "what it is", "mechanism"], lines, first_number=3)
