"""What privacy costs and what going without it risks, of every arm of a preset: its quality beside the attack's success and its epsilon.

DIR/run             the preset's run
DIR/audits/NAME/N   an audit for each learner, or method of one round, that an arm uses, with seed N: another client's records, another canary
DIR/frontier.json   a row for each arm
DIR/frontier.png    the same as a picture, and .svg; drawn by report/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from coreshot.audit.confidence import CONFIDENCE
from coreshot.audit.findings import Findings
from coreshot.audit.run import audit
from coreshot.audit.subject import Subject, subject_of
from coreshot.experiments.preset import Arm, Preset
from coreshot.experiments.run import run
from coreshot.fitted.metrics import Metrics
from coreshot.privacy.promise import promised_epsilon
from coreshot.progress import Progress, Silent
from coreshot.storage import write_json
from coreshot.study import Study

OnAudit = Callable[[Subject, Path, Findings], object]  # told after each audit, for example to draw it


def frontier(
    preset: Preset,
    num_trials: int,
    out: Path,
    seeds: Sequence[int] | None = None,
    progress: Progress | None = None,
    on_audit: OnAudit = lambda subject, folder, found: None,
) -> list[dict[str, Any]]:
    """A row for each arm that sends one message or keeps a promise; what the directory holds is not done again."""
    progress = progress or Silent()
    results = run([preset], out / "run", seeds, progress)
    found: dict[str, list[Findings]] = {}
    for arm in preset.arms:
        if is_audited(preset, arm) and name_of(arm) not in found:
            found[name_of(arm)] = _audits(preset, arm, seeds or preset.seeds, num_trials, out, progress, on_audit)
    rows = [_row(preset, arm, results, found.get(name_of(arm), [])) for arm in preset.arms]
    write_json(out / "frontier.json", rows)
    return rows


def _audits(
    preset: Preset, arm: Arm, seeds: Sequence[int], num_trials: int, out: Path, progress: Progress, on_audit: OnAudit
) -> list[Findings]:
    """One for each seed, each so sure of its limits that all of them hold together with the usual confidence."""
    confidence, found = 1 - (1 - CONFIDENCE) / len(seeds), []
    for seed in seeds:
        subject = subject_of(study_of(preset, arm, seed), preset.task.make(seed))
        folder = out / "audits" / name_of(arm) / str(seed)
        found.append(audit(subject, num_trials, folder, seed, preset.resolved["task"], progress, confidence))
        on_audit(subject, folder, found[-1])
    return found


def name_of(arm: Arm) -> str:
    """Of what a client runs in this arm; learners and methods may have the same names."""
    return f"method-{arm.method}" if arm.method else f"learner-{arm.learner}"


def study_of(preset: Preset, arm: Arm, seed: int) -> Study:
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
        "epsilon": promised_epsilon(study_of(preset, arm, seeds[0]).releases),
        **(_success(audits) if audits else {}),
    }


def _success(audits: Sequence[Findings]) -> dict[str, Any]:
    """Each number of each audit, with its interval."""
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
