"""The command that sets quality beside leaks: coreshot frontier."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from coreshot.cli_audit import TRIALS
from coreshot.cli_options import Overrides, Seeds, parse_seeds
from coreshot.progress import shown_on

console = Console(width=None if sys.stdout.isatty() else 160)


def frontier(
    preset: Annotated[str, typer.Argument(help="A name from `coreshot list`, or the path of a TOML file.")],
    trials: Annotated[int, typer.Option("--trials", help="Of each audit: distillations with, without, and with a planted record.")] = TRIALS,
    overrides: Overrides = None,
    seeds: Seeds = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where results go; the default is runs/PRESET-frontier.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown, for a document.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON, for machines.")] = False,
) -> None:
    """Run a preset, audit what each of its arms sends, and set quality beside the attack's success and beside epsilon.

    What was killed goes on where it stopped. Arms of several rounds are not audited; their epsilon is shown.

    Example: coreshot frontier private_digits --seeds 0 --trials 60
    """
    from coreshot.audit.frontier import frontier as run_frontier
    from coreshot.audit.frontier import frontier_grid
    from coreshot.audit.run import check_trials
    from coreshot.compilation import keep_compiled
    from coreshot.preset import load_preset
    from coreshot.report import grid_markdown, rich_table

    check_trials(trials)
    loaded, chosen = load_preset(preset, overrides or ()), parse_seeds(seeds)
    folder = out or Path("runs") / f"{loaded.name}-frontier"
    keep_compiled()
    with shown_on(Console(stderr=True) if as_json or markdown else console) as progress:
        rows = run_frontier(loaded, trials, folder, chosen, progress)
    if as_json or markdown:
        print(json.dumps(rows) if as_json else grid_markdown(frontier_grid(rows)), end="")
        return
    console.print(rich_table(loaded.name, frontier_grid(rows)))
    console.print(f"results: {folder / 'frontier.json'}", highlight=False, soft_wrap=True)
    console.print(f"picture: {folder / 'frontier.png'}", highlight=False, soft_wrap=True)
