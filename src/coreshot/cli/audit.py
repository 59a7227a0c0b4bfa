"""The command that attacks a study's messages: coreshot audit."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from coreshot.cli.options import Overrides
from coreshot.cli.output import Json, console, print_json, say, working
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.audit.confidence import Estimate
    from coreshot.audit.findings import Findings
    from coreshot.audit.run import AuditPlan
    from coreshot.audit.subject import Subject
    from coreshot.experiments.preset import Preset

TRIALS = 660  # with fewer, the share found at 1 % false positives has no lower limit


def audit(
    preset: Annotated[str, typer.Argument(help="Whose task: a name from `coreshot list`, or the path of a TOML file.")],
    learner: Annotated[str | None, typer.Option("--learner", help="Which of its learners.")] = None,
    method: Annotated[
        str | None, typer.Option("--method", help="Or which of its methods, if that has one round.")
    ] = None,
    client: Annotated[str | None, typer.Option("--client", help="Which client; the default is the first.")] = None,
    record: Annotated[
        int | None,
        typer.Option("--record", help="Which of its records, from 0; the default is the first of its smallest class."),
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", help="Distillations with, without, and with a planted record, of each so many.")
    ] = TRIALS,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the task's data and of what learners draw.")] = 0,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where results go; the default is runs/PRESET-audit-NAME.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Time one trial, say what all would cost, and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Attack what a client would send: can one of its records be told from it, and does that fit what is promised?

    An audit that was killed goes on where it stopped, and one with fewer trials is added to. The exit code is 1 where a promise is broken.

    Example: coreshot audit moons_quick --learner class_mean --trials 300
    """
    from coreshot.audit.run import check_trials, plan_audit, run_audit
    from coreshot.experiments.preset import load_preset
    from coreshot.report.audit import write_audit_figure
    from coreshot.runtime.compilation import keep_compiled
    from coreshot.storage import read_json

    check_trials(trials)
    loaded = load_preset(preset, overrides or ())
    subject = _subject(loaded, learner, method, client, record, seed)
    folder = out or Path("runs") / f"{loaded.name}-audit-{learner or method}"
    keep_compiled()
    task = loaded.resolved["task"]
    if plan:
        cost = plan_audit(subject, trials, folder, seed, task)
        if as_json:
            print_json({**asdict(cost), "seconds": cost.seconds})
        else:
            console.print(_plan_table(subject, cost))
        return
    with working(as_json) as progress:
        found = run_audit(subject, trials, folder, seed, task, progress)
    results, picture = folder / "audit.json", write_audit_figure(subject, folder, found)
    if as_json:
        print_json({**read_json(results), "results": str(results), "picture": str(picture)})
    else:
        console.print(_table(found), found.verdict, sep="\n", highlight=False)
        say(f"results: {results}")
        say(f"picture: {picture}")
    if found.is_refuted:
        raise typer.Exit(1)


def _subject(
    preset: Preset, learner: str | None, method: str | None, client: str | None, record: int | None, seed: int
) -> Subject:
    from coreshot.audit.subject import make_subject

    if (learner is None) == (method is None):
        known = f"learners {', '.join(sorted(preset.learners)) or 'none'}; methods {', '.join(sorted(preset.methods)) or 'none'}"
        raise CoreshotError(
            f"audit: name what to audit, by --learner or by --method; preset {preset.name} has {known}."
        )
    study = preset.study(learner, seed) if learner is not None else preset.method_study(str(method), seed)
    return make_subject(study, preset.task.make(seed), client, record)


def _plan_table(subject: Subject, cost: AuditPlan) -> Table:
    table = Table(
        "trials",
        "done",
        "seconds each",
        "side by side",
        "time, about",
        title=escape(f"audit of {subject.client}, record {subject.record}"),
    )
    minutes = f"{cost.seconds / 60:.0f} min" if cost.seconds > 100 else f"{cost.seconds:.0f} s"
    table.add_row(
        f"{cost.num_trials:,}", f"{cost.num_done:,}", f"{cost.seconds_each:.3g}", str(cost.num_threads), minutes
    )
    return table


def _table(found: Findings) -> Table:
    table = Table(
        "question",
        "answer",
        f"{100 * found.confidence:g} % interval",
        title=escape(f"audit of {found.client}, record {found.record}"),
    )
    for name, success in (("record", found.membership), ("canary", found.canary)):
        table.add_row(f"{name}: AUC of the attack (0.5 is guessing)", *_shown(success.auc))
        table.add_row(f"{name}: found, at 1 % false positives", *_shown(success.found_at_one_percent))
    table.add_row(
        f"epsilon at delta {found.bound.delta:.3g}, from the canary", f"at least {found.bound.epsilon:.3g}", ""
    )
    table.add_row(
        "epsilon that is claimed", "none" if found.claimed_epsilon is None else f"{found.claimed_epsilon:.3g}", ""
    )
    if found.distances:
        near, middle = found.distances, found.distances.quantiles.index(0.5)
        table.add_row("median distance of pseudo-points to a record", f"{near.points_to_records[middle]:.3g}", "")
        table.add_row("median distance of records to each other", f"{near.records_to_records[middle]:.3g}", "")
        table.add_row(
            "pseudo-points that are copies, or nearer than 95 % of records are",
            f"{near.num_copies}, {near.num_near} of {near.num_points}",
            "",
        )
    alone = [
        label if distance is None else f"{label} (a pseudo-point at {distance:.3g})"
        for label, distance in found.classes_of_one.items()
    ]
    table.add_row("classes of one record", ", ".join(alone) or "none", "")
    return table


def _shown(estimate: Estimate) -> tuple[str, str]:
    return f"{estimate.value:.3f}", f"{estimate.low:.3f} to {estimate.high:.3f}"
