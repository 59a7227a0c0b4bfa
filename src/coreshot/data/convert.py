"""From somebody's files to a set on the shelf: read once, checked, in one polarity, in the order of the clients, whole or not at all."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from coreshot.config import encode_named
from coreshot.data.handwriting.labels import NUM_CLASSES
from coreshot.data.handwriting.pixels import IMAGE_SHAPE, Background, BorderVote
from coreshot.data.partition import PARTITIONERS, Partitioner
from coreshot.data.readers import FORMS, find_files
from coreshot.data.readers.protocol import ROLES, Batch, Role, SourceFile
from coreshot.data.store import HOME_VARIABLE, VERSION, ImageSet, check_name, home, names, open_set
from coreshot.errors import CoreshotError
from coreshot.progress import Progress, Silent
from coreshot.storage import write_json

ROWS_AT_ONCE = 8192  # when images are put in order: 6 MB


def add(
    name: str,
    source: Path,
    *,
    form: str | None = None,
    background: Background | None = None,
    transpose: bool = False,
    partitioner: Partitioner | None = None,
    progress: Progress | None = None,
) -> tuple[ImageSet, bool]:
    """The set, and whether it is new: the same files with the same options are not converted twice."""
    folder = home() / check_name(name)
    form, files = find_files(source, form)
    origin = {
        "sources": [_fingerprint(file) for file in files],
        "options": {
            "form": form,
            "background": background,
            "transpose": transpose,
            "partition": _described(partitioner),
        },
    }
    if folder.exists():
        if name not in names():
            raise CoreshotError(f"{folder}: is in the way, and is no data set; move it, or use another name.")
        there = open_set(name)
        if {key: there.index.get(key) for key in origin} == origin:
            return there, False
        raise CoreshotError(
            f"data set {name!r} is already on the shelf, from other files or with other options; use another name, or remove {folder}."
        )
    temporary = folder.with_name(f".{name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
        facts = _convert(temporary, source, form, files, background, transpose, partitioner, progress or Silent())
        write_json(temporary / "index.json", {"version": VERSION, "name": name, **facts, **origin})
        os.rename(temporary, folder)  # fails where a folder of that name has come meanwhile
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            raise CoreshotError(
                f"data set {name!r}: cannot be written ({error}); check the disk, or set {HOME_VARIABLE} to another folder."
            ) from None
        raise
    return open_set(name), True


def _fingerprint(file: SourceFile) -> dict[str, Any]:
    try:
        with file.path.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise CoreshotError(f"{file.name}: cannot be read ({error.strerror}); check its permissions.") from None
    return {"file": file.name, "bytes": file.path.stat().st_size, "sha256": digest}


def _described(partitioner: Partitioner | None) -> dict[str, Any] | None:
    return None if partitioner is None else encode_named(PARTITIONERS, partitioner)


def _convert(
    folder: Path,
    source: Path,
    form: str,
    files: Sequence[SourceFile],
    background: Background | None,
    transpose: bool,
    partitioner: Partitioner | None,
    progress: Progress,
) -> dict[str, Any]:
    """Writes images.npy and labels.npy into the folder; what the index says of them."""
    arrived = folder / "arrived"
    with arrived.open("wb") as spool:
        batches = _Arrivals(spool, needs_clients=partitioner is None)
        progress.begin(f"reading {source.name}", len(files))
        for file in files:
            for batch in FORMS[form].read(file):
                batches.take(batch)
            progress.advance()
        progress.end()
    if not batches.labels:
        raise CoreshotError(f"{source.name}: there are no images in it; check the path.")
    background = background or batches.vote.decide(source.name)
    clients, owner = batches.owners() if partitioner is None else batches.partitioned(partitioner)
    order = np.argsort(owner, kind="stable")
    _write_images(folder / "images.npy", arrived, order, invert=background == "white", transpose=transpose)
    _write_labels(folder / "labels.npy", np.concatenate(batches.labels)[order])
    arrived.unlink()
    counts = np.bincount(owner, minlength=len(clients))
    starts = np.cumsum(counts) - counts
    return {
        "image_shape": list(IMAGE_SHAPE),
        "num_classes": NUM_CLASSES,
        "background_of_source": background,
        "clients": [
            {"name": client, "role": role, "start": int(start), "count": int(count)}
            for (role, client), start, count in zip(clients, starts, counts, strict=True)
        ],
    }


Owner = tuple[Role, str]


class _Arrivals:
    """Batches as they come: pixels go to a file, because a set need not fit into memory; the rest is small and stays here."""

    def __init__(self, spool: BinaryIO, needs_clients: bool) -> None:
        self.vote, self.labels = BorderVote(), list[np.ndarray]()
        self._spool, self._needs_clients = spool, needs_clients
        self._roles_and_clients, self._columns = list[tuple[Role, str | None, int]](), list[Mapping[str, np.ndarray]]()
        self._complete: dict[tuple[Role, str], str] = {}

    def take(self, batch: Batch) -> None:
        if len(batch.images) == 0:
            raise CoreshotError(f"{batch.where}: there are no images; leave this client out or give it images.")
        if batch.client is None and self._needs_clients:
            raise CoreshotError(
                f"{batch.where}: says nothing of clients (no array or column clients or writers); make clients, for example with "
                "--partition dirichlet --set num_partitions=100 --set alpha=0.5."
            )
        if batch.client is not None and batch.is_all:
            self._refuse_twice(batch.role, batch.client, batch.where)
        self.vote.count(batch.images)
        self._spool.write(np.ascontiguousarray(batch.images).tobytes())
        self.labels.append(batch.labels)
        self._roles_and_clients.append((batch.role, batch.client, len(batch.labels)))
        self._columns.append({**batch.columns, "label": batch.labels} if not self._needs_clients else {})

    def _refuse_twice(self, role: Role, client: str, where: str) -> None:
        if (role, client) in self._complete:
            raise CoreshotError(
                f"{where}: this client was already in {self._complete[role, client]}; point --from at files that have each client once."
            )
        self._complete[role, client] = where

    def owners(self) -> tuple[list[Owner], np.ndarray]:
        """Everyone who holds images, training clients first, and the number of the holder of each image."""
        present = dict.fromkeys((role, str(client)) for role, client, _ in self._roles_and_clients)
        ordered = sorted(present, key=lambda owner: ROLES.index(owner[0]))
        number = {owner: index for index, owner in enumerate(ordered)}
        parts = [np.full(count, number[role, str(client)]) for role, client, count in self._roles_and_clients]
        return _with_safe_names(ordered), np.concatenate(parts)

    def partitioned(self, partitioner: Partitioner) -> tuple[list[Owner], np.ndarray]:
        """As `owners`, with the images that are not for testing dealt out anew."""
        holders, owner = self.owners()
        is_test = np.array([role == "test" for role, _ in holders])[owner]
        rows = np.flatnonzero(~is_test)
        names = set.intersection(*(set(columns) for columns in self._columns))
        columns = {name: np.concatenate([columns[name] for columns in self._columns])[rows] for name in names}
        parts = partitioner.partition(columns)
        tests = [index for index, (role, _) in enumerate(holders) if role == "test"]
        dealt = np.empty(len(owner), int)
        for index, part in enumerate(parts.values()):
            dealt[rows[part]] = index
        for index, old in enumerate(tests, start=len(parts)):
            dealt[owner == old] = index
        return _with_safe_names([*(("train", name) for name in parts), *(holders[old] for old in tests)]), dealt


def _with_safe_names(owners: Sequence[Owner]) -> list[Owner]:
    """Names that can be names of files: a client's message is stored under its name."""
    safe = [(role, re.sub("^[.]", "_", re.sub("[^A-Za-z0-9._-]", "_", name))[:100] or "_") for role, name in owners]
    first: dict[Owner, str] = {}
    for (_, name), owner in zip(owners, safe, strict=True):
        if first.setdefault(owner, name) != name:
            raise CoreshotError(
                f"clients {first[owner]!r} and {name!r} would both be called {owner[1]!r} in file names; rename one of them."
            )
    return safe


def _write_images(path: Path, arrived: Path, order: np.ndarray, *, invert: bool, transpose: bool) -> None:
    """As np.save writes them, but a piece at a time; not through a memory map, where a full disk would kill the process."""
    images = np.memmap(arrived, np.uint8, "r", shape=(len(order), *IMAGE_SHAPE))
    with path.open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": images.shape}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, len(order), ROWS_AT_ONCE):
            rows = images[order[start : start + ROWS_AT_ONCE]]
            rows = 255 - rows if invert else rows
            file.write((rows.transpose(0, 2, 1) if transpose else rows).tobytes())
        _sync(file)


def _write_labels(path: Path, labels: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, labels, allow_pickle=False)
        _sync(file)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
