"""`coreshot export`: a model for programs that do not have coreshot, and a card for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coreshot.cli.options import ModelPath, SiteSettingsPath
from coreshot.cli.output import Json, print_result, refuse_existing, write_new
from coreshot.cli.records import read_with_warnings
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.fitted.folder import ModelFolder
    from coreshot.fitted.model import FittedModel


def export(
    model: ModelPath,
    onnx: Annotated[
        Path | None, typer.Option("--onnx", help="Write the model here as ONNX: encoded records in, probabilities out.")
    ] = None,
    sklearn: Annotated[
        Path | None,
        typer.Option("--sklearn", help="Write it here as a scikit-learn estimator, by skops, without pickle."),
    ] = None,
    card: Annotated[
        Path | None, typer.Option("--card", help="Write the model's card here: clients, promises, limits; Markdown.")
    ] = None,
    evaluate: Annotated[
        Path | None, typer.Option("--evaluate", help="Records with targets, whose quality the card is to say.")
    ] = None,
    since: Annotated[
        Path | None, typer.Option("--since", help="An earlier card of this model: the new one says what changed.")
    ] = None,
    mlflow: Annotated[
        str | None,
        typer.Option(
            "--mlflow",
            metavar="EXPERIMENT",
            help="Log a run of this name to MLflow (MLFLOW_TRACKING_URI): study, clients, promises, and these files.",
        ),
    ] = None,
    site_settings: SiteSettingsPath = None,
    as_json: Json = False,
) -> None:
    """Write a model as ONNX, as a scikit-learn estimator, or as a card that says who took part, and the promises.

    Example: coreshot export model --onnx model.onnx --card MODEL_CARD.md
    """
    from coreshot.fitted.folder import open_model

    chosen = {"onnx": onnx, "sklearn": sklearn, "card": card}
    paths = {name: path for name, path in chosen.items() if path is not None}
    _check_choice(paths, mlflow, card, evaluate, since)
    earlier = None if since is None else _read_text(since)
    for path in paths.values():
        refuse_existing(path)
    folder = open_model(model)
    fitted = folder.load()
    data = _programs(folder, fitted, onnx, sklearn)
    measured: dict[str, float] = {}
    measures: dict[str, str] | None = None
    if evaluate is not None:
        measured, measures = _measure(fitted, evaluate, site_settings)
    if card is not None:
        from coreshot.fitted.model_card import model_card

        data[card] = model_card(folder, measures, evaluate.name if evaluate else "", earlier).encode()
    for path, content in data.items():
        write_new(path, content)
    written = {name: str(path) for name, path in paths.items()}
    if mlflow is not None:
        from coreshot.fitted.mlflow_run import log_run

        written["mlflow run"] = log_run(folder, mlflow, measured, list(paths.values()))
    print_result(written, as_json)


def _check_choice(
    paths: dict[str, Path], mlflow: str | None, card: Path | None, evaluate: Path | None, since: Path | None
) -> None:
    if not paths and mlflow is None:
        raise CoreshotError("export: say what to write: --onnx FILE, --sklearn FILE, --card FILE or --mlflow NAME.")
    if len(set(paths.values())) < len(paths):
        raise CoreshotError("export: two of the files have one name; give each its own.")
    if evaluate is not None and card is None and mlflow is None:
        raise CoreshotError("export --evaluate: what is measured goes into the card; give --card FILE too.")
    if since is not None and card is None:
        raise CoreshotError("export --since: what changed goes into the card; give --card FILE too.")


def _programs(folder: ModelFolder, fitted: FittedModel, onnx: Path | None, sklearn: Path | None) -> dict[Path, bytes]:
    """The model in the forms that other programs read, by file."""
    data: dict[Path, bytes] = {}
    if onnx is not None:
        from coreshot.fitted.onnx_file import to_onnx

        data[onnx] = to_onnx(fitted)
    if sklearn is not None:
        from coreshot.fitted.exported_estimator import to_skops

        data[sklearn] = to_skops(fitted, folder.study_file.text)
    return data


def _measure(fitted: FittedModel, data: Path, site_settings: Path | None) -> tuple[dict[str, float], dict[str, str]]:
    """As numbers, and as the card says them."""
    from coreshot.report.model_page import evaluate_model

    records = read_with_warnings(fitted.study, data, site_settings)
    overall = evaluate_model(fitted, records.x, records.y, None, owner=records.owner).overall
    measured = {one.name: one.value for one in overall.measures}
    return measured, {"in short": overall.sentence, **{name: f"{value:.4g}" for name, value in measured.items()}}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise CoreshotError(
            f"--since {path}: cannot be read; give a card that `coreshot export --card` wrote."
        ) from None
