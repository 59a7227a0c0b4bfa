"""A run from order to outcome: Flower is asked to start it, its log is passed on, and what it says at the end is true."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from coreshot.errors import CoreshotError
from coreshot.flower.federation import CONNECTION, Federation
from coreshot.flower.runs import Order, log_path, outcome_path
from coreshot.storage import read_json, write_json

SECONDS_BETWEEN_QUESTIONS = 10.0  # each is a process of Flower's
AGAIN = "start it (`coreshot flower up`), and run the same again: what has arrived is kept"


def submit(
    federation: Federation, order: Order, say: Callable[[str], None], extra: Sequence[str] = ()
) -> dict[str, Any]:
    """What Flower says about the run that has carried the order out; an error if it has not."""
    federation.write_operator_home()
    path = (federation.operator / "orders" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.json").resolve()
    order.write(path)
    started = federation.flwr("run", str(federation.operator / "app"), CONNECTION, "-c", f'order="{path}"', *extra)
    run_id = str(started["run-id"])
    _follow(federation, run_id, path, say)
    facts = _facts(federation, run_id)
    error = read_json(outcome_path(path)).get("error")
    if error:
        raise CoreshotError(error)
    write_json(Path(order.out) / "flower.json", facts)
    return facts


def _follow(federation: Federation, run_id: str, path: Path, say: Callable[[str], None]) -> None:
    """Until there is an outcome, or Flower says that there will be none: then its ServerApp has died, or the SuperLink."""
    num_said, asked = 0, time.monotonic()
    while True:
        is_over = outcome_path(path).exists()
        lines = log_path(path).read_text().splitlines() if log_path(path).exists() else []
        for line in lines[num_said:]:
            say(line)
        num_said = len(lines)
        if is_over:
            return
        if time.monotonic() - asked > SECONDS_BETWEEN_QUESTIONS:
            status = _status(federation, run_id)["status"]
            if status.startswith("finished") and not outcome_path(path).exists():
                raise CoreshotError(
                    f"run {run_id}: Flower says {status!r}, and the ServerApp left no result; see {federation.folder}/superlink/log."
                )
            asked = time.monotonic()
        time.sleep(0.2)


def _status(federation: Federation, run_id: str) -> dict[str, Any]:
    try:
        [run] = federation.flwr("list", CONNECTION, "--run-id", run_id)["runs"]
    except CoreshotError as error:
        raise CoreshotError(f"run {run_id}: the SuperLink has gone away ({error}); {AGAIN}.") from None
    return dict(run)


def _facts(federation: Federation, run_id: str) -> dict[str, Any]:
    """With Flower's own count of bytes, once it has written the run off."""
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
