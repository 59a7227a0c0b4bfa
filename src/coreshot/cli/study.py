"""`coreshot study new | check` and `distill`: a study, and one file out of each site."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from coreshot.cli.options import DataPath
from coreshot.cli.output import Json, console, print_facts, say, working, write_new
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.data.files import EncodedRecords
    from coreshot.data.schema import Finding
    from coreshot.study import Study

study_app = typer.Typer(no_args_is_help=True, help="The public agreement of a study: write one, check one.")
StudyPath = Annotated[Path, typer.Argument(metavar="STUDY", help="The study's TOML file.")]


@study_app.command("new")
def new(
    out: Annotated[Path, typer.Argument(metavar="STUDY", help="The file to write; it must not be there yet.")],
    header: Annotated[Path | None, typer.Option("--from", help="A CSV whose first line names the columns.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="The column that is to be learned.")] = None,
    guess: Annotated[
        bool, typer.Option("--guess", help="Guess kinds, ranges and values from the CSV, which must then be public.")
    ] = False,
    image: Annotated[str | None, typer.Option("--image", help="The shape of images, such as 28,28,1.")] = None,
    classes: Annotated[str | None, typer.Option("--classes", help="Of images, with commas between.")] = None,
    as_json: Json = False,
) -> None:
    """Write a study with comments that say what to fill in.

    Example: coreshot study new study.toml --from columns.csv --target disease
    """
    from coreshot.data.files import read_columns
    from coreshot.study.template import csv_header, image_template, table_template

    if out.exists():
        raise CoreshotError(f"{out}: is there already; use another name, or remove it.")
    if (header is None) == (image is None):
        raise CoreshotError("study new: give --from CSV and --target, or --image SHAPE and --classes.")
    if header is not None:
        if target is None:
            raise CoreshotError("study new: --from needs --target, the column that is to be learned.")
        columns = read_columns(header) if guess else {}
        records = (
            [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)] if guess else None
        )
        text = table_template(out.stem, csv_header(header), target, records)
    else:
        text = image_template(out.stem, _shape(str(image)), _names(classes))
    write_new(out, text.encode())
    if as_json:
        print_facts({"study": str(out)}, as_json)
        return
    say(f"study: {out}; fill in what it asks for, then `coreshot study check {out}`")


def _shape(text: str) -> list[int]:
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise CoreshotError(f"--image {text}: a shape is lines,columns,channels, such as 28,28,1; change it.")
    return [int(part) for part in parts]


def _names(text: str | None) -> list[str]:
    names = [part.strip() for part in (text or "").split(",") if part.strip()]
    if len(names) < 2 or len(set(names)) < len(names):
        raise CoreshotError(
            "study new: --image needs --classes, at least two different ones with commas between, such as 0,1,2."
        )
    return names


@study_app.command("check")
def check(study: StudyPath, as_json: Json = False) -> None:
    """Say what a study agrees on, or the first thing that is wrong with it.

    Example: coreshot study check study.toml
    """
    from coreshot.privacy.promise import promise
    from coreshot.study.file import read_study

    found = read_study(study)
    _try_out(found)
    facts = {
        "name": found.agreement.task,
        "hash": found.hash,
        "task": found.agreement.kind,
        "input_shape": list(found.agreement.input_shape),
        "num_outputs": found.agreement.num_outputs,
        "releases": [release.to_dict() for release in found.releases],
        "promise": promise(found.releases),
    }
    print_facts(facts, as_json)


def _try_out(study: Study) -> None:
    """What every site would find out, before it does: a made-up record of each class goes through a closed-form method. A learner takes too long."""
    import numpy as np

    from coreshot.api import distill as make_coreset

    if study.learner is not None:
        return
    terms = study.agreement
    labels = np.arange(terms.num_outputs) if terms.kind == "classification" else np.zeros((2, 1))
    make_coreset(study, np.zeros((len(labels), *terms.input_shape)), labels, client="made-up records")


def distill(
    study: StudyPath,
    data: DataPath,
    out: Annotated[Path, typer.Option("--out", help="The file to write; it must not be there yet.")],
    client: Annotated[
        str | None, typer.Option("--client", help="The name of this site; the default is the file's.")
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Of this site's own random numbers; private noise never comes from it.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Turn this site's records into the one file that leaves it. Nothing is sent.

    A learner that takes long shows how long still; Ctrl-C stops it, and the same command goes on where it stopped.

    Example: coreshot distill study.toml patients.csv --out site.coreset
    """
    from coreshot.data.files import read_records
    from coreshot.fitted.folder import check_client_name
    from coreshot.privacy.promise import promise
    from coreshot.study.file import read_study

    agreed, name = read_study(study), check_client_name(client or out.stem)
    if out.exists():
        raise CoreshotError(f"{out}: is there already; use another name, or remove it.")
    records = read_records(data, agreed.inputs, agreed.target)  # type: ignore[arg-type]
    if not as_json:
        _print_findings(data, records.findings)
    message = _distilled(agreed, records, name, seed, out)
    facts = {
        "coreset": str(out),
        "client": name,
        "bytes": len(message),
        "records": len(records.x),
        "promise": promise(agreed.releases),
    }
    print_facts(facts, as_json)
    if len(records.x) == 1 and not as_json and any(release.is_exact for release in agreed.releases):
        say("warning: one record alone is in this file, without noise; whoever has the file may have the record.")


def _distilled(study: Study, records: EncodedRecords, client: str, seed: int, out: Path) -> bytes:
    """Written to `out`; what a run that is stopped keeps lies beside it, and goes away with its end."""
    import threading
    from contextlib import nullcontext

    from coreshot.api import distill as make_coreset
    from coreshot.runtime.compilation import keep_compiled
    from coreshot.runtime.resumable import StoppedError, ctrl_c_asks_for

    keep, stop = out.with_name(f"{out.name}.unfinished"), threading.Event()
    is_slow = (
        study.learner is not None and study.learner.num_chunks > 1
    )  # all else has no chunks to stop between, and Ctrl-C ends it
    if is_slow:
        keep_compiled()
    try:
        with working(as_json=True) as progress, ctrl_c_asks_for(stop) if is_slow else nullcontext():
            message = make_coreset(
                study, records.x, records.y, client=client, seed=seed, progress=progress, keep=keep, stop=stop
            )
    except StoppedError:
        kept = (
            f"{keep} has its state, and the same command goes on there"
            if keep.exists()
            else "this study's work cannot be cut, and will begin anew"
        )
        Console(stderr=True).print(f"coreshot: stopped; {kept}.", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    write_new(out, message)
    keep.unlink(missing_ok=True)
    return message


def _print_findings(path: Path, findings: Sequence[Finding]) -> None:
    table = Table("column", "present", "missing", "outside", "", title=str(path), title_justify="left")
    for finding in findings:
        table.add_row(
            finding.name,
            f"{finding.num_present:,}",
            f"{finding.num_missing:,}",
            f"{finding.num_outside:,}",
            finding.note,
        )
    console.print(table)
