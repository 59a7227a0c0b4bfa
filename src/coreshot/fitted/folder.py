"""A fitted model as a folder: a coordinator keeps it, sends it, adds clients to it and removes clients from it.

    model.toml              format, study hash, inference, the clients and how each agrees with the others, and the
                            roster of their public keys if there was one;
                            written last: a file that it does not name is not part of the model
    study.toml              the study, as it was agreed on
    coresets/NAME.coreset   what each client sent
    posterior-HASH.safetensors

A change writes new files beside the old ones, then replaces model.toml in one step, then removes files that it no
longer names: a kill at any moment leaves the old model or the new one. To add or to forget a client is to fit again
from the stored coresets, so the result is that of a fit to these coresets alone. With many clients of glm the coresets
are in shards, and only those of the clients that come or leave are read again (`coreshot.fitted.sharded_folder`).
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from coreshot.fitted.sharded_folder import (
    ShardedMessages,
    ShardFile,
    copy_shard,
    fit_files,
    has_shards,
    in_shards,
    read_parts,
    write_shards,
)
from coreshot.glm.received import group_number
from coreshot.inference.protocol import Inference
from coreshot.inference.registry import INFERENCES
from coreshot.methods.glm import SiteMessage
from coreshot.methods.protocol import Content, Weighting
from coreshot.storage import PRIVATE, check_client_name, write_bytes
from coreshot.study.file import StudyFile, read_study_file
from coreshot.wire.messages import read_header
from coreshot.wire.signatures import Roster, check_roster, check_senders

FORMAT, SHARDED = 1, 2


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
    shards: tuple[str, ...] = ()  # the files with the coresets of many clients

    @property
    def shard_files(self) -> list[ShardFile]:
        return [ShardFile(self.path / "shards" / name) for name in self.shards]

    def coresets(self) -> Mapping[str, bytes]:
        if self.shards:
            return ShardedMessages(self.shard_files)
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
    if values.get("format") not in (FORMAT, SHARDED):
        raise CoreshotError(
            f"{path}: is of format {values.get('format')}, this coreshot reads {FORMAT} and {SHARDED}; use the version "
            "that wrote it."
        )
    of_clients = ("clients",) if values["format"] == FORMAT else ("shards", "standings")
    absent = next((key for key in ("posterior", "weighting", "seed", *of_clients) if key not in values), None)
    if absent is not None:
        raise CoreshotError(f"{path / 'model.toml'}: the key {absent!r} is missing; fit the model again.")
    if values["format"] == SHARDED:
        values["standing"] = _read_standings(path / values["standings"])
        values["clients"] = list(values["standing"])
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
        tuple(values.get("shards", ())),
    )


def _read_standings(path: Path) -> dict[str, dict[str, Any]]:
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError):
        raise CoreshotError(f"{path}: is missing or damaged; fit the model again from the coresets.") from None


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
    study = study_file.study
    if has_shards(study, len(coresets)):
        return write_sharded(path, study_file, coresets, {}, weighting, seed, roster)
    ordered = {client: coresets[client] for client in sorted(coresets)}
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
    of_clients = {"clients": list(standings), "inference": settings, "standing": standings}
    values = {"format": FORMAT, "study": study.hash, "posterior": name, "weighting": weighting, "seed": seed}
    _write_values(path, {**values, **of_clients, "roster": roster})
    _remove_unnamed(path, {name, *(f"{client}.coreset" for client in ordered)})
    return model


def write_sharded(
    path: Path,
    study_file: StudyFile,
    coresets: Mapping[str, bytes],
    kept: Mapping[int, ShardFile],
    weighting: Weighting,
    seed: int,
    roster: Roster | None = None,
) -> FittedModel:
    """The same of many clients; kept are the shards that stay as they are."""
    study, every = study_file.study, in_shards(coresets)
    try:
        new = {number: names for number, names in every.items() if number not in kept}
        made = write_shards(path, study, new, coresets, roster)
        files = [kept.get(number) or made[number] for number in sorted(every)]
        fitted = fit_files(study, files)
    except CoreshotError:
        _undo(path)
        raise
    write_bytes(path / "study.toml", study_file.text.encode())
    for name, data in (fitted.posterior, fitted.standings):
        write_bytes(path / name, data)
    values = {"format": SHARDED, "study": study.hash, "posterior": fitted.posterior[0], "weighting": weighting}
    shards = [file.path.name for file in files]
    of_clients = {"seed": seed, "standings": fitted.standings[0], "shards": shards, "roster": roster}
    _write_values(path, {**values, **of_clients})
    _remove_unnamed(path, {fitted.posterior[0], fitted.standings[0], *shards})
    return fitted.model


def _undo(path: Path) -> None:
    """Remove the shards that no model names."""
    is_model = (path / "model.toml").is_file()
    named = set(_values(path).get("shards", ())) if is_model else set()
    for file in (path / "shards").glob("*"):
        if file.name not in named:
            file.unlink()
    if not is_model and (path / "shards").is_dir():
        (path / "shards").rmdir()
        path.rmdir()


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


def _remove_unnamed(path: Path, named: set[str]) -> None:
    folders = [path / "coresets", path / "shards"]
    files = [*path.glob("posterior-*.safetensors"), *path.glob("standings-*.json")]
    for file in [*files, *(file for folder in folders for file in folder.glob("*"))]:
        if file.name not in named:
            file.unlink(missing_ok=True)
    for file in path.glob(".*.tmp"):  # of a run that was killed
        file.unlink()
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _write_values(path: Path, values: Mapping[str, Any]) -> None:
    write_bytes(path / "model.toml", tomli_w.dumps(_without_none(values)).encode())


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


class _Chosen(Mapping[str, bytes]):
    """Messages of several places by client, each read when it is asked for."""

    def __init__(self, sources: Mapping[str, Mapping[str, bytes]]) -> None:
        self.sources = sources

    def __getitem__(self, name: str) -> bytes:
        return self.sources[name][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.sources)

    def __len__(self) -> int:
        return len(self.sources)


def change(
    model: ModelFolder, new: Mapping[str, bytes], gone: Collection[str] = (), roster: Roster | None = None
) -> FittedModel:
    """Add clients, and remove others: of many clients, only the shards of these are made again."""
    known, study = model.coresets(), model.study_file.study
    sources = {**{name: known for name in known if name not in gone}, **dict.fromkeys(new, new)}
    chosen = _Chosen({name: sources[name] for name in sorted(sources)})
    if not (model.shards and has_shards(study, len(chosen))):
        return refit(model, chosen, roster)
    if roster is not None:
        check_senders(known.values(), roster)
    touched = {group_number(name) for name in (*new, *gone)}
    kept = {file.number: file for file in model.shard_files if file.number not in touched}
    keys = model.roster if roster is None else roster
    return write_sharded(model.path, model.study_file, chosen, kept, model.weighting, model.seed, keys)


def merge(
    parts: Sequence[Path], study_file: StudyFile, path: Path, seed: int, roster: Roster | None = None
) -> FittedModel:
    """The model of what several machines have summed. A shard that two of them made is made again."""
    files = read_parts(parts)
    sources = {name: ShardedMessages([file]) for file in files for name in file.names()}
    if len(sources) < sum(len(file.names()) for file in files):
        raise CoreshotError("fit --merge: a client is in two parts; give each part once, made of the same files.")
    chosen, study = _Chosen({name: sources[name] for name in sorted(sources)}), study_file.study
    if not has_shards(study, len(chosen)):
        return write_model(path, study_file, chosen, None, "mass", seed, roster)
    if roster is not None:
        check_senders(chosen.values(), roster)
    kept = dict[int, ShardFile]()
    for file in files:
        if sum(other.number == file.number for other in files) == 1:
            kept[file.number] = copy_shard(file, path, study, write_bytes)
    return write_sharded(path, study_file, chosen, kept, "mass", seed, roster)
