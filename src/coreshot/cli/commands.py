"""The program and the commands for presets: run, sweep, compare, list, show, new-preset, report, demo.

Exit codes: 0 done; 2 a mistake of the user, with one sentence; 1 everything else: an unexpected error, a run that was
stopped, or an audit that refutes a privacy guarantee.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.adapt import adapt
from coreshot.cli.audit import audit
from coreshot.cli.budget import budget_app
from coreshot.cli.check import check
from coreshot.cli.data import data_app
from coreshot.cli.demo import demo, example
from coreshot.cli.distill import distill
from coreshot.cli.evaluate import evaluate
from coreshot.cli.export import export
from coreshot.cli.flower import flower_app
from coreshot.cli.frontier import frontier
from coreshot.cli.inspect import inspect
from coreshot.cli.key import key_app
from coreshot.cli.model import fit, forget
from coreshot.cli.new_preset import new_preset
from coreshot.cli.options import (
    RESEARCH,
    Overrides,
    PresetName,
    Seeds,
    missing_research,
    parse_names,
    parse_seeds,
    parse_whole_numbers,
)
from coreshot.cli.output import Json, Markdown, make_table, print_grid, print_result, print_run, working
from coreshot.cli.predict import predict
from coreshot.cli.study import study_app
from coreshot.cli.welcome import WHO, who_types_what
from coreshot.errors import CoreshotError, visible

if TYPE_CHECKING:
    from coreshot.cli.output import Part
    from coreshot.experiments.preset import Preset

app = typer.Typer(add_completion=True, invoke_without_command=True, pretty_exceptions_enable=False)
app.add_typer(budget_app, name="budget")
app.add_typer(data_app, name="data")
app.add_typer(flower_app, name="flower")
app.add_typer(key_app, name="key")
app.add_typer(study_app, name="study")
for command in (distill, fit, forget, predict, evaluate, check, adapt, export):
    app.command()(command)

Out = Annotated[Path | None, typer.Option("--out", help="The folder for results; the default is runs/PRESET.")]
PlanOnly = Annotated[bool, typer.Option("--plan", help="Print what the run would cost, and stop.")]


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        print(f"coreshot {version('coreshot')}")
        raise typer.Exit


@app.callback()
def program(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version, and stop."),
    ] = False,
) -> None:
    """One-shot federated learning with Bayesian pseudocoresets."""
    if context.invoked_subcommand is None:
        print_result({who: dict(lines) for who, lines in WHO.items()}, False, who_types_what())


@app.command()
def run(
    preset: PresetName,
    overrides: Overrides = None,
    seeds: Seeds = None,
    out: Out = None,
    plan: PlanOnly = False,
    workers: Annotated[
        int,
        typer.Option("--workers", min=0, help="The number of processes that learn coresets; 0: threads of this one."),
    ] = 0,
    client_minutes: Annotated[
        float | None,
        typer.Option(
            "--client-minutes",
            min=0.0,
            help="With --workers: stop a client's work after this time, and continue without it.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a preset and write results and a report. A run that was killed continues where it stopped.

    Example: coreshot run moons --seeds 0 --set learner.bpc.num_updates=50 --out runs/try
    """
    from coreshot.experiments.preset import load_preset

    loaded = load_preset(preset, overrides or ())
    if plan:
        _print_plan([loaded], parse_seeds(seeds), as_json)
        return
    _run([loaded], out or Path("runs") / loaded.name, parse_seeds(seeds), as_json, _executor(workers, client_minutes))


@app.command()
def sweep(
    preset: Annotated[
        str,
        typer.Argument(
            metavar="PRESET", help="A preset with a \\[sweep]: a name from `coreshot list`, or the path of a TOML file."
        ),
    ],
    seeds: Seeds = None,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder for results; the default is runs/PRESET-sweep.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the grid search of a preset and list its combinations, the best first. It continues where it stopped.

    Example: coreshot sweep moons
    """
    from coreshot.experiments.sweep import run_sweep
    from coreshot.runtime.compilation import keep_compiled

    keep_compiled()
    folder = out or Path("runs") / f"{Path(preset).stem}-sweep"
    chosen = [] if seeds is None else [f"sweep.seeds={parse_seeds(seeds)}"]
    with working(as_json) as progress:
        rows = run_sweep(preset, [*(overrides or ()), *chosen], folder, progress)
    results = str(folder / "sweep.json")
    cells = ([f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row.values()] for row in rows)
    print_result({"results": results, "rows": rows}, as_json, [make_table(rows[0], cells), f"results: {results}"])


@app.command()
def compare(
    preset: PresetName,
    learners: Annotated[
        str | None,
        typer.Option("--learners", help="Which of the preset's learners, with commas between; the default is all."),
    ] = None,
    inferences: Annotated[
        str | None,
        typer.Option("--inferences", help="Which of its inferences, with commas between; the default is the first."),
    ] = None,
    points: Annotated[
        str | None,
        typer.Option("--points", help="Numbers of points of a coreset, such as 10,30; the default is each learner's."),
    ] = None,
    overrides: Overrides = None,
    seeds: Seeds = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder for results; the default is runs/PRESET_compare.")
    ] = None,
    markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """Compare learners, inferences and coreset sizes on one task with the baselines: one table and one figure.

    Example: coreshot compare digits_quick --learners bpc --inferences sgd,adam --points 10,30
    """
    from coreshot.experiments.compare import comparison_preset, per_client
    from coreshot.experiments.run import run as run_presets
    from coreshot.report.comparison import comparison_grid, draw_comparison
    from coreshot.report.drawing import render
    from coreshot.runtime.compilation import keep_compiled
    from coreshot.storage import write_bytes

    sizes = parse_whole_numbers("--points", points, 1, "10,30")
    chosen = comparison_preset(preset, overrides or (), parse_names(learners), parse_names(inferences), sizes)
    folder = out or Path("runs") / chosen.name
    keep_compiled()
    with working(as_json or markdown) as progress:
        rows = run_presets([chosen], folder, parse_seeds(seeds), progress)
    rows = per_client(rows, len(chosen.task.make(chosen.seeds[0]).clients))
    drawing = draw_comparison(rows)
    for kind in ("png", "svg"):
        write_bytes(folder / f"compare.{kind}", render(drawing, kind))
    files = {"results": folder / "results.json", "figure": folder / "compare.png"}
    print_grid(chosen.name, comparison_grid(rows), rows, files, as_json, markdown)


@app.command("list")
def list_presets(as_json: Json = False) -> None:
    """List the presets that come with coreshot.

    Example: coreshot list
    """
    from coreshot.experiments.preset import load_preset, preset_names

    presets = {name: load_preset(name) for name in preset_names()}
    values = {
        name: {"title": one.title, "arms": [arm.label for arm in one.arms], "seeds": list(one.seeds)}
        for name, one in presets.items()
    }
    rows = ((name, one.title, str(len(one.arms)), ", ".join(map(str, one.seeds))) for name, one in presets.items())
    print_result(values, as_json, [make_table(("preset", "what it shows", "arms", "seeds"), rows)])


@app.command("show")
def show_preset(preset: PresetName, overrides: Overrides = None, as_json: Json = False) -> None:
    """Print a preset with the values of its base and of --set filled in, as TOML that `coreshot run` accepts.

    Example: coreshot show moons_quick --set learner.bpc.num_updates=50
    """
    import tomli_w

    from coreshot.experiments.preset import load_preset

    values = load_preset(preset, overrides or ()).resolved
    print_result(values, as_json, tomli_w.dumps(values).rstrip("\n").split("\n"))


app.command("new-preset")(new_preset)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `coreshot run` has written.")],
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the tables as Markdown, for a document, and write nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write the report of a run again: figures, and one HTML page that needs no other file.

    Example: coreshot report runs/moons
    """
    from coreshot.report.run_report import write_report
    from coreshot.report.tables import markdown_table, read_communication, read_rows

    if markdown:
        text = markdown_table(read_rows(folder), read_communication(folder))
        print_result({"markdown": text}, as_json, text.rstrip("\n").split("\n"))
        return
    path = str(write_report(folder))
    print_result({"report": path, "rows": read_rows(folder)}, as_json, [f"report: {path}"])


app.command()(inspect)
app.command()(audit)
app.command()(frontier)


app.command()(demo)
app.command()(example)


def _executor(workers: int, client_minutes: float | None) -> Any:
    """Worker processes; None for threads of this process."""
    from coreshot.runtime.executors import Processes

    if client_minutes is not None and (not workers or client_minutes == 0):
        raise CoreshotError(
            "--client-minutes: only a worker process can be stopped, after some time; "
            "give --workers, and minutes above 0."
        )
    return Processes(workers, client_minutes and 60 * client_minutes) if workers else None


def _run(presets: Sequence[Preset], folder: Path, seeds: list[int] | None, as_json: bool, executor: Any = None) -> None:
    from coreshot.experiments.run import run as run_presets
    from coreshot.runtime.compilation import keep_compiled

    keep_compiled()
    with working(as_json) as progress:
        rows = run_presets(presets, folder, seeds, progress, executor)
    print_run(folder, rows, as_json)


def _print_plan(presets: Sequence[Preset], seeds: list[int] | None, as_json: bool) -> None:
    from coreshot.experiments.cost import plan, plan_table
    from coreshot.runtime.compilation import keep_compiled

    keep_compiled()
    with working(as_json) as progress:
        plans = [plan(preset, seeds, progress) for preset in presets]
    tables: Iterator[Part] = (plan_table(one) for one in plans)
    print_result({"plans": [{**asdict(one), "seconds": one.seconds} for one in plans]}, as_json, tables)


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that has no sign for a letter shows its number
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except CoreshotError as error:
        _end(str(error))
    except ModuleNotFoundError as error:
        if error.name not in RESEARCH:
            raise
        _end(missing_research("this study or preset", [error.name]))
    except OSError as error:
        if error.filename is None:  # not about a file that the user has named
            raise
        _end(
            f"{error.filename}: cannot be used ({error.strerror}); "
            "check the path, its permissions and the space on the disk."
        )


def _end(sentence: str) -> None:
    from rich.console import Console

    Console(stderr=True).print(
        f"coreshot: {visible(sentence)}", style="red", highlight=False, markup=False, emoji=False, soft_wrap=True
    )
    sys.exit(2)
