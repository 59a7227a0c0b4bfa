"""`coreshot study new | check` and `coreshot distill`: a study, and the one file that leaves each site."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coreshot.cli.options import DataPath
from coreshot.cli.output import (
    Json,
    make_table,
    print_now,
    print_result,
    refuse_existing,
    value_lines,
    working,
    write_new,
)
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from rich.table import Table

    from coreshot.data.files import EncodedRecords
    from coreshot.data.schema import Finding
    from coreshot.study import Study

study_app = typer.Typer(no_args_is_help=True, help="The public agreement of a study: write it, check it.")
StudyPath = Annotated[Path, typer.Argument(metavar="STUDY", help="The study's TOML file.")]


@study_app.command("new")
def new(
    out: Annotated[Path, typer.Argument(metavar="STUDY", help="The file to write; it must not exist yet.")],
    header: Annotated[
        Path | None, typer.Option("--from", help="A CSV file whose first line names the columns.")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="The column to predict.")] = None,
    guess: Annotated[
        bool,
        typer.Option(
            "--guess", help="Guess kinds, ranges and values from the records of the CSV file, which must be public."
        ),
    ] = False,
    image: Annotated[str | None, typer.Option("--image", help="The shape of images, such as 28,28,1.")] = None,
    classes: Annotated[
        str | None, typer.Option("--classes", help="For images: the classes, with commas between.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a study file with comments that say what to fill in.

    Example: coreshot study new study.toml --from columns.csv --target disease
    """
    from coreshot.data.files import read_columns
    from coreshot.study.template import csv_header, image_template, table_template

    refuse_existing(out)
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
        text = image_template(out.stem, _parse_shape(str(image)), _parse_classes(classes))
    write_new(out, text.encode())
    remark = f"study: {out}; fill in what it asks for, then `coreshot study check {out}`"
    print_result({"study": str(out)}, as_json, [remark])


def _parse_shape(text: str) -> list[int]:
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise CoreshotError(f"--image {text}: a shape is lines,columns,channels, such as 28,28,1; change it.")
    return [int(part) for part in parts]


def _parse_classes(text: str | None) -> list[str]:
    names = [part.strip() for part in (text or "").split(",") if part.strip()]
    if len(names) < 2 or len(set(names)) < len(names):
        raise CoreshotError(
            "study new: --image needs --classes, at least two different ones with commas between, such as 0,1,2."
        )
    return names


@study_app.command("check")
def check(study: StudyPath, as_json: Json = False) -> None:
    """Print what a study agrees on, or the first mistake in it.

    Example: coreshot study check study.toml
    """
    from coreshot.privacy.promise import promise
    from coreshot.study.file import read_study

    found = read_study(study)
    _try_out(found)
    values = {
        "name": found.agreement.task,
        "hash": found.hash,
        "task": found.agreement.kind,
        "input_shape": list(found.agreement.input_shape),
        "num_outputs": found.agreement.num_outputs,
        "releases": [release.to_dict() for release in found.releases],
        "promise": promise(found.releases),
    }
    print_result(values, as_json)


def _try_out(study: Study) -> None:
    """Run a closed-form method on a made-up record of each class, so that the coordinator sees the error that every
    site would see. A learner would take too long."""
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
    out: Annotated[Path, typer.Option("--out", help="The file to write; it must not exist yet.")],
    client: Annotated[
        str | None, typer.Option("--client", help="The name of this site; the default is the name of the file --out.")
    ] = None,
    seed: Annotated[
        int,
        typer.Option("--seed", help="The seed of this site's random numbers; noise for privacy does not use it."),
    ] = 0,
    as_json: Json = False,
) -> None:
    """Compute this site's coreset, the one file that leaves the site. Nothing is sent.

    A slow learner shows how much time is left; Ctrl-C stops it, and the same command continues where it stopped.

    Example: coreshot distill study.toml patients.csv --out site.coreset
    """
    from coreshot.privacy.promise import promise
    from coreshot.storage import check_client_name
    from coreshot.study.file import read_study
    from coreshot.study.site_records import read_study_records

    agreed, name = read_study(study), check_client_name(client or out.stem)
    refuse_existing(out)
    records = read_study_records(agreed, data)
    print_now(_findings_table(data, records.findings), as_json)
    message = _distilled(agreed, records, name, seed, out)
    values = {
        "coreset": str(out),
        "client": name,
        "bytes": len(message),
        "records": len(records.x),
        "promise": promise(agreed.releases),
    }
    parts = list(value_lines(values))
    if len(records.x) == 1 and any(release.is_exact for release in agreed.releases):
        parts.append("warning: this file is computed from one record, without noise, and may reveal that record.")
    print_result(values, as_json, parts)


def _distilled(study: Study, records: EncodedRecords, client: str, seed: int, out: Path) -> bytes:
    """The message, which is also written to `out`. A run that is stopped keeps its state in a file beside `out`."""
    import threading
    from contextlib import nullcontext

    from coreshot.api import distill as make_coreset
    from coreshot.runtime.compilation import keep_compiled
    from coreshot.runtime.resumable import StoppedError, stop_on_interrupt

    keep, stop = out.with_name(f"{out.name}.unfinished"), threading.Event()
    # Only a learner with several chunks can stop between them; Ctrl-C ends everything else at once.
    is_slow = study.learner is not None and study.learner.num_chunks > 1
    if is_slow:
        keep_compiled()
    try:
        with working(as_json=True) as progress, stop_on_interrupt(stop) if is_slow else nullcontext():
            message = make_coreset(
                study, records.x, records.y, client=client, seed=seed, progress=progress, keep=keep, stop=stop
            )
    except StoppedError:
        if keep.exists():
            kept = f"{keep} has its state, and the same command goes on there"
        else:
            kept = "this study's work cannot be cut, and will begin anew"
        print_now(f"coreshot: stopped; {kept}.", as_json=True)
        raise typer.Exit(1) from None
    write_new(out, message)
    keep.unlink(missing_ok=True)
    return message


def _findings_table(path: Path, findings: Sequence[Finding]) -> Table:
    rows = (
        (one.name, f"{one.num_present:,}", f"{one.num_missing:,}", f"{one.num_outside:,}", one.note) for one in findings
    )
    return make_table(("column", "present", "missing", "outside", ""), rows, title=str(path))
