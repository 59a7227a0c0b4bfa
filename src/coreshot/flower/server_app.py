"""The app of the coordinator: what `coreshot run` and `coreshot fit` do, with nodes in the clients' places. No strategy: the methods are ours."""

from __future__ import annotations

import json
import os
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from coreshot.errors import CoreshotError
from coreshot.flower.nodes import Nodes, Simulated
from coreshot.flower.runs import Order, log_path, outcome_path
from coreshot.progress import Lines
from coreshot.storage import write_json

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    from rich.console import Console

    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    path = Path(str(context.run_config["order"]))
    order = Order.read(path)
    with log_path(path).open("a") as file:
        progress = Lines(Console(file=file, width=160))
        try:
            _carry_out(order, grid, progress)
        except CoreshotError as error:
            write_json(outcome_path(path), {"error": str(error)})
            raise  # Flower, too, is told that it failed
    write_json(outcome_path(path), {})


def _carry_out(order: Order, grid: Grid, progress: Lines) -> None:
    from coreshot.runtime.compilation import keep_compiled

    keep_compiled()
    if order.study:
        from coreshot.flower.study_run import fit_study

        fit_study(order, Nodes(grid, order.patience, progress.say))
        return
    from coreshot.experiments.preset import build_preset
    from coreshot.experiments.run import run

    preset, simulated = build_preset(order.preset, order.values or {}), None
    if order.is_simulated:
        names = tuple(preset.task.make(order.seed).clients)
        simulated = Simulated(names, json.dumps({"name": order.preset, "values": order.values}), order.seed)
    run([preset], Path(order.out), [order.seed], progress, Nodes(grid, order.patience, progress.say, simulated))
