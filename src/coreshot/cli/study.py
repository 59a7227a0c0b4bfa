"""`coreshot study new | check`: the public agreement of a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coreshot.cli.options import StudyPath
from coreshot.cli.output import Json, print_result, refuse_existing, write_new
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.study import Study

study_app = typer.Typer(no_args_is_help=True, help="The public agreement of a study: write it, check it.")


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
