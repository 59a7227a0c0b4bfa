"""Flower's ServerApp, at the coordinator: `coreshot run` or `coreshot fit`, with nodes in place of local clients.

It uses no strategy of Flower: the methods are coreshot's own.
"""

from __future__ import annotations

import json
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from coreshot.errors import CoreshotError
from coreshot.flower.nodes import Nodes, SimulatedTask
from coreshot.flower.runs import RunRequest, log_path, outcome_path
from coreshot.progress import Lines
from coreshot.storage import write_json

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    path = Path(str(context.run_config["request"]))
    request = RunRequest.read(path)
    with log_path(path).open("a") as file:
        try:
            _carry_out(request, grid, Lines(file))
        except CoreshotError as error:
            write_json(outcome_path(path), {"error": str(error)})
            raise  # so that Flower, too, lists the run as failed
    write_json(outcome_path(path), {})


def _carry_out(request: RunRequest, grid: Grid, progress: Lines) -> None:
    from coreshot.runtime.compilation import keep_compiled

    keep_compiled()
    if request.study:
        from coreshot.flower.study_run import fit_study

        fit_study(request, Nodes(grid, request.wait, progress.say))
        return
    from coreshot.experiments.preset import build_preset
    from coreshot.experiments.run import run

    preset, simulated = build_preset(request.preset, request.values or {}), None
    if request.is_simulated:
        names = tuple(preset.task.make(request.seed).clients)
        values = json.dumps({"name": request.preset, "values": request.values})
        simulated = SimulatedTask(names, values, request.seed)
    nodes = Nodes(grid, request.wait, progress.say, simulated)
    run([preset], Path(request.out), [request.seed], progress, nodes)
