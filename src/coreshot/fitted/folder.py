"""A fitted model as a folder: a coordinator keeps it, sends it, adds clients to it and removes clients from it.

    model.toml              format, study hash, inference, the clients and how each agrees with the others, and the
                            roster of their public keys if there was one;
                            written last: a file that it does not name is not part of the model
    study.toml              the study, as it was agreed on
    coresets/NAME.coreset   what each client sent
    posterior-HASH.safetensors

A change writes new files beside the old ones, then replaces model.toml in one step, then removes files that it no
longer names: a kill at any moment leaves the old model or the new one. To add or to forget a client is to fit again
from the stored coresets, so the result is that of a fit to these coresets alone.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from coreshot.config import decode_named, encode_named
from coreshot.errors import CoreshotError
from coreshot.fitted.model import (
    FittedModel,
    compare_clients,
    fit_contents,
    read_messages,
    record_shares,
    refuse_copies,
)
from coreshot.fitted.near_copies import near_copies
from coreshot.fitted.posterior_file import posterior_bytes, read_posterior
from coreshot.inference.protocol import Inference
from coreshot.inference.registry import INFERENCES
from coreshot.methods.glm import SiteMessage
from coreshot.methods.protocol import Content, Weighting
from coreshot.storage import PRIVATE, check_client_name, write_bytes
from coreshot.study.file import StudyFile, read_study_file
from coreshot.wire.messages import read_header
from coreshot.wire.signatures import Roster, check_roster, check_senders

FORMAT = 1


@dataclass(frozen=True)
class ModelFolder:
    """What is in the folder; the posterior is read when it is asked for."""

    path: Path
    study_file: StudyFile
    inference: dict[str, Any] | None  # settings by name; None: of a study whose posterior is in closed form
    weighting: Weighting
    seed: int
    clients: tuple[str, ...]
    standings: dict[str, dict[str, Any]]  # of each client: verdict, words, numbers; of glm, `rounding` of its message
    roster: dict[str, str] | None = None  # public keys of clients; None: nobody's signature is checked
    local: dict[str, Any] | None = None  # how it was adapted to a site; None: the federation's own

    def coresets(self) -> dict[str, bytes]:
        if self.local is not None:
            raise CoreshotError(f"{self.path}: was adapted to a site, and has no coresets; use the federation's model.")
        return {client: (self.path / "coresets" / f"{client}.coreset").read_bytes() for client in self.clients}

    @property
    def posterior(self) -> str:
        """The name of its file, which has the hash of what is in it."""
        return str(_values(self.path)["posterior"])

    def load(self) -> FittedModel:
        study = self.study_file.study
        file = self.path / self.posterior
        if not file.is_file():
            raise CoreshotError(f"{self.path}: {file.name} is missing; fit the model again.")
        posterior = read_posterior(study, file.read_bytes(), str(file))
        return FittedModel(study, posterior)


def open_model(path: Path) -> ModelFolder:
    values = _values(path)
    if values.get("format") != FORMAT:
        raise CoreshotError(
            f"{path}: is of format {values.get('format')}, this coreshot reads {FORMAT}; use the version that wrote it."
        )
    absent = next((key for key in ("posterior", "weighting", "seed", "clients") if key not in values), None)
    if absent is not None:
        raise CoreshotError(f"{path / 'model.toml'}: the key {absent!r} is missing; fit the model again.")
    study = read_study_file(path / "study.toml")
    return ModelFolder(
        path,
        study,
        values.get("inference"),
        values["weighting"],
        values["seed"],
        tuple(values["clients"]),
        values.get("standing", {}),
        check_roster(values["roster"], str(path / "model.toml")) if "roster" in values else None,
        values.get("local"),
    )


def _values(path: Path) -> dict[str, Any]:
    file = path / "model.toml"
    if not file.is_file():
        raise CoreshotError(
            f"{path}: holds no coreshot model (there is no model.toml); give a folder that `coreshot fit` has written."
        )
    try:
        return tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CoreshotError(f"{file}: not valid TOML ({error}); fit the model again.") from None


def by_client(coresets: Mapping[Path, bytes]) -> dict[str, bytes]:
    """Under the names that the messages themselves bear."""
    found: dict[str, bytes] = {}
    for path, data in coresets.items():
        client = check_client_name(read_header(data, str(path))["client"])
        if client in found and found[client] != data:
            raise CoreshotError(
                f"{path}: is of client {client}, as is another of the files, and they differ; keep one of them."
            )
        found[client] = data
    return found


def write_model(
    path: Path,
    study_file: StudyFile,
    coresets: Mapping[str, bytes],
    inference: Inference | None,
    weighting: Weighting,
    seed: int,
    roster: Roster | None = None,
) -> FittedModel:
    """Fit, and put the folder into that state. With a roster, every coreset must be signed by its client."""
    if path.exists() and not (path / "model.toml").is_file() and any(path.iterdir()):
        raise CoreshotError(f"{path}: is in the way, and is no coreshot model; move it, or use another --out.")
    study, ordered = study_file.study, {client: coresets[client] for client in sorted(coresets)}
    # Before anything is written: messages may be unusable.
    if roster is not None:
        check_senders(ordered.values(), roster)
    refuse_copies(ordered.values())
    contents = read_messages(study, ordered.values())
    model = fit_contents(study, contents, inference, weighting, seed)
    write_bytes(path / "study.toml", study_file.text.encode())
    for client, data in ordered.items():
        write_bytes(path / "coresets" / f"{client}.coreset", data, PRIVATE)
    data = posterior_bytes(model.posterior)
    name = f"posterior-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
    write_bytes(path / name, data)
    settings = encode_named(INFERENCES, inference) if inference is not None else None
    shares, copies = record_shares(study, contents), near_copies(contents)
    standings = {
        client: {
            **_rounded({**asdict(standing), "share": shares.get(client)}),
            **_rounding(contents[client]),
            **({"copy_of": copies[client][0], "equal": round(copies[client][1], 4)} if client in copies else {}),
        }
        for client, standing in compare_clients(study, contents).items()
    }
    write_bytes(
        path / "model.toml", _model_toml(study.hash, name, standings, settings, weighting, seed, roster).encode()
    )
    _remove_unnamed(path, name, set(ordered))
    return model


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    """To what a person reads, so that the last bit of a sum is in no file."""
    return {
        key: round(value, 4) if isinstance(value, float) else value
        for key, value in values.items()
        if value is not None
    }


def _rounding(content: Content) -> dict[str, float]:
    """What rounding changed in the client's own predictions, where its message says so."""
    return {"rounding": round(content.loss, 5)} if isinstance(content, SiteMessage) else {}


def _remove_unnamed(path: Path, posterior: str, clients: set[str]) -> None:
    for file in path.glob("posterior-*.safetensors"):
        if file.name != posterior:
            file.unlink()
    for file in (path / "coresets").glob("*"):
        if file.name.removesuffix(".coreset") not in clients:
            file.unlink()
    for file in [*path.glob(".*.tmp"), *(path / "coresets").glob(".*.tmp")]:  # of a run that was killed
        file.unlink()


def _model_toml(
    study_hash: str,
    posterior: str,
    standings: Mapping[str, Mapping[str, Any]],
    inference: dict[str, Any] | None,
    weighting: str,
    seed: int,
    roster: Roster | None,
) -> str:
    values = {
        "format": FORMAT,
        "study": study_hash,
        "posterior": posterior,
        "weighting": weighting,
        "seed": seed,
        "clients": list(standings),
        "inference": inference,
        "standing": standings,
        "roster": roster,
    }
    return tomli_w.dumps(_without_none(values))


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """TOML has no value for None: a key without a value is left out."""
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }


def stored_inference(model: ModelFolder) -> Inference | None:
    return (
        decode_named(INFERENCES, model.inference, f"{model.path}, inference", "inference")
        if model.inference is not None
        else None
    )


def refit(model: ModelFolder, coresets: Mapping[str, bytes], roster: Roster | None = None) -> FittedModel:
    """With another roster, or with the one that the model was fitted with."""
    inference, keys = stored_inference(model), model.roster if roster is None else roster
    return write_model(model.path, model.study_file, coresets, inference, model.weighting, model.seed, keys)
