"""`coreshot fit` and `forget`: the model of what the sites have sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.arrived import merge_parts, read_coresets, write_partial
from coreshot.cli.options import ModelPath
from coreshot.cli.output import Json, make_table, print_now, print_result, value_lines
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.cli.output import Part
    from coreshot.fitted.folder import ModelFolder
    from coreshot.wire.signatures import Roster

MOST_LISTED = 100  # clients, each in a line; of more, only the suspects
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
        typer.Argument(
            metavar="CORESET...",
            help="Files that sites have sent, or folders of them, in any order; with --add, then MODEL.",
        ),
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
    partial: Annotated[
        str | None,
        typer.Option("--partial", help="Of many coresets of glm, only the sums of one part: 2/8 is the second of 8."),
    ] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Make a model of the folders that --partial wrote.")] = False,
    roster: Annotated[
        Path | None,
        typer.Option("--roster", help="A TOML file of the clients' public keys: refuse what they did not sign."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="The seed of the inference.")] = 0,
    as_json: Json = False,
) -> None:
    """Fit a model to the coresets that have arrived, or add coresets that came late to a model.

    Example: coreshot fit site-*.coreset --study study.toml --out model
    """
    from coreshot.wire.signatures import read_roster

    keys = read_roster(roster) if roster else None
    if add:
        if study or out or inference or partial or merge:
            raise CoreshotError(
                "fit --add: a model keeps its study, its place and its inference; "
                "leave --study, --out and --inference away."
            )
        *late, folder = coresets
        _add_to_model(folder, late, keys)
        _print_model(folder, as_json)
        return
    if study is None or out is None:
        raise CoreshotError("fit: needs --study FILE and --out FOLDER (or --add, to add to a model).")
    if out.exists():
        raise CoreshotError(f"{out}: is there already; add to it with --add, or use another --out.")
    if partial is not None:
        write_partial(coresets, study, out, partial, keys, as_json)
        return
    _fit_all(coresets, study, out, inference, seed, keys, merge)
    _print_model(out, as_json)


def _fit_all(
    coresets: list[Path], study: Path, out: Path, inference: str | None, seed: int, keys: Roster | None, merge: bool
) -> None:
    from coreshot.fitted.folder import write_model
    from coreshot.study.file import read_study_file

    agreed = read_study_file(study)
    has_points = agreed.study.learner is not None
    if inference and not has_points:
        raise CoreshotError(f"--inference {inference}: this study has its posterior in closed form; leave it away.")
    if merge:
        merge_parts(coresets, agreed, out, seed, keys)
        return
    arrived = read_coresets(coresets, agreed.study, str(study))
    chosen = read_inference(inference or "hmc") if has_points else None
    write_model(out, agreed, arrived, chosen, "mass", seed, keys)


def _add_to_model(folder: Path, late: list[Path], keys: Roster | None) -> None:
    from coreshot.fitted.folder import change, open_model

    model = open_model(folder)
    if not late:
        raise CoreshotError("fit --add: give coresets, then the model.")
    new = read_coresets(late, model.study_file.study, str(folder))
    if twice := sorted(set(new) & set(model.clients)):
        raise CoreshotError(f"{folder}: client {twice[0]} is in it already; forget it first.")
    change(model, new, roster=keys)


def forget(
    model: ModelPath,
    client: Annotated[str, typer.Option("--client", help="The client whose coreset is deleted.")],
    as_json: Json = False,
) -> None:
    """Fit a model again as if a client had never taken part, and delete its coreset from the folder.

    Example: coreshot forget model --client site-3
    """
    from coreshot.data.columns import list_names
    from coreshot.fitted.folder import change, open_model
    from coreshot.flower.forgetting import forget_in_run

    opened = open_model(model)
    if opened.local is not None:
        opened.coresets()  # which says what to do
    if client not in opened.clients:
        raise CoreshotError(f"{model}: has no client {client!r}; it has {list_names(opened.clients)}.")
    if len(opened.clients) == 1:
        raise CoreshotError(
            f"{model}: {client} is its only client, and without it there is no model; remove the folder."
        )
    remarks = forget_in_run(model.resolve().parent, opened.study_file.study.hash, client)
    change(opened, {}, [client])
    for remark in remarks:
        print_now(remark, as_json)
    _print_model(model, as_json)


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
    values: dict[str, Any] = {"model": str(folder), "clients": list(model.clients)}
    if len(model.clients) > MOST_LISTED:
        verdicts = Counter(standing["verdict"] for standing in model.standings.values())
        told = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(verdicts.items()))
        lines = value_lines({"model": str(folder), "clients": f"{len(model.clients):,}", "beside the others": told})
        some = [_suspect_line(folder, client) for client in suspects[:MOST_LISTED]]
        more = [f"{len(suspects) - len(some):,} more suspects: see --json"] if len(suspects) > len(some) else []
        print_result({**values, "suspects": suspects, "standings": model.standings}, as_json, (*lines, *some, *more))
        return
    parts = (*value_lines(values), *_model_parts(model, suspects))
    print_result({**values, "suspects": suspects, "standings": model.standings}, as_json, parts)


def _model_parts(model: ModelFolder, suspects: list[str]) -> Iterator[Part]:
    from coreshot.methods.glm import describe_loss

    kind, rows = model.study_file.study.agreement.kind, []
    has_rounding = any("rounding" in standing for standing in model.standings.values())
    for client, standing in model.standings.items():
        agreement = f"{standing['agreement']:.2f} ± {standing['error']:.2f}" if "agreement" in standing else ""
        loss = [describe_loss(kind, standing["rounding"]) if "rounding" in standing else ""] if has_rounding else []
        rows.append((client, standing["verdict"], agreement, standing["words"], *loss))
    heading = ("client", "verdict", "agreement", "", *(["what was lost"] if has_rounding else []))
    yield make_table(heading, rows, title="each client against the model of the others")
    if len(model.clients) == 1:
        yield (
            "warning: one client alone does not show how good the probabilities are elsewhere; "
            "use them for this client only."
        )
    shares = {client: standing["share"] for client, standing in model.standings.items() if "share" in standing}
    if len(shares) > 1:
        largest = max(shares, key=lambda client: (shares[client], client))
        yield f"{largest} has {shares[largest]:.0%} of the records, by its own count: the largest share"
    for client, standing in model.standings.items():
        if "copy_of" in standing:
            yield (
                f"warning: {standing['equal']:.0%} of the numbers of {client} are those of {standing['copy_of']}; "
                "ask both whose they are."
            )
    for client in suspects:
        yield _suspect_line(model.path, client)


def _suspect_line(folder: Path, client: str) -> str:
    return (
        f"warning: {client} may be broken or hostile; ask its owner, "
        f"or fit without it (`coreshot forget {folder} --client '{client}'`)."
    )
