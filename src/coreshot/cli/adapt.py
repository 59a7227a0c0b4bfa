"""`coreshot adapt`: a federation's model fitted to the place where it is used. Nothing leaves this place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.options import ModelPath, SiteSettingsPath
from coreshot.cli.output import Json, print_now, print_result, refuse_existing, value_lines
from coreshot.cli.records import read_with_warnings
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.fitted.adapting import Adapted
    from coreshot.fitted.folder import ModelFolder
    from coreshot.fitted.model import Contents

STAYS = "the local model is made of this place's records, without noise: keep it here"


def adapt(
    model: ModelPath,
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA",
            help="This place's records: CSV, Excel, parquet, npz, or a folder of images. Not needed with --share.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder to write the local model to; it must not exist yet.")
    ] = None,
    unlabelled: Annotated[
        bool,
        typer.Option("--unlabelled", help="The records have no labels: estimate the shares of classes from them."),
    ] = False,
    share: Annotated[
        list[str] | None,
        typer.Option("--share", metavar="CLASS=SHARE", help="A known share of a class, such as ill=0.75; repeatable."),
    ] = None,
    client: Annotated[
        str | None,
        typer.Option("--client", help="This place's name in the model, if it took part: it is taken out first."),
    ] = None,
    site_settings: SiteSettingsPath = None,
    as_json: Json = False,
) -> None:
    """Fit a federation's model to this place: by its own records with labels, or by its shares of classes.

    With labels, the federation's model is the prior, and how far to trust it follows from predictions of records that
    were left out. Without labels (--unlabelled), only the shares of classes change, and only if the clients' places
    show that this helps.

    Example: coreshot adapt model our-patients.csv --out local-model
    """
    from coreshot.fitted.folder import open_model
    from coreshot.fitted.local_folder import write_local

    if out is None:
        raise CoreshotError("adapt: needs --out FOLDER, the place of the local model.")
    if data is None and not share:
        raise CoreshotError("adapt: needs DATA, this place's records, or --share CLASS=SHARE; give one of them.")
    if share and unlabelled:
        raise CoreshotError("adapt: shares are known (--share) or are to be estimated (--unlabelled); leave one away.")
    refuse_existing(out)
    folder = open_model(model)
    adapted = _adapt(folder, data, unlabelled, _parse_shares(share or []), client, site_settings, as_json)
    write_local(out, folder, adapted)
    values = {"model": str(out), **adapted.facts}
    print_result(values, as_json, (*value_lines({"model": str(out)}), *adapted.words, *([STAYS] if data else [])))


def _adapt(
    folder: ModelFolder,
    data: Path | None,
    unlabelled: bool,
    shares: dict[str, float],
    client: str | None,
    site_settings: Path | None,
    as_json: bool,
) -> Adapted:
    from coreshot.fitted.adapting import adapt_to_records, adapt_to_shares, adapt_to_unlabelled
    from coreshot.fitted.model import read_messages

    study = folder.study_file.study
    contents: Contents = read_messages(study, folder.coresets().values())
    has_labels = not unlabelled and not shares
    records = None if data is None else read_with_warnings(study, data, site_settings, needs_target=has_labels)
    inputs = None if records is None else records.x
    contents = _without_own(folder, contents, inputs, client, as_json)
    is_same = len(contents) == len(folder.clients)
    # With labels, the others' sums are needed; a model of points would take long to fit again.
    fitted = folder.load() if is_same and (not has_labels or study.learner) else _fit_again(folder, contents)
    if shares:
        return adapt_to_shares(fitted, contents, shares, inputs)
    assert records is not None
    if unlabelled:
        return adapt_to_unlabelled(fitted, contents, inputs)
    return adapt_to_records(fitted, inputs, records.y)


def _without_own(folder: ModelFolder, contents: Contents, x: Any, client: str | None, as_json: bool) -> Contents:
    """Without the client that is this place: its records would count twice."""
    from coreshot.fitted.adapting import find_client

    if client is not None and client not in contents:
        raise CoreshotError(f"--client {client}: is not in {folder.path}; there are {', '.join(sorted(contents))}.")
    if client is None and x is not None:
        client = find_client(folder.study_file.study, contents, x)
        if client is not None:
            print_now(f"these are the records of client {client}: its coreset is taken out first", as_json)
    if client is not None and len(contents) == 1:
        raise CoreshotError(
            f"{folder.path}: {client} is its only client; without it there is nothing to adapt from, use it as it is."
        )
    return {name: content for name, content in contents.items() if name != client}


def _fit_again(folder: ModelFolder, contents: Contents) -> Any:
    from coreshot.fitted.folder import stored_inference
    from coreshot.fitted.model import fit_contents

    return fit_contents(folder.study_file.study, contents, stored_inference(folder), folder.weighting, folder.seed)


def _parse_shares(texts: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            name, value = "", 0.0
        if not name or name in found:
            raise CoreshotError(f"--share {text}: write each class once, such as --share ill=0.75.")
        found[name] = value
    return found
