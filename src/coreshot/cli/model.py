"""`coreshot fit`, `forget`, `predict`, `evaluate`: the model of what the sites have sent."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.options import DataPath
from coreshot.cli.output import (
    Json,
    format_value,
    make_table,
    print_now,
    print_result,
    refuse_existing,
    value_lines,
    write_new,
)
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.cli.output import Part
    from coreshot.fitted.folder import ModelFolder
    from coreshot.study import Study

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that `coreshot fit` has written.")]
# For studies with few points; for others give a file. HMC adapts its step size, so the first one hardly matters.
DEFAULTS: dict[str, dict[str, Any]] = {
    "hmc": {
        "step_size": 1e-2,
        "inverse_mass": 1.0,
        "num_integration_steps": 30,
        "num_warmup": 300,
        "num_samples": 100,
        "target_acceptance": 0.8,
        "map_steps": 1000,
    },
    "map_estimate": {"optimizer": "adam", "step_size": 1e-2, "num_steps": 2000},
}


def fit(
    coresets: Annotated[
        list[Path],
        typer.Argument(metavar="CORESET...", help="Files that sites have sent, in any order; with --add, then MODEL."),
    ],
    study: Annotated[Path | None, typer.Option("--study", help="The study's TOML file.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder to write the model to; it must not exist yet.")
    ] = None,
    inference: Annotated[
        str | None,
        typer.Option("--inference", help="For coresets of points: hmc (the default), map_estimate, or a TOML file."),
    ] = None,
    add: Annotated[
        bool,
        typer.Option("--add", help="Add late coresets to an existing model: coreshot fit --add late.coreset model"),
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="The seed of the inference.")] = 0,
    as_json: Json = False,
) -> None:
    """Fit a model to the coresets that have arrived, or add coresets that came late to a model.

    Example: coreshot fit site-*.coreset --study study.toml --out model
    """
    from coreshot.fitted.folder import by_client, write_model
    from coreshot.study.file import read_study_file

    if add:
        if study or out or inference:
            raise CoreshotError(
                "fit --add: a model keeps its study, its place and its inference; "
                "leave --study, --out and --inference away."
            )
        *late, folder = coresets
        _add_to_model(folder, late)
        _print_model(folder, as_json)
        return
    if study is None or out is None:
        raise CoreshotError("fit: needs --study FILE and --out FOLDER (or --add, to add to a model).")
    if out.exists():
        raise CoreshotError(f"{out}: is there already; add to it with --add, or use another --out.")
    agreed = read_study_file(study)
    has_points = agreed.study.learner is not None
    if inference and not has_points:
        raise CoreshotError(f"--inference {inference}: this study has its posterior in closed form; leave it away.")
    arrived = by_client({path: _read(path) for path in coresets})
    chosen = read_inference(inference or "hmc") if has_points else None
    write_model(out, agreed, arrived, chosen, "mass", seed)
    _print_model(out, as_json)


def _add_to_model(folder: Path, late: list[Path]) -> None:
    from coreshot.fitted.folder import by_client, open_model, refit

    model = open_model(folder)
    new, known = by_client({path: _read(path) for path in late}), model.coresets()
    if not new:
        raise CoreshotError("fit --add: give coresets, then the model.")
    if twice := sorted(set(new) & set(known)):
        raise CoreshotError(f"{folder}: client {twice[0]} is in it already; forget it first.")
    refit(model, {**known, **new})


def forget(
    model: ModelPath,
    client: Annotated[str, typer.Option("--client", help="The client whose coreset is deleted.")],
    as_json: Json = False,
) -> None:
    """Fit a model again as if a client had never taken part, and delete its coreset from the folder.

    Example: coreshot forget model --client site-3
    """
    from coreshot.fitted.folder import open_model, refit
    from coreshot.flower.forgetting import forget_in_run

    opened = open_model(model)
    coresets = opened.coresets()
    if client not in coresets:
        raise CoreshotError(f"{model}: has no client {client!r}; it has {', '.join(coresets)}.")
    if len(coresets) == 1:
        raise CoreshotError(
            f"{model}: {client} is its only client, and without it there is no model; remove the folder."
        )
    del coresets[client]
    remarks = forget_in_run(model.resolve().parent, opened.study_file.study.hash, client)
    refit(opened, coresets)
    for remark in remarks:
        print_now(remark, as_json)
    _print_model(model, as_json)


def predict(
    model: ModelPath,
    data: DataPath,
    out: Annotated[Path, typer.Option("--out", help="The CSV file to write; it must not exist yet.")],
    as_json: Json = False,
) -> None:
    """Predict the target of every record: class probabilities, or a mean and an interval.

    The uncertainty has two parts: epistemic, from the model, and aleatoric, from the noise of the target.

    Example: coreshot predict model new-patients.csv --out predictions.csv
    """
    from coreshot.fitted.folder import open_model
    from coreshot.study.site_records import read_study_records

    refuse_existing(out)
    fitted = open_model(model).load()
    records = read_study_records(fitted.study, data, needs_target=False)
    rows = _prediction_rows(fitted.study, fitted.predict(records.x))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_new(out, buffer.getvalue().encode())
    print_result({"predictions": str(out), "records": len(rows)}, as_json)


def evaluate(
    model: ModelPath,
    data: DataPath,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write an HTML page about the model here; it needs no other file.")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="Write the reliability diagram, or the coverage of intervals, here as PNG."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by", help="The column that names the client of a record; the default is client, where there is one."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure a model on records with known targets, in all and for each client; also as a page or a picture.

    Example: coreshot evaluate model held-out.csv --html model.html
    """
    from coreshot.fitted.folder import open_model
    from coreshot.report.drawing import render
    from coreshot.report.model_page import evaluate_model, model_page
    from coreshot.study.site_records import read_study_records

    if html is not None and html == picture:
        raise CoreshotError(f"{html}: is to be both the page and the picture; give two names.")
    for path in (html, picture):
        if path is not None:
            refuse_existing(path)
    folder = open_model(model)
    fitted = folder.load()
    records = read_study_records(fitted.study, data)
    found = evaluate_model(fitted, records.x, records.y, _owners(data, by))
    written = {}
    if html is not None:
        write_new(html, model_page(folder, fitted, found, data.name))
        written["page"] = str(html)
    if picture is not None:
        write_new(picture, render(found.drawing, "png"))
        written["picture"] = str(picture)
    values = {**found.overall, **written}
    print_result({**values, "clients": found.clients}, as_json, _evaluation_parts(values, found.overall, found.clients))


def _evaluation_parts(
    values: Mapping[str, Any], overall: Mapping[str, Any], clients: Mapping[str, Mapping[str, Any]]
) -> Iterator[Part]:
    yield from value_lines(values)
    if clients:
        rows = ((name, *map(format_value, row.values())) for name, row in clients.items())
        yield make_table(("client", *overall), rows)


def _owners(data: Path, by: str | None) -> Any:
    """The client of each record, as an array; None where the file does not name clients."""
    import numpy as np

    from coreshot.data.files import read_columns

    columns = read_columns(data) if data.is_file() else {}
    cells = columns.get(by or "client")
    if cells is None and by is not None:
        raise CoreshotError(f"--by {by}: {data} has no such column; it has {', '.join(columns) or 'none'}.")
    return None if cells is None else np.asarray(["(not given)" if cell is None else str(cell) for cell in cells])


def _prediction_rows(study: Study, predicted: Any) -> list[dict[str, str]]:
    from coreshot.data.schema import Classes, Quantity

    if isinstance(study.target, Classes):
        names = study.target.classes
        return [
            {
                "record": str(line),
                "prediction": names[int(mean.argmax())],
                **{f"probability {name}": f"{value:.6g}" for name, value in zip(names, mean, strict=True)},
                "epistemic": f"{epistemic[mean.argmax()]:.6g}",
                "aleatoric": f"{aleatoric[mean.argmax()]:.6g}",
            }
            for line, (mean, epistemic, aleatoric) in enumerate(
                zip(predicted.mean, predicted.epistemic, predicted.aleatoric, strict=True), 1
            )
        ]
    assert isinstance(study.target, Quantity)
    mean = study.target.in_units(predicted.mean)[:, 0]
    epistemic, aleatoric = (
        study.target.in_units(part, is_deviation=True)[:, 0] for part in (predicted.epistemic, predicted.aleatoric)
    )
    total = (epistemic**2 + aleatoric**2) ** 0.5
    return [
        {
            "record": str(line),
            "mean": f"{mean[line - 1]:.6g}",
            "low 90%": f"{mean[line - 1] - 1.6449 * total[line - 1]:.6g}",
            "high 90%": f"{mean[line - 1] + 1.6449 * total[line - 1]:.6g}",
            "epistemic": f"{epistemic[line - 1]:.6g}",
            "aleatoric": f"{aleatoric[line - 1]:.6g}",
        }
        for line in range(1, len(mean) + 1)
    ]


def read_inference(text: str) -> Any:
    """The inference in a TOML file, or one by name, with settings for small studies."""
    import tomllib

    from coreshot.config import decode_named
    from coreshot.inference.registry import INFERENCES

    path = Path(text)
    if path.suffix == ".toml":
        if not path.is_file():
            raise CoreshotError(
                f"--inference {text}: there is no such file; give one with name = ... and its settings."
            )
        try:
            values = tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise CoreshotError(f"--inference {text}: not valid TOML ({error}); mend that line.") from None
        return decode_named(INFERENCES, values, f"inference {text}", "inference")
    return decode_named(INFERENCES, {"name": text, **DEFAULTS.get(text, {})}, f"--inference {text}", "inference")


def _print_model(folder: Path, as_json: bool) -> None:
    """Print the clients of a model and how each agrees with the others."""
    from coreshot.fitted.folder import open_model

    model = open_model(folder)
    suspects = [client for client in model.clients if model.standings[client]["verdict"] == "suspect"]
    values = {"model": str(folder), "clients": list(model.clients)}
    parts = (*value_lines(values), *_model_parts(model, suspects))
    print_result({**values, "suspects": suspects, "standings": model.standings}, as_json, parts)


def _model_parts(model: ModelFolder, suspects: list[str]) -> Iterator[Part]:
    rows = []
    for client, standing in model.standings.items():
        agreement = f"{standing['agreement']:.2f} ± {standing['error']:.2f}" if "agreement" in standing else ""
        rows.append((client, standing["verdict"], agreement, standing["words"]))
    yield make_table(("client", "verdict", "agreement", ""), rows, title="each client against the model of the others")
    if len(model.clients) == 1:
        yield (
            "warning: one client alone does not show how good the probabilities are elsewhere; "
            "use them for this client only."
        )
    for client in suspects:
        yield (
            f"warning: {client} may be broken or hostile; ask its owner, "
            f"or fit without it (`coreshot forget {model.path} --client '{client}'`)."
        )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CoreshotError(f"{path}: cannot be read ({error.strerror}); give the path of a coreset.") from None
