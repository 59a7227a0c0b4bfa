"""A model of many clients as a folder: their files in shards, so that one more or less changes one shard.

    model.toml                    format 2, study hash, the names of the files below, and the roster if there was one
    study.toml
    shards/NN-HASH.safetensors    what each client of the shard sent, the sum of it, and facts of each client
    standings-HASH.json           how each client agrees with the others
    posterior-HASH.safetensors

A client's shard follows from its name (`coreshot.glm.received.group_number`). Messages are read one shard at a time,
so memory does not grow with their number. A change makes the shards of its clients anew from their messages, and the
posterior from the sums of all shards: the same bytes as a fit from scratch. `fit --partial` writes some of the shards,
and `fit --merge` puts them together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from coreshot.errors import CoreshotError
from coreshot.fitted.model import FittedModel, digest
from coreshot.fitted.near_copies import near_copies_of
from coreshot.fitted.posterior_file import posterior_bytes
from coreshot.fitted.shard_workers import make_side_by_side
from coreshot.glm.received import SiteMessage, are_pooled, group_number
from coreshot.glm.shard import Facts, Shard
from coreshot.methods.glm import Glm
from coreshot.methods.glm_shards import ShardSums, compare_shards, fit_shards, shard_of
from coreshot.spectral.outlier_clients import Standing
from coreshot.storage import PRIVATE, write_bytes
from coreshot.study import Study
from coreshot.wire.messages import Message, decode_message
from coreshot.wire.signatures import Roster, check_senders

MESSAGE = "message/"
Write = Callable[[Path, bytes, int], None]
Messages = Mapping[str, bytes]


@dataclass(frozen=True)
class ShardFile:
    """One shard on disk; arrays are read when they are asked for."""

    path: Path

    @property
    def number(self) -> int:
        return int(self.path.name.partition("-")[0])

    def names(self) -> list[str]:
        with self._open() as file:
            return sorted(key.removeprefix(MESSAGE) for key in file.keys() if key.startswith(MESSAGE))  # noqa: SIM118

    def message(self, name: str) -> bytes:
        with self._open() as file:
            return bytes(file.get_tensor(MESSAGE + name).tobytes())

    def messages(self) -> dict[str, bytes]:
        return {name: self.message(name) for name in self.names()}

    def shard(self, num_outputs: int) -> Shard:
        return Shard.from_arrays(self.names(), self._arrays(""), num_outputs)

    def facts(self) -> Facts:
        return Facts(**{name.removeprefix("facts."): one for name, one in self._arrays("facts.").items()})

    def _arrays(self, prefix: str) -> dict[str, np.ndarray]:
        with self._open() as file:
            wanted = [key for key in file.keys() if key.startswith(prefix)]  # noqa: SIM118
            return {key: file.get_tensor(key) for key in wanted if not key.startswith(MESSAGE)}

    def _open(self) -> Any:
        try:
            return safetensors.safe_open(self.path, "np")
        except (OSError, safetensors.SafetensorError):
            raise CoreshotError(f"{self.path}: is missing or damaged; fit the model again from the coresets.") from None


class ShardedMessages(Mapping[str, bytes]):
    """The messages of all shards by client, each read from its file when it is asked for."""

    def __init__(self, files: Sequence[ShardFile]) -> None:
        self.files = {name: file for file in files for name in file.names()}

    def __getitem__(self, name: str) -> bytes:
        return self.files[name].message(name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.files))

    def __len__(self) -> int:
        return len(self.files)


def has_shards(study: Study, num_clients: int) -> bool:
    return isinstance(study.method, Glm) and are_pooled(num_clients)


def in_shards(messages: Messages) -> dict[int, list[str]]:
    """The clients of each shard, in the order of names."""
    found = dict[int, list[str]]()
    for name in sorted(messages):
        found.setdefault(group_number(name), []).append(name)
    return found


def shard_bytes(study: Study, messages: Messages) -> bytes:
    """Read, check and add the messages of one shard; messages are in the order of names."""
    method, terms, releases = method_of(study), study.hash, study.releases

    def decoded() -> Iterable[tuple[str, Message, bytes]]:
        for name, data in messages.items():
            message = decode_message(data, study_hash=terms, releases=releases, on_device=False)
            yield name, message, digest(message.arrays)

    shard = shard_of(method, study.model, decoded(), study.check_claim)
    stored = {MESSAGE + name: np.frombuffer(data, np.uint8) for name, data in messages.items()}
    arrays = {name: np.asarray(array, order="C") for name, array in shard.arrays().items()}
    return safetensors.numpy.save({**arrays, **stored})


def write_shards(
    folder: Path, study: Study, shards: Mapping[int, Sequence[str]], messages: Messages, roster: Roster | None
) -> dict[int, ShardFile]:
    """Those of these numbers, each of the clients with these names."""

    def read(number: int) -> Messages:
        own = {name: messages[name] for name in shards[number]}
        if roster is not None:
            check_senders(own.values(), roster)
        return own

    def write(number: int, data: bytes) -> ShardFile:
        path = folder / "shards" / f"{number:02d}-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
        if not path.is_file():
            write_bytes(path, data, PRIVATE)
        return ShardFile(path)

    num_messages = sum(len(names) for names in shards.values())
    return make_side_by_side(study, sorted(shards), num_messages, read, shard_bytes, write)


@dataclass(frozen=True)
class Fitted:
    """What `model.toml` names."""

    model: FittedModel
    posterior: tuple[str, bytes]
    standings: tuple[str, bytes]


def fit_files(study: Study, files: Sequence[ShardFile]) -> Fitted:
    """The model of these shards, in the order of their numbers."""
    method, model = method_of(study), study.model
    sums, samples, losses, digests = list[ShardSums](), list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for file in files:
        shard = file.shard(model.num_outputs)
        sums.append(ShardSums.of(shard))
        samples.append(shard.facts.samples)
        losses.append(shard.facts.losses)
        digests.append(shard.facts.digests)
    names = [name for one in sums for name in one.names]
    _refuse_copies(names, np.concatenate(digests))
    messages, terms = ShardedMessages(files), study.hash

    def read_site(name: str) -> SiteMessage:
        message = decode_message(messages[name], study_hash=terms, on_device=False)
        return method.read(model, name, message)

    posterior = fit_shards(method, model, sums, read_site)
    standings = compare_shards(model, names, lambda: (file.facts() for file in files))
    order = np.argsort(names, kind="stable")
    counts, rounding = (np.concatenate(one)[order] for one in ([one.counts for one in sums], losses))
    told = _tell([names[place] for place in order], standings, counts, rounding, np.concatenate(samples)[order])
    text = json.dumps(told, ensure_ascii=False).encode()
    data = posterior_bytes(posterior)
    return Fitted(
        FittedModel(study, posterior),
        (f"posterior-{hashlib.sha256(data).hexdigest()[:16]}.safetensors", data),
        (f"standings-{hashlib.sha256(text).hexdigest()[:16]}.json", text),
    )


def _tell(
    names: Sequence[str],
    standings: Mapping[str, Standing],
    counts: np.ndarray,
    losses: np.ndarray,
    samples: np.ndarray,
) -> dict[str, dict[str, Any]]:
    """As `folder` writes them of few clients."""
    total, copies = float(np.sum(counts)), near_copies_of(names, samples)
    found = dict[str, dict[str, Any]]()
    for name, count, loss in zip(names, counts.tolist(), losses.tolist(), strict=True):
        values = {**vars(standings[name]), "share": count / total}
        found[name] = {
            key: round(value, 4) if isinstance(value, float) else value
            for key, value in values.items()
            if value is not None
        }
        found[name]["rounding"] = round(loss, 5)
        if name in copies:
            found[name] |= {"copy_of": copies[name][0], "equal": round(copies[name][1], 4)}
    return found


def _refuse_copies(names: Sequence[str], digests: np.ndarray) -> None:
    owners = dict[bytes, str]()
    for name, one in sorted(zip(names, map(bytes, digests), strict=True)):
        other = owners.setdefault(one, name)
        if other != name:
            raise CoreshotError(
                f"client {name}: its file holds the same numbers as that of client {other}; "
                "ask both whose they are, and leave the other file away."
            )


def method_of(study: Study) -> Glm:
    if not isinstance(study.method, Glm):
        raise CoreshotError("fit: only a study of the method glm has sums in shards; fit it in one piece.")
    return study.method


def write_part(
    folder: Path, study: Study, messages: Messages, part: int, num_parts: int, roster: Roster | None
) -> list[ShardFile]:
    """The shards of one part, for `merge`: a part has whole shards, so nothing is added twice and in another order."""
    method_of(study)
    own = {number: names for number, names in in_shards(messages).items() if number % num_parts == part}
    if not own:
        raise CoreshotError("fit --partial: no client's name falls into this part; use fewer parts.")
    return list(write_shards(folder, study, own, messages, roster).values())


def copy_shard(file: ShardFile, folder: Path, study: Study, write: Write) -> ShardFile:
    """All of a shard's messages are of one study: so they were checked."""
    decode_message(file.message(file.names()[0]), study_hash=study.hash, on_device=False)
    path = folder / "shards" / file.path.name
    write(path, file.path.read_bytes(), PRIVATE)
    return ShardFile(path)


def read_parts(folders: Sequence[Path]) -> list[ShardFile]:
    found = [ShardFile(path) for folder in folders for path in sorted((folder / "shards").glob("*.safetensors"))]
    if not found:
        raise CoreshotError("fit --merge: these folders hold no parts; give those that `coreshot fit --partial` wrote.")
    return found
