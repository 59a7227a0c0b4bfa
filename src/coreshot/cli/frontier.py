"""`coreshot frontier`: the quality of each arm of a preset, and what an attack on its messages finds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coreshot.cli.audit import TRIALS
from coreshot.cli.options import Overrides, PresetName, Seeds, parse_seeds
from coreshot.cli.output import Json, Markdown, print_grid, working


def frontier(
    preset: PresetName,
    trials: Annotated[
        int,
        typer.Option(
            "--trials", help="How often each audit distills with the record, without it, and with a planted one."
        ),
    ] = TRIALS,
    overrides: Overrides = None,
    seeds: Seeds = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder for results; the default is runs/PRESET-frontier.")
    ] = None,
    markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """Run a preset, audit each of its arms, and compare quality with the success of the attack and with epsilon.

    A run that was killed continues where it stopped. Arms of several rounds are not audited; their epsilon is shown.

    Example: coreshot frontier private_digits --seeds 0 --trials 60
    """
    from coreshot.audit.frontier import run_frontier
    from coreshot.audit.run import check_trials
    from coreshot.experiments.preset import load_preset
    from coreshot.report.audit import write_audit_figure
    from coreshot.report.frontier import frontier_grid, write_frontier_figures
    from coreshot.runtime.compilation import keep_compiled

    check_trials(trials)
    loaded, chosen = load_preset(preset, overrides or ()), parse_seeds(seeds)
    folder = out or Path("runs") / f"{loaded.name}-frontier"
    keep_compiled()
    with working(as_json or markdown) as progress:
        rows = run_frontier(loaded, trials, folder, chosen, progress, write_audit_figure)
    files = {"results": folder / "frontier.json", "picture": write_frontier_figures(rows, folder)}
    print_grid(loaded.name, frontier_grid(rows), rows, files, as_json, markdown)
