"""The commands. Exit codes: 0 done; 2 a user's mistake, with one sentence; 1 all else: unexpected, stopped, or a promise found broken."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coreshot.cli.audit import audit
from coreshot.cli.data import data_app
from coreshot.cli.flower import flower_app
from coreshot.cli.frontier import frontier
from coreshot.cli.inspect import inspect
from coreshot.cli.model import evaluate, fit, forget, predict
from coreshot.cli.options import Overrides, Seeds, parse_seeds, whole_numbers
from coreshot.cli.output import Json, Markdown, console, print_grid, print_json, say, working
from coreshot.cli.study import distill, study_app
from coreshot.errors import CoreshotError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="One-shot federated learning with Bayesian pseudocoresets.",
)
app.add_typer(data_app, name="data")
app.add_typer(flower_app, name="flower")
app.add_typer(study_app, name="study")
for command in (distill, fit, forget, predict, evaluate):
    app.command()(command)

DEMO = ("moons_quick", "regression_quick")

Out = Annotated[Path | None, typer.Option("--out", help="Where results go; the default is runs/PRESET.")]


@app.command()
def run(
    preset: Annotated[str, typer.Argument(help="A name from `coreshot list`, or the path of a TOML file.")],
    overrides: Overrides = None,
    seeds: Seeds = None,
    out: Out = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what it would cost, and stop.")] = False,
    workers: Annotated[
        int, typer.Option("--workers", min=0, help="Learn coresets in so many processes; 0: in threads of this one.")
    ] = 0,
    client_minutes: Annotated[
        float | None,
        typer.Option(
            "--client-minutes",
            min=0.0,
            help="With --workers: stop a client's work after so long, and go on without it.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a preset and write results and a report; a run that was killed goes on where it stopped.

    Example: coreshot run moons --seeds 0 --set learner.bpc.num_updates=50 --out runs/try
    """
    from coreshot.experiments.preset import load_preset

    loaded = [load_preset(preset, overrides or ())]
    folder = out or Path("runs") / loaded[0].name
    if plan:
        _print_plan(loaded, parse_seeds(seeds), as_json)
        return
    _run(loaded, folder, parse_seeds(seeds), as_json, _crew(workers, client_minutes))


@app.command()
def sweep(
    preset: Annotated[
        str, typer.Argument(help="A preset with a [sweep]: a name from `coreshot list`, or the path of a TOML file.")
    ],
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where results go; the default is runs/PRESET-sweep.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The preset's grid search, the best combination first; it goes on where it stopped.

    Example: coreshot sweep moons
    """
    from coreshot.experiments.sweep import sweep as run_sweep
    from coreshot.runtime.compilation import keep_compiled

    keep_compiled()
    folder = out or Path("runs") / f"{Path(preset).stem}-sweep"
    with working(as_json) as progress:
        rows = run_sweep(preset, overrides or (), folder, progress)
    if as_json:
        print_json({"results": str(folder / "sweep.json"), "rows": rows})
        return
    table = Table(*(escape(name) for name in rows[0]))
    for row in rows:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))
    console.print(table)
    say(f"results: {folder / 'sweep.json'}")


@app.command()
def compare(
    preset: Annotated[
        str,
        typer.Argument(
            help="Whose task, learners and inferences: a name from `coreshot list`, or the path of a TOML file."
        ),
    ],
    learners: Annotated[
        str | None, typer.Option("--learners", help="Which of its learners, with commas between; the default is all.")
    ] = None,
    inferences: Annotated[
        str | None, typer.Option("--inferences", help="Which of its inferences; the default is the first.")
    ] = None,
    points: Annotated[
        str | None, typer.Option("--points", help="Sizes K of the coresets, such as 10,30; the default is its own.")
    ] = None,
    overrides: Overrides = None,
    seeds: Seeds = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where results go; the default is runs/PRESET_compare.")
    ] = None,
    markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """Learners x inferences x K on one task, beside everything that a coreset has to beat: one table and one figure.

    Example: coreshot compare digits_quick --learners bpc --inferences sgd,adam --points 10,30
    """
    from coreshot.experiments.compare import comparison, per_client
    from coreshot.experiments.run import run as run_presets
    from coreshot.report.comparison import comparison_grid, draw_comparison
    from coreshot.report.drawing import render
    from coreshot.runtime.compilation import keep_compiled
    from coreshot.storage import write_bytes

    chosen = comparison(
        preset,
        overrides or (),
        _parse_names(learners),
        _parse_names(inferences),
        whole_numbers("--points", points, 1, "10,30"),
    )
    folder = out or Path("runs") / chosen.name
    keep_compiled()
    with working(as_json or markdown) as progress:
        rows = per_client(run_presets([chosen], folder, parse_seeds(seeds), progress), chosen.task.num_clients)
    drawing = draw_comparison(rows)
    for kind in ("png", "svg"):
        write_bytes(folder / f"compare.{kind}", render(drawing, kind))
    files = {"results": folder / "results.json", "figure": folder / "compare.png"}
    print_grid(chosen.name, comparison_grid(rows), rows, files, as_json, markdown)


def _parse_names(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",")] if text else None


@app.command("list")
def list_presets(as_json: Json = False) -> None:
    """The presets that come with coreshot.

    Example: coreshot list
    """
    from coreshot.experiments.preset import load_preset, preset_names

    presets = {name: load_preset(name) for name in preset_names()}
    if as_json:
        print_json(
            {
                name: {"title": one.title, "arms": [arm.label for arm in one.arms], "seeds": list(one.seeds)}
                for name, one in presets.items()
            }
        )
        return
    table = Table("preset", "what it shows", "arms", "seeds")
    for name, preset in presets.items():
        table.add_row(name, preset.title, str(len(preset.arms)), ", ".join(map(str, preset.seeds)))
    console.print(table)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A directory that `coreshot run` has written.")],
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the tables as Markdown, for a document, and write nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make the report of a run anew: figures, and one HTML page that needs nothing else.

    Example: coreshot report runs/moons
    """
    from coreshot.report.run_report import write_report
    from coreshot.report.tables import markdown_table, read_communication, read_rows

    if markdown:
        text = markdown_table(read_rows(folder), read_communication(folder))
        if as_json:
            print_json({"markdown": text})
        else:
            print(text, end="")
        return
    path = write_report(folder)
    if as_json:
        print_json({"report": str(path), "rows": read_rows(folder)})
        return
    say(f"report: {path}")


app.command()(inspect)
app.command()(audit)
app.command()(frontier)


@app.command()
def demo(
    out: Out = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what it would cost, and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Both synthetic tasks, one seed, shortened: a few minutes on two cores.

    Example: coreshot demo --out runs/demo
    """
    from coreshot.experiments.preset import load_preset

    presets = [load_preset(name) for name in DEMO]
    if plan:
        _print_plan(presets, None, as_json)
        return
    _run(presets, out or Path("runs/demo"), None, as_json)


def _crew(workers: int, client_minutes: float | None) -> Any:
    from coreshot.runtime.executors import Processes

    if client_minutes is not None and (not workers or client_minutes == 0):
        raise CoreshotError(
            "--client-minutes: only a worker process can be stopped, after some time; give --workers, and minutes above 0."
        )
    return Processes(workers, client_minutes and 60 * client_minutes) if workers else None


def _run(presets: list, folder: Path, seeds: list[int] | None, as_json: bool, executor: Any = None) -> None:  # type: ignore[type-arg]
    from coreshot.experiments.run import run as run_presets
    from coreshot.report.run_report import write_report
    from coreshot.report.tables import summary_table
    from coreshot.runtime.compilation import keep_compiled

    keep_compiled()
    with working(as_json) as progress:
        rows = run_presets(presets, folder, seeds, progress, executor)
    report = write_report(folder)
    if as_json:
        print_json({"results": str(folder / "results.json"), "report": str(report), "rows": rows})
        return
    for table in summary_table(rows):
        console.print(table)
    say(f"results: {folder / 'results.json'}")
    say(f"report:  {report}")


def _print_plan(presets: list, seeds: list[int] | None, as_json: bool) -> None:  # type: ignore[type-arg]
    from coreshot.experiments.cost import plan, plan_table
    from coreshot.runtime.compilation import keep_compiled

    keep_compiled()
    with working(as_json) as progress:
        plans = [plan(preset, seeds, progress) for preset in presets]
    if as_json:
        print_json({"plans": [{**asdict(one), "seconds": one.seconds} for one in plans]})
        return
    for one in plans:
        console.print(plan_table(one))


def main() -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        app()
    except CoreshotError as error:
        _end(str(error))
    except OSError as error:
        if error.filename is None:  # not of a file that somebody has named
            raise
        _end(
            f"{error.filename}: cannot be used ({error.strerror}); check the path, its permissions and the room on the disk."
        )


def _end(sentence: str) -> None:
    Console(stderr=True).print(f"coreshot: {sentence}", style="red", highlight=False, markup=False, soft_wrap=True)
    sys.exit(2)
