"""A client's reply: how it is computed, and its files in a run directory, so that no client is asked twice."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coreshot.methods.protocol import OnChunk
from coreshot.privacy.guarded_records import guard_records
from coreshot.storage import read_json, write_json, write_private
from coreshot.study import Study
from coreshot.types import Points, PRNGKey
from coreshot.wire.messages import Message, encode_message


@dataclass(frozen=True)
class Reply:
    """A client's message as it crossed the wire, and what the simulation knows about how it was made."""

    data: bytes
    seconds: float  # of the whole machine: where clients run side by side, a share of the wall time
    notes: list[str] = field(default_factory=list)


def compute_replies(
    key: PRNGKey,
    study: Study,
    clients: Mapping[str, Points],
    inbox: Sequence[Message],
    on_chunk: OnChunk,
    num_at_once: int = 1,
) -> list[tuple[str, Reply]]:
    """The clients' side in this thread. Of `num_at_once` such calls side by side, each takes its share of the time."""
    began = time.perf_counter()
    records = guard_records(clients, study.releases)
    answers = study.method.reply(key, study.model, records, inbox, study.shared_key, on_chunk)
    encoded = {
        name: encode_message(message, study_hash=study.hash, client=name, releases=study.releases)
        for name, (message, _) in answers.items()
    }
    seconds = (time.perf_counter() - began) / num_at_once / len(clients)
    return [(name, Reply(encoded[name], seconds, notes)) for name, (_, notes) in answers.items()]


class ReplyStore(MutableMapping[tuple[int, str], Reply]):
    """Replies of one study as files: the message, and beside it the seconds that it took and notes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, round_and_client: tuple[int, str]) -> Path:
        return self._folder / f"round-{round_and_client[0]}" / f"{round_and_client[1]}.safetensors"

    def __getitem__(self, key: tuple[int, str]) -> Reply:
        path = self._path(key)
        if not path.is_file():
            raise KeyError(key)
        return Reply(path.read_bytes(), **read_json(path.with_suffix(".json")))

    def __setitem__(self, key: tuple[int, str], reply: Reply) -> None:
        path = self._path(key)
        write_json(path.with_suffix(".json"), {"seconds": reply.seconds, "notes": reply.notes})
        write_private(path, reply.data)  # last: its presence says that both are whole

    def __delitem__(self, key: tuple[int, str]) -> None:
        raise TypeError("run directories are append-only")

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for path in sorted(self._folder.glob("round-*/*.safetensors")):
            yield int(path.parent.name.removeprefix("round-")), path.stem

    def __len__(self) -> int:
        return sum(1 for _ in self)


def reply_store(study: Study, out: Path) -> ReplyStore:
    return ReplyStore(out / "messages" / study.hash[:16])
