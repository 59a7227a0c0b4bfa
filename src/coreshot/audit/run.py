"""An audit in a directory. A killed audit continues where it stopped, and more trials can be added later.

DIR/config.json     what is audited; a directory belongs to one audit
DIR/trials.jsonl    one line of numbers for each trial, written when the trial is done
DIR/audit.json      the findings
DIR/audit.png       the findings as a figure, drawn by report/
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coreshot.audit.confidence import CONFIDENCE
from coreshot.audit.findings import Findings, make_findings
from coreshot.audit.subject import WHICH, Subject, Which
from coreshot.audit.trial import Trial, run_trial
from coreshot.errors import CoreshotError
from coreshot.models.parallel import as_ready, num_cores
from coreshot.progress import Progress, Silent
from coreshot.storage import read_json, write_bytes, write_json

LEAST_TRIALS = 30  # of each set: a third of them are shadow trials, to which Gaussians are fitted
PROBE_SECONDS = 1.0  # a plan repeats short trials for this time


@dataclass(frozen=True)
class AuditPlan:
    num_trials: int  # in all
    num_done: int
    seconds_each: float
    num_threads: int

    @property
    def seconds(self) -> float:
        return (self.num_trials - self.num_done) * self.seconds_each / self.num_threads


def run_audit(
    subject: Subject,
    num_trials: int,
    out: Path,
    seed: int = 0,
    task: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    confidence: float = CONFIDENCE,
) -> Findings:
    """Run the trials of each of the three sets that the directory lacks, and write what they show."""
    progress = progress or Silent()
    check_trials(num_trials)
    config = check_folder(subject, seed, task or {}, out)
    if not (out / "config.json").exists():
        write_json(out / "config.json", config)
    _remove_cut_line(out)
    trials = {(trial.which, trial.number): trial for trial in read_trials(out)}
    wanted = [(which, number) for number in range(num_trials) for which in WHICH]
    missing = [one for one in wanted if one not in trials]
    if missing:
        progress.begin(f"audit of {subject.client}: trials", len(missing))
        with (out / "trials.jsonl").open("a") as file:
            for trial in _run_all(subject, missing, seed):
                file.write(json.dumps(asdict(trial)) + "\n")
                file.flush()
                trials[trial.which, trial.number] = trial
                progress.advance()
        progress.end()
    used = [trials[one] for one in wanted]
    found = make_findings(subject, used, confidence)
    write_json(out / "audit.json", {**asdict(found), "is_refuted": found.is_refuted, "verdict": found.verdict})
    return found


def plan_audit(
    subject: Subject, num_trials: int, out: Path, seed: int = 0, task: Mapping[str, Any] | None = None
) -> AuditPlan:
    """Time a trial, or several short ones, after a first one that compiles. Nothing is written."""
    check_trials(num_trials)
    check_folder(subject, seed, task or {}, out)
    done = {(trial.which, trial.number) for trial in read_trials(out)}
    run_trial(subject, "all", 0, seed)
    began, times = time.perf_counter(), 0
    while times == 0 or time.perf_counter() - began < PROBE_SECONDS:
        run_trial(subject, "all", times, seed)
        times += 1
    seconds = (time.perf_counter() - began) / times
    num_done = sum((which, number) in done for number in range(num_trials) for which in WHICH)
    return AuditPlan(len(WHICH) * num_trials, num_done, seconds, num_cores())


def check_trials(num_trials: int) -> None:
    if num_trials < LEAST_TRIALS:
        raise CoreshotError(
            f"audit: {num_trials} trials are too few to tell anything; "
            f"use at least {LEAST_TRIALS}, better some hundreds."
        )


def _run_all(subject: Subject, missing: Sequence[tuple[Which, int]], seed: int) -> Iterator[Trial]:
    """In threads, one for each core; trials are returned in the order in which they finish."""
    return as_ready(lambda one: run_trial(subject, one[0], one[1], seed), missing)


def check_folder(subject: Subject, seed: int, task: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """The audit's configuration; an error where the directory holds anything else."""
    config = {
        "study": subject.study.to_dict(),
        "task": dict(task),
        "client": subject.client,
        "record": subject.record,
        "seed": seed,
    }
    config = json.loads(json.dumps(config))  # as it will be read again
    for part in (out, *out.parents):
        if part.exists() and not part.is_dir():
            raise CoreshotError(f"{part}: is a file, not a directory; choose another --out.")
    path = out / "config.json"
    if not path.exists():
        if out.exists() and any(entry.suffix != ".tmp" for entry in out.iterdir()):
            raise CoreshotError(f"{out}: is not empty and holds no audit; choose another --out.")
        return config
    there = read_json(path)
    different = [key for key in config if not isinstance(there, dict) or there.get(key) != config[key]]
    if different:
        raise CoreshotError(
            f"{out}: holds an audit of another {' and '.join(different)}; choose another --out, nothing was changed."
        )
    return config


def read_trials(out: Path) -> list[Trial]:
    """All complete lines. A kill may have cut off the last line."""
    path = out / "trials.jsonl"
    complete = path.read_text().rpartition("\n")[0] if path.exists() else ""
    try:
        return [Trial(**json.loads(line)) for line in complete.splitlines()]
    except (ValueError, TypeError) as error:
        raise CoreshotError(
            f"{path}: has a line that is no trial ({error}); restore the file, or use another directory."
        ) from None


def _remove_cut_line(out: Path) -> None:
    """Remove a last line that a kill has cut off, so that the next trial gets a line of its own."""
    path = out / "trials.jsonl"
    if path.exists() and not path.read_bytes().endswith(b"\n"):
        write_bytes(path, path.read_bytes().rpartition(b"\n")[0] + b"\n")
