"""What clients of a study sent, as files of a run directory, so that a run that was killed asks nobody twice."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from pathlib import Path

from coreshot.runtime.executors import Reply
from coreshot.storage import read_json, write_bytes, write_json
from coreshot.study import Study


class ReplyStore(MutableMapping[tuple[int, str], Reply]):
    """Replies of one study as files: the message itself, and beside it how long it took and what there is to note."""

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
        write_bytes(path, reply.data)  # last: its presence says that both are whole

    def __delitem__(self, key: tuple[int, str]) -> None:
        raise TypeError("run directories are append-only")

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for path in sorted(self._folder.glob("round-*/*.safetensors")):
            yield int(path.parent.name.removeprefix("round-")), path.stem

    def __len__(self) -> int:
        return sum(1 for _ in self)


def reply_store(study: Study, out: Path) -> ReplyStore:
    return ReplyStore(out / "messages" / study.hash[:16])
