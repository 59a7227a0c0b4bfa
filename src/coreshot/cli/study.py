"""`coreshot study new | check`: the public agreement of a study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.options import StudyPath
from coreshot.cli.output import Json, make_table, print_result, refuse_existing, value_lines, write_new
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.cli.output import Part
    from coreshot.study import Study
    from coreshot.study.draft import Draft, DraftColumn
    from coreshot.study.overview import Mark, SiteNeeds

study_app = typer.Typer(no_args_is_help=True, help="The public agreement of a study: write it, check it.")
RECORDS = (1_000, 100_000)  # of the sites whose memory `study check` estimates


@study_app.command("new")
def new(
    out: Annotated[Path, typer.Argument(metavar="STUDY", help="The file to write; it must not exist yet.")],
    source: Annotated[
        Path | None, typer.Option("--from", help="A table whose first line names the columns, such as a CSV file.")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="The column to predict.")] = None,
    guess: Annotated[
        bool,
        typer.Option(
            "--guess",
            help="Guess kinds, ranges and values from the records of --from. "
            "Identifiers, dates, free text and rare values are left out.",
        ),
    ] = False,
    interactive: Annotated[
        bool, typer.Option("--interactive", help="Ask question by question; --from and --guess give defaults.")
    ] = False,
    regression: Annotated[bool, typer.Option("--regression", help="The target is a quantity, not classes.")] = False,
    positive: Annotated[
        str | None,
        typer.Option("--positive", help="With --guess: two classes, these values of the target against the rest."),
    ] = None,
    classes: Annotated[
        str | None, typer.Option("--classes", help="The classes of the target, with commas between.")
    ] = None,
    image: Annotated[str | None, typer.Option("--image", help="The shape of images, such as 28,28,1.")] = None,
    as_json: Json = False,
) -> None:
    """Write a study file with comments that say what to fill in.

    Example: coreshot study new study.toml --from columns.csv --target disease
    """
    refuse_existing(out)
    if image is not None:
        only_images = not (source or target or guess or interactive or regression or positive)
        _insist(only_images, "--image goes with --classes only; leave the others out")
        _write_image_study(out, image, classes, as_json)
        return
    _insist(interactive or source is not None, "give --from FILE and --target, or --interactive, or --image SHAPE")
    _insist(interactive or target is not None, "--from needs --target, the column to predict; give both")
    _insist(source is not None or not guess, "--guess needs --from, the table to guess from; give both")
    _insist(guess or positive is None, "--positive needs --guess, which finds the other values; give both")
    _insist(
        sum(map(bool, (classes, positive, regression))) < 2,
        "--classes, --positive and --regression exclude each other; give one",
    )
    _write_table_study(out, source, target, (classes, positive, regression), guess, interactive, as_json)


def _insist(is_right: bool, sentence: str) -> None:
    if not is_right:
        raise CoreshotError(f"study new: {sentence}.")


def _write_image_study(out: Path, image: str, classes: str | None, as_json: bool) -> None:
    from coreshot.study.template import image_template

    write_new(out, image_template(out.stem, _parse_shape(image), _split(classes, "--classes")).encode())
    print_result({"study": str(out)}, as_json, [_next_step(out)])


def _write_table_study(
    out: Path,
    path: Path | None,
    target: str | None,
    decided: tuple[str | None, str | None, bool],
    is_guess: bool,
    is_interactive: bool,
    as_json: bool,
) -> None:
    from coreshot.study.guess_target import TargetChoice
    from coreshot.study.new import open_source
    from coreshot.study.template import table_template

    classes, positive, regression = decided
    choice = TargetChoice(
        _split(classes, "--classes") if classes is not None else (),
        _split(positive, "--positive", 1) if positive is not None else (),
        regression,
    )
    source = open_source(path, with_cells=is_guess) if path else None
    if is_interactive:
        from coreshot.cli.interview import interview

        draft = interview(out.stem, source, target, choice, as_json)
    elif source is not None and target is not None:
        draft = source.draft(out.stem, target, choice)
    write_new(out, table_template(draft).encode())
    read_as = source.read_as if source else ""
    values = {**_draft_values(out, draft), "read_as": read_as}
    print_result(values, as_json, [f"study: {out}"] if is_interactive else _draft_parts(out, draft, read_as))
    if is_interactive and not as_json:
        check(out)


def _parse_shape(text: str) -> list[int]:
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise CoreshotError(f"--image {text}: a shape is lines,columns,channels, such as 28,28,1; change it.")
    return [int(part) for part in parts]


def _split(text: str | None, option: str, at_least: int = 2) -> list[str]:
    names = [part.strip() for part in (text or "").split(",") if part.strip()]
    if len(names) < at_least or len(set(names)) < len(names):
        raise CoreshotError(
            f"study new: {option} wants at least {at_least} different values with commas between, such as 0,1,2; "
            "give them."
        )
    return names


def _draft_values(out: Path, draft: Draft) -> dict[str, Any]:
    return {
        "study": str(out),
        "task": draft.target.task,
        "columns": [{"name": one.name, "kind": one.kind, "note": one.note} for one in draft.kept],
        "left_out": [{"name": one.name, "reason": one.reason} for one in draft.left_out],
        "questions": list(draft.target.questions),
    }


def _draft_parts(out: Path, draft: Draft, read_as: str) -> Iterator[Part]:
    from coreshot.study.guess import MIN_RECORDS

    if read_as:
        yield f"read as: {read_as}"
    guessed = [column for column in draft.kept if column.is_guessed]
    if guessed:
        rows = ((one.name, one.kind or "", _extent(one), one.note) for one in guessed)
        yield make_table(("guessed column", "kind", "range or values", ""), rows)
    if draft.left_out:
        yield make_table(("left out", "because it"), ((one.name, one.reason) for one in draft.left_out))
        yield "To have one of these in the study, add a [[table.column]] for it; --interactive asks for each."
    num_values = sum(len(column.values) for column in guessed)
    if num_values:
        yield (
            f"The study is public, and now holds {num_values:,} values of categories that at least "
            f"{MIN_RECORDS} records have: read them, and remove what should not be known."
        )
    yield from draft.target.questions
    yield _next_step(out)


def _extent(column: DraftColumn) -> str:
    if column.range is not None:
        return " to ".join(end if isinstance(end, str) else f"{end:,.12g}" for end in column.range)
    return f"{len(column.values)} values" if column.values else ""


def _next_step(out: Path) -> str:
    return f"study: {out}; fill in and check what it marks, then `coreshot study check {out}`"


@study_app.command("check")
def check(study: StudyPath, as_json: Json = False) -> None:
    """Print what a study agrees on, what is still to be filled in, and what a site needs; or the first mistake.

    Example: coreshot study check study.toml
    """
    from coreshot.study.file import read_study_file, read_study_text
    from coreshot.study.overview import find_marks, site_needs
    from coreshot.study.site_records import refuse_telling_refusals
    from coreshot.study.template import FILL_IN

    marks = find_marks(read_study_text(study))
    to_fill_in = [mark for mark in marks if mark.word == FILL_IN]
    try:
        found = read_study_file(study).study
        refuse_telling_refusals(found)
        _try_out(found)
    except CoreshotError:
        if to_fill_in:  # which explains the mistake
            raise _unfilled(study, to_fill_in) from None
        raise
    if to_fill_in and as_json:
        raise _unfilled(study, to_fill_in)
    needs = [site_needs(found, count) for count in RECORDS]
    print_result(_check_values(found, marks, needs), as_json, _check_parts(found, marks, needs))
    if to_fill_in:
        raise _unfilled(study, to_fill_in)


def _unfilled(path: Path, marks: Sequence[Mark]) -> CoreshotError:
    listed = ", ".join(f"{mark.line} ({mark.what})" for mark in marks[:8]) + (", ..." if len(marks) > 8 else "")
    return CoreshotError(
        f"study {path}: {len(marks)} {'line still says' if len(marks) == 1 else 'lines still say'} {marks[0].word}: "
        f"{listed}; fill in what is asked for, and remove these words."
    )


def _check_values(study: Study, marks: Sequence[Mark], needs: Sequence[SiteNeeds]) -> dict[str, Any]:
    from coreshot.data.schema import Table
    from coreshot.privacy.promise import promise
    from coreshot.study.overview import describe_inputs

    keys = ("name", "kind", "range_or_values", "num_inputs", "outside", "may_be_missing")
    columns = describe_inputs(study.inputs) if isinstance(study.inputs, Table) else ()
    return {
        "name": study.agreement.task,
        "hash": study.hash,
        "task": study.agreement.kind,
        "input_shape": list(study.agreement.input_shape),
        "num_outputs": study.agreement.num_outputs,
        "columns": [dict(zip(keys, column, strict=True)) for column in columns],
        "marked": [asdict(mark) for mark in marks],
        "site_needs": [asdict(one) for one in needs],
        "releases": [release.to_dict() for release in study.releases],
        "promise": promise(study.releases),
    }


def _check_parts(study: Study, marks: Sequence[Mark], needs: Sequence[SiteNeeds]) -> Iterator[Part]:
    from coreshot.data.schema import Table
    from coreshot.privacy.promise import promise
    from coreshot.study.overview import PROGRAM_BYTES, describe_inputs, describe_target

    terms = study.agreement
    yield from value_lines({"name": terms.task, "hash": study.hash, "task": terms.kind})
    if study.target is not None:
        yield f"target: {describe_target(study.target)}"
    if isinstance(study.inputs, Table):
        heading = ("column", "kind", "range or values", "inputs", "any other value is", "may be missing")
        yield make_table(heading, (map(str, column) for column in describe_inputs(study.inputs)))
    yield f"inputs: {' x '.join(f'{side:,}' for side in terms.input_shape)}"
    if marks:
        yield make_table(("line", "still marked", "what"), ((f"{one.line}", one.word, one.what) for one in marks))
    yield f"a site's file: about {max(one.file_bytes for one in needs):,} bytes"
    for one in needs:
        kept = f" and {one.kept_in}" if one.kept_in else ""
        yield (
            f"a site of {one.num_records:,} records: about {(PROGRAM_BYTES + one.data_bytes) / 1e6:,.0f} MB of memory, "
            f"{one.data_bytes / 1e6:,.0f} MB of it for records{kept}"
        )
    yield from value_lines({"releases": [release.to_dict() for release in study.releases]})
    yield promise(study.releases)


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
