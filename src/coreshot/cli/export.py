"""`coreshot export`: a model for programs that do not have coreshot, and a card for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coreshot.cli.options import ModelPath, SiteSettingsPath
from coreshot.cli.output import Json, print_result, refuse_existing, write_new
from coreshot.cli.records import read_with_warnings
from coreshot.errors import CoreshotError


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
    site_settings: SiteSettingsPath = None,
    as_json: Json = False,
) -> None:
    """Write a model as ONNX, as a scikit-learn estimator, or as a card that says who took part, and the promises.

    Example: coreshot export model --onnx model.onnx --card MODEL_CARD.md
    """
    from coreshot.fitted.folder import open_model

    chosen = {"onnx": onnx, "sklearn": sklearn, "card": card}
    paths = {name: path for name, path in chosen.items() if path is not None}
    if not paths:
        raise CoreshotError("export: say what to write: --onnx FILE, --sklearn FILE or --card FILE.")
    if len(set(paths.values())) < len(paths):
        raise CoreshotError("export: two of the files have one name; give each its own.")
    if evaluate is not None and card is None:
        raise CoreshotError("export --evaluate: what is measured goes into the card; give --card FILE too.")
    for path in paths.values():
        refuse_existing(path)
    folder = open_model(model)
    fitted = folder.load()
    data: dict[Path, bytes] = {}
    if onnx is not None:
        from coreshot.fitted.onnx_file import to_onnx

        data[onnx] = to_onnx(fitted)
    if sklearn is not None:
        from coreshot.fitted.exported_estimator import to_skops

        data[sklearn] = to_skops(fitted, folder.study_file.text)
    if card is not None:
        from coreshot.fitted.model_card import model_card

        measures = None
        if evaluate is not None:
            from coreshot.report.model_page import evaluate_model

            records = read_with_warnings(fitted.study, evaluate, site_settings)
            overall = evaluate_model(fitted, records.x, records.y, None).overall
            measures = {"in short": overall.sentence, **{one.name: f"{one.value:.4g}" for one in overall.measures}}
        data[card] = model_card(folder, measures, evaluate.name if evaluate else "").encode()
    for path, content in data.items():
        write_new(path, content)
    print_result({name: str(path) for name, path in paths.items()}, as_json)
