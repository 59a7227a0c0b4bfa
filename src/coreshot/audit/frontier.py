"""The frontier of privacy and quality: for each arm of a preset its quality, the success of an attack, and its epsilon.

DIR/run             the preset's run
DIR/audits/NAME/N   an audit of each learner, or method of one round, that an arm uses, with seed N
DIR/frontier.json   one row for each arm
DIR/frontier.png    the rows as a figure, also as .svg; drawn by report/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from coreshot.audit.confidence import CONFIDENCE
from coreshot.audit.findings import Findings
from coreshot.audit.run import run_audit
from coreshot.audit.subject import Subject, make_subject
from coreshot.experiments.preset import Arm, Preset
from coreshot.experiments.run import run
from coreshot.fitted.metrics import Metrics
from coreshot.privacy.promise import promised_epsilon
from coreshot.progress import Progress, Silent
from coreshot.storage import write_json
from coreshot.study import Study

OnAudit = Callable[[Subject, Path, Findings], object]  # called after each audit, for example to draw it


def run_frontier(
    preset: Preset,
    num_trials: int,
    out: Path,
    seeds: Sequence[int] | None = None,
    progress: Progress | None = None,
    on_audit: OnAudit = lambda subject, folder, found: None,
) -> list[dict[str, Any]]:
    """A row for each arm. Runs and audits that the directory holds are not repeated."""
    progress = progress or Silent()
    results = run([preset], out / "run", seeds, progress)
    found: dict[str, list[Findings]] = {}
    for arm in preset.arms:
        if is_audited(preset, arm) and client_part(arm) not in found:
            found[client_part(arm)] = _audits(preset, arm, seeds or preset.seeds, num_trials, out, progress, on_audit)
    rows = [_row(preset, arm, results, found.get(client_part(arm), [])) for arm in preset.arms]
    write_json(out / "frontier.json", rows)
    return rows


def _audits(
    preset: Preset, arm: Arm, seeds: Sequence[int], num_trials: int, out: Path, progress: Progress, on_audit: OnAudit
) -> list[Findings]:
    """An audit for each seed. Their limits hold together with the usual confidence (a Bonferroni correction)."""
    confidence, found = 1 - (1 - CONFIDENCE) / len(seeds), []
    for seed in seeds:
        subject = make_subject(arm_study(preset, arm, seed), preset.task.make(seed))
        folder = out / "audits" / client_part(arm) / str(seed)
        found.append(run_audit(subject, num_trials, folder, seed, preset.resolved["task"], progress, confidence))
        on_audit(subject, folder, found[-1])
    return found


def client_part(arm: Arm) -> str:
    """A name for what a client runs in this arm; a learner and a method may share a name, so it says which."""
    return f"method-{arm.method}" if arm.method else f"learner-{arm.learner}"


def arm_study(preset: Preset, arm: Arm, seed: int) -> Study:
    return preset.method_study(arm.method, seed) if arm.method else preset.study(str(arm.learner), seed)


def is_audited(preset: Preset, arm: Arm) -> bool:
    return arm.method is None or preset.methods[arm.method].num_rounds == 1


def _row(preset: Preset, arm: Arm, results: Sequence[Mapping[str, Any]], audits: Sequence[Findings]) -> dict[str, Any]:
    of_arm = [row for row in results if row["arm"] == arm.label]
    seeds = [row["seed"] for row in of_arm]
    return {
        "task": preset.name,
        "arm": arm.label,
        "seeds": seeds,
        **{
            field.name: [row[field.name] for row in of_arm]
            for field in fields(Metrics)
            if of_arm[0].get(field.name) is not None
        },
        "epsilon": promised_epsilon(preset.arm_releases(arm)),
        **(_success(audits) if audits else {}),
    }


def _success(audits: Sequence[Findings]) -> dict[str, Any]:
    """The numbers of each audit, with their intervals."""
    parts = {
        "record_auc": [found.membership.auc for found in audits],
        "record_found": [found.membership.found_at_one_percent for found in audits],
        "canary_auc": [found.canary.auc for found in audits],
        "canary_found": [found.canary.found_at_one_percent for found in audits],
    }
    return {
        **{name: [[each.value, each.low, each.high] for each in estimates] for name, estimates in parts.items()},
        "least_epsilon": [found.bound.epsilon for found in audits],
        "num_trials": audits[0].num_trials,
    }
