"""An audit in a directory: append-only and resumable, so that one that was killed goes on where it stopped, and more trials can be added.

DIR/config.json     what is audited; a directory belongs to one audit
DIR/trials.jsonl    a line of numbers for each trial, as soon as it is done
DIR/audit.json      what follows from them
DIR/audit.png       the same as a picture, drawn by report/
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coreshot.audit.confidence import CONFIDENCE
from coreshot.audit.findings import Findings, findings
from coreshot.audit.subject import WHICH, Subject, Which
from coreshot.audit.trial import Trial, run_trial
from coreshot.errors import CoreshotError
from coreshot.progress import Progress, Silent
from coreshot.storage import read_json, write_bytes, write_json

LEAST_TRIALS = 30  # of each set: a third of them teaches, and Gaussians want a few
PROBE_SECONDS = 1.0  # for which a plan does trials, if one takes less


@dataclass(frozen=True)
class Plan:
    num_trials: int  # in all
    num_done: int
    seconds_each: float
    num_threads: int

    @property
    def seconds(self) -> float:
        return (self.num_trials - self.num_done) * self.seconds_each / self.num_threads


def audit(
    subject: Subject,
    num_trials: int,
    out: Path,
    seed: int = 0,
    task: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    confidence: float = CONFIDENCE,
) -> Findings:
    """So many trials of each of the three sets; those that the directory holds are not done again."""
    progress = progress or Silent()
    check_trials(num_trials)
    about = claimed(subject, seed, task or {}, out)
    if not (out / "config.json").exists():
        write_json(out / "config.json", about)
    _mend(out)
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
    found = findings(subject, used, confidence)
    write_json(out / "audit.json", {**asdict(found), "is_refuted": found.is_refuted, "verdict": found.verdict})
    return found


def plan(subject: Subject, num_trials: int, out: Path, seed: int = 0, task: Mapping[str, Any] | None = None) -> Plan:
    """From the time of a trial, or of several short ones, after one that compiles; nothing is written."""
    check_trials(num_trials)
    claimed(subject, seed, task or {}, out)
    done = {(trial.which, trial.number) for trial in read_trials(out)}
    run_trial(subject, "all", 0, seed)
    began, times = time.perf_counter(), 0
    while times == 0 or time.perf_counter() - began < PROBE_SECONDS:
        run_trial(subject, "all", times, seed)
        times += 1
    seconds = (time.perf_counter() - began) / times
    num_done = sum((which, number) in done for number in range(num_trials) for which in WHICH)
    return Plan(len(WHICH) * num_trials, num_done, seconds, _num_threads())


def check_trials(num_trials: int) -> None:
    if num_trials < LEAST_TRIALS:
        raise CoreshotError(
            f"audit: {num_trials} trials are too few to tell anything; use at least {LEAST_TRIALS}, better some hundreds."
        )


def _num_threads() -> int:
    return os.cpu_count() or 1


def _run_all(subject: Subject, missing: Sequence[tuple[Which, int]], seed: int) -> Iterator[Trial]:
    """In threads, one a core, in the order in which they are ready."""
    pool = ThreadPoolExecutor(_num_threads())
    try:
        for done in as_completed([pool.submit(run_trial, subject, which, number, seed) for which, number in missing]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)  # after an error or a kill, trials that have not begun do not begin


def claimed(subject: Subject, seed: int, task: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """What the directory is to hold, if it is free for it or holds it already."""
    about = {
        "study": subject.study.to_dict(),
        "task": dict(task),
        "client": subject.client,
        "record": subject.record,
        "seed": seed,
    }
    about = json.loads(json.dumps(about))  # as it will be read again
    for part in (out, *out.parents):
        if part.exists() and not part.is_dir():
            raise CoreshotError(f"{part}: is a file, not a directory; choose another --out.")
    path = out / "config.json"
    if not path.exists():
        if out.exists() and any(entry.suffix != ".tmp" for entry in out.iterdir()):
            raise CoreshotError(f"{out}: is not empty and holds no audit; choose another --out.")
        return about
    there = read_json(path)
    different = [key for key in about if not isinstance(there, dict) or there.get(key) != about[key]]
    if different:
        raise CoreshotError(
            f"{out}: holds an audit of another {' and '.join(different)}; choose another --out, nothing was changed."
        )
    return about


def read_trials(out: Path) -> list[Trial]:
    """All that are whole: not a last line that a kill has cut off."""
    path = out / "trials.jsonl"
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    try:
        return [Trial(**json.loads(line)) for line in whole.splitlines()]
    except (ValueError, TypeError) as error:
        raise CoreshotError(
            f"{path}: has a line that is no trial ({error}); restore the file, or use another directory."
        ) from None


def _mend(out: Path) -> None:
    """A line that a kill has cut off is taken away, so that the next begins on a line of its own."""
    path = out / "trials.jsonl"
    if path.exists() and not path.read_bytes().endswith(b"\n"):
        write_bytes(path, path.read_bytes().rpartition(b"\n")[0] + b"\n")
