"""A run over Flower: write the request, start the run, print its log, and return its result or raise its error.

`coreshot flower run` writes the request, the ServerApp reads it and leaves the outcome beside it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coreshot.config import Count, Positive, decode, settings
from coreshot.errors import CoreshotError
from coreshot.flower.federation import CONNECTION, Federation
from coreshot.flower.forgetting import ORIGIN
from coreshot.storage import read_json, write_json

SECONDS_BETWEEN_QUERIES = 10.0  # a query starts a process of Flower
RESTART = "start it (`coreshot flower up`), and run the same again: what has arrived is kept"


@settings
class WaitPolicy:
    """How long the server waits, and for how many."""

    join_seconds: Positive = 60.0  # for all clients to join, once per run
    answer_seconds: Positive = 3600.0  # for the answers to one message
    work_seconds: Positive = 3500.0  # after this time a client stops its own work
    quorum: Count = 1  # fewer answers than this are an error


@settings
class RunRequest:
    """Run a preset (`preset`, `values`), or fit the model of a study (`study`, `clients`, `inference`)."""

    out: str
    wait: WaitPolicy
    seed: int = 0
    preset: str = ""  # its name
    values: dict[str, Any] | None = None  # its resolved values
    study: str = ""  # the text of the study's file
    clients: tuple[str, ...] = ()
    forgotten: dict[str, str] | None = None  # clients that are left out, and since which day
    inference: dict[str, Any] | None = None
    is_simulated: bool = False

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> RunRequest:
        return decode(cls, read_json(path), f"request {path}")


def outcome_path(request: Path) -> Path:
    """Written when a run ends: an empty object, or the sentence that says what went wrong."""
    return request.with_suffix(".outcome")


def log_path(request: Path) -> Path:
    return request.with_suffix(".log")


def submit(
    federation: Federation, request: RunRequest, say: Callable[[str], None], extra: Sequence[str] = ()
) -> dict[str, Any]:
    """Submit a run, pass its log to `say`, and return what Flower reports about it, or raise its error."""
    federation.write_operator_home()
    path = (federation.operator / "requests" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.json").resolve()
    request.write(path)
    origin = {"federation": str(federation.folder.resolve())} if request.study else {}
    if origin:  # before anything arrives: `forget` looks for it (a preset's results must be in an empty folder)
        write_json(Path(request.out) / ORIGIN, origin)
    started = federation.flwr("run", str(federation.operator / "app"), CONNECTION, "-c", f'request="{path}"', *extra)
    run_id = str(started["run-id"])
    _follow(federation, run_id, path, say)
    facts = _facts(federation, run_id)
    error = read_json(outcome_path(path)).get("error")
    if error:
        raise CoreshotError(error)
    write_json(Path(request.out) / ORIGIN, {**facts, **origin})
    return facts


def _follow(federation: Federation, run_id: str, path: Path, say: Callable[[str], None]) -> None:
    """Pass the log on until there is an outcome; raise if Flower reports an end without one (a process died)."""
    num_said, queried = 0, time.monotonic()
    while True:
        is_over = outcome_path(path).exists()
        lines = log_path(path).read_text().splitlines() if log_path(path).exists() else []
        for line in lines[num_said:]:
            say(line)
        num_said = len(lines)
        if is_over:
            return
        if time.monotonic() - queried > SECONDS_BETWEEN_QUERIES:
            status = _status(federation, run_id)["status"]
            if status.startswith("finished") and not outcome_path(path).exists():
                raise CoreshotError(
                    f"run {run_id}: Flower says {status!r}, and the ServerApp left no result; "
                    f"see {federation.folder}/superlink/log."
                )
            queried = time.monotonic()
        time.sleep(0.2)


def _status(federation: Federation, run_id: str) -> dict[str, Any]:
    try:
        [run] = federation.flwr("list", CONNECTION, "--run-id", run_id)["runs"]
    except CoreshotError as error:
        raise CoreshotError(f"run {run_id}: the SuperLink has gone away ({error}); {RESTART}.") from None
    return dict(run)


def _facts(federation: Federation, run_id: str) -> dict[str, Any]:
    """Status, time and Flower's own count of bytes, which is complete once Flower lists the run as finished."""
    for _ in range(10):
        run = _status(federation, run_id)
        if run["status"].startswith("finished"):
            break
        time.sleep(1)
    traffic = run["network-traffic"]
    return {
        "run": run_id,
        "status": run["status"],
        "bytes_to_server": traffic["inbound-bytes"],
        "bytes_from_server": traffic["outbound-bytes"],
        "seconds": run["elapsed"],
    }
