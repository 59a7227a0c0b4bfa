"""`coreshot audit`: attack the message of a client, and compare what the attack finds with the guarantee."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coreshot.cli.options import Overrides, PresetName
from coreshot.cli.output import Json, make_table, print_result, working
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from rich.table import Table

    from coreshot.audit.confidence import Estimate
    from coreshot.audit.findings import Findings
    from coreshot.audit.run import AuditPlan
    from coreshot.audit.subject import Subject
    from coreshot.experiments.preset import Preset

TRIALS = 660  # with fewer trials the share found at 1 % false positives has no lower confidence limit


def audit(
    preset: PresetName,
    learner: Annotated[str | None, typer.Option("--learner", help="The preset's learner that is attacked.")] = None,
    method: Annotated[
        str | None, typer.Option("--method", help="Or the preset's method; it must have one round.")
    ] = None,
    client: Annotated[
        str | None, typer.Option("--client", help="The client that is attacked; the default is the first.")
    ] = None,
    record: Annotated[
        int | None,
        typer.Option(
            "--record", help="The number of its record, from 0; the default is the first of its smallest class."
        ),
    ] = None,
    trials: Annotated[
        int,
        typer.Option(
            "--trials", help="How often to distill with the record, without it, and with a planted record, each."
        ),
    ] = TRIALS,
    seed: Annotated[int, typer.Option("--seed", "--seeds", min=0, help="The seed of the data and of the learner.")] = 0,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder for results; the default is runs/PRESET-audit-NAME.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Measure one trial, print what all trials would cost, and stop.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Attack what a client would send: does the message show whether a record was used, and does epsilon hold?

    An audit that was killed continues where it stopped, and more trials can be added to one that is finished. The exit
    code is 1 if the attack refutes the guarantee.

    Example: coreshot audit moons_quick --learner class_mean --trials 300
    """
    from coreshot.audit.run import check_trials, plan_audit, run_audit
    from coreshot.experiments.preset import load_preset
    from coreshot.runtime.compilation import keep_compiled

    check_trials(trials)
    loaded = load_preset(preset, overrides or ())
    subject = _subject(loaded, learner, method, client, record, seed)
    folder = out or Path("runs") / f"{loaded.name}-audit-{learner or method}"
    keep_compiled()
    task = loaded.resolved["task"]
    if plan:
        cost = plan_audit(subject, trials, folder, seed, task)
        print_result({**asdict(cost), "seconds": cost.seconds}, as_json, [_plan_table(subject, cost)])
        return
    with working(as_json) as progress:
        found = run_audit(subject, trials, folder, seed, task, progress)
    _print_findings(subject, folder, found, as_json)
    if found.is_refuted:
        raise typer.Exit(1)


def _print_findings(subject: Subject, folder: Path, found: Findings, as_json: bool) -> None:
    from coreshot.report.audit import write_audit_figure
    from coreshot.storage import read_json

    files = {"results": str(folder / "audit.json"), "picture": str(write_audit_figure(subject, folder, found))}
    lines = (f"{name}: {path}" for name, path in files.items())
    print_result(
        {**read_json(folder / "audit.json"), **files}, as_json, [_findings_table(found), found.verdict, *lines]
    )


def _subject(
    preset: Preset, learner: str | None, method: str | None, client: str | None, record: int | None, seed: int
) -> Subject:
    from coreshot.audit.subject import make_subject

    if (learner is None) == (method is None):
        learners, methods = (", ".join(sorted(names)) or "none" for names in (preset.learners, preset.methods))
        raise CoreshotError(
            "audit: name what to audit, by --learner or by --method; "
            f"preset {preset.name} has learners {learners}; methods {methods}."
        )
    study = preset.study(learner, seed) if learner is not None else preset.method_study(str(method), seed)
    return make_subject(study, preset.task.make(seed), client, record)


def _plan_table(subject: Subject, cost: AuditPlan) -> Table:
    minutes = f"{cost.seconds / 60:.0f} min" if cost.seconds > 100 else f"{cost.seconds:.0f} s"
    return make_table(
        ("trials", "done", "seconds each", "in parallel", "time, about"),
        [(f"{cost.num_trials:,}", f"{cost.num_done:,}", f"{cost.seconds_each:.3g}", str(cost.num_threads), minutes)],
        title=f"audit of {subject.client}, record {subject.record}",
    )


def _findings_table(found: Findings) -> Table:
    return make_table(
        ("question", "answer", f"{100 * found.confidence:g} % interval"),
        _findings(found),
        title=f"audit of {found.client}, record {found.record}",
    )


def _findings(found: Findings) -> Iterator[tuple[str, str, str]]:
    """Question, answer and confidence interval of each finding."""
    for name, success in (("record", found.membership), ("canary", found.canary)):
        yield f"{name}: AUC of the attack (0.5 is guessing)", *_with_interval(success.auc)
        yield f"{name}: found, at 1 % false positives", *_with_interval(success.found_at_one_percent)
    yield f"epsilon at delta {found.bound.delta:.3g}, from the canary", f"at least {found.bound.epsilon:.3g}", ""
    claimed = "none" if found.claimed_epsilon is None else f"{found.claimed_epsilon:.3g}"
    yield "epsilon that is claimed", claimed, ""
    if found.distances:
        near, middle = found.distances, found.distances.quantiles.index(0.5)
        yield "median distance of pseudo-points to a record", f"{near.points_to_records[middle]:.3g}", ""
        yield "median distance of records to each other", f"{near.records_to_records[middle]:.3g}", ""
        copies = f"{near.num_copies}, {near.num_near} of {near.num_points}"
        yield "pseudo-points that are copies, or nearer than 95 % of records are", copies, ""
    alone = [
        label if distance is None else f"{label} (a pseudo-point at {distance:.3g})"
        for label, distance in found.classes_of_one.items()
    ]
    yield "classes of one record", ", ".join(alone) or "none", ""


def _with_interval(estimate: Estimate) -> tuple[str, str]:
    return f"{estimate.value:.3f}", f"{estimate.low:.3f} to {estimate.high:.3f}"
