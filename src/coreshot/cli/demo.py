"""`coreshot demo`, the story in a minute, and `coreshot example`, a folder to try the commands in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.options import refuse_without_research
from coreshot.cli.output import Json, print_now, print_result, working
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.cli.output import Part
    from coreshot.demo.story import Story

EXAMPLES = ("heart",)
# XLA's older way to compile fusions takes half the time, and the demo compiles more than it computes.
FAST_COMPILATION = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
PLAN = (
    "1. Ten sites with real digits (scikit-learn's): a file from each, the fit, FedAvg, pooling, each site alone;",
    "   one site late, one forgotten, and a private version with its epsilon.",
    "2. Four hospitals with a table each (drawn, or --hospitals FOLDER): study, files, model and its page.",
    "3. The paper's two figures, BPC-FL on moons and regression, with smaller networks.",
    "It takes about a minute and 2 GB of memory on two idle cores, fetches nothing, and writes one HTML page.",
)


def demo(
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder for all files; the default is runs/demo.")
    ] = None,
    hospitals: Annotated[
        Path | None,
        typer.Option("--hospitals", help="A folder with cleveland.csv, hungarian.csv, switzerland.csv and va.csv."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what the demo does and how long it takes, and stop.")
    ] = False,
    as_json: Json = False,
) -> None:
    """See what coreshot does in a minute: ten sites, four hospitals, the paper's figures, and one page about it.

    Example: coreshot demo --out runs/demo
    """
    if plan:
        print_result({"plan": [line.strip() for line in PLAN]}, as_json, PLAN)
        return
    refuse_without_research("demo")
    # Before numpy and jax are imported. Two parts are computed side by side: threads of BLAS would wait, spinning.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("XLA_FLAGS", FAST_COMPILATION)
    from coreshot.demo.story import tell
    from coreshot.runtime.compilation import keep_compiled

    keep_compiled()
    folder = out or _free(Path("runs/demo"))
    print_now("What leaves each site is one file. Everything is computed now, on this computer.", as_json)
    with working(as_json) as progress:
        story = tell(folder, hospitals, progress)
    print_result(_values(story), as_json, _parts(story))


def _free(folder: Path) -> Path:
    """runs/demo, or where there is one already, runs/demo-2: nothing is overwritten."""
    number, found = 1, folder
    while found.exists():
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found


def _values(story: Story) -> dict[str, Any]:
    digits, heart = story.digits, story.heart
    return {
        "page": str(story.page),
        "seconds": round(story.seconds, 1),
        "verdict": story.verdict.replace("\u00a0", " "),
        "digits": {line.name: {**asdict(line.found), "bytes": line.sent} for line in digits.lines},
        "private": {f"{one['epsilon']:.3g}": asdict(one["found"]) for one in digits.private},
        "forgotten_is_same": heart.is_same,
        "hospitals": {"accuracy": heart.accuracy, "auc": heart.auc},
        "paper": {one.name: one.rows for one in story.paper},
        "next": [command for command, _ in story.next_commands],
    }


def _parts(story: Story) -> Iterator[Part]:
    from coreshot.demo.story import private_grid, quality_grid
    from coreshot.report.tables import rich_table

    digits, heart = story.digits, story.heart
    yield ""
    yield story.verdict.replace("\u00a0", " ")
    yield rich_table("ten sites with digits", quality_grid(digits))
    late = digits.late
    yield (
        f"{late['late']} came late: accuracy {late['before']:.3f} before, {late['after']:.3f} after (one test image is "
        f"{late['one_image']:.3f}). "
        f"{late['forgotten']} was forgotten: {late['without']:.3f}; no probability differs by more than "
        f"{late['apart']:.0e} from a model that never had its file."
    )
    yield rich_table("with a promise of privacy", private_grid(digits))
    yield rich_table("four hospitals", heart.results)
    yield f"{heart.forgotten} was forgotten: the model's file is " + (
        "the same to the byte as one that never had it." if heart.is_same else "not that of a model without it."
    )
    for one in story.paper:
        yield rich_table(one.title.partition(",")[0], one.results)
        yield from one.remarks
    yield f"the page: {story.page}"
    yield "next:"
    for command, words in story.next_commands:
        yield f"  {command}"
        yield f"      {words}"


def example(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"Which one: {', '.join(EXAMPLES)}.")],
    to: Annotated[Path, typer.Option("--to", help="The folder to write; it must be new or empty.")],
    hospitals: Annotated[
        Path | None,
        typer.Option("--hospitals", help="A folder with the four real CSV files; without it they are drawn."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a folder with a study and the tables of four hospitals, in which the commands can be tried.

    Example: coreshot example heart --to heart
    """
    if name not in EXAMPLES:
        raise CoreshotError(f"example {name}: there is none of that name; there is {', '.join(EXAMPLES)}.")
    from coreshot.demo.hospitals import COMMANDS, write_example

    written = [str(path) for path in write_example(to, hospitals)]
    commands = COMMANDS.split("\n")
    parts = [f"written: {', '.join(written)}", f"now type, in {to}:", *(f"  {line}" for line in commands)]
    print_result({"files": written, "commands": commands}, as_json, parts)
