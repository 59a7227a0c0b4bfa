"""From a user's files to a data set of the store: read once, checked, sorted by client, complete or absent."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from coreshot.config import choose, encode, encode_named
from coreshot.data import TASKS
from coreshot.data.handwriting.pixels import Background
from coreshot.data.handwriting.preparation import HandwritingPreparation
from coreshot.data.handwriting.tasks import Handwriting
from coreshot.data.holding_out import HoldingOut, Owner, in_order
from coreshot.data.partition import PARTITIONERS, Continuous, Partitioner
from coreshot.data.preparation import GeneralPreparation, Preparation
from coreshot.data.readers import FILE_FORMATS, find_files
from coreshot.data.readers.folders import list_images
from coreshot.data.readers.protocol import Batch, SourceFile
from coreshot.data.readers.reading import Reading
from coreshot.data.scaling import measure
from coreshot.data.store import (
    HOME_VARIABLE,
    ROLES,
    VERSION,
    Description,
    Role,
    StoredData,
    check_data_name,
    data_home,
    open_data_set,
    stored_names,
)
from coreshot.errors import CoreshotError
from coreshot.progress import Progress, Silent
from coreshot.storage import write_json
from coreshot.types import Kind

BYTES_AT_ONCE = 1 << 23  # of inputs, when they are sorted by client

PREPARATIONS = ("general", "handwriting")


@dataclass(frozen=True)
class _Source:
    """What is read, and how."""

    path: Path
    form: str
    files: Sequence[SourceFile]
    preparation: str
    background: Background | None
    transpose: bool
    partitioner: Partitioner | None
    kind: Kind
    reading: Reading
    holding_out: HoldingOut | None

    def origin(self) -> dict[str, Any]:
        """What makes two data sets the same: the same files with the same options.

        Options that earlier versions did not have are there only where they were given.
        """
        partition = None if self.partitioner is None else encode_named(PARTITIONERS, self.partitioner)
        kind = {} if self.kind == "classification" else {"task": self.kind}
        holding_out = {} if self.holding_out is None else {"holding_out": self.holding_out.options()}
        reading = {"reading": self.reading.options()} if self.reading.options() else {}
        return {
            "sources": [_fingerprint(file) for file in self.files],
            "options": {
                "preparation": self.preparation,
                "form": self.form,
                "background": self.background,
                "transpose": self.transpose,
                "partition": partition,
                **kind,
                **reading,
                **holding_out,
            },
        }

    def prepare(self) -> Preparation:
        if self.preparation == "handwriting":
            return HandwritingPreparation(self.background)
        return GeneralPreparation(self.kind, self.reading.labels or "target")


def add_data_set(
    name: str,
    source: Path,
    *,
    form: str | None = None,
    preparation: str | None = None,
    background: Background | None = None,
    transpose: bool = False,
    partitioner: Partitioner | None = None,
    kind: Kind = "classification",
    reading: Reading | None = None,
    holding_out: HoldingOut | None = None,
    progress: Progress | None = None,
) -> tuple[StoredData, bool]:
    """The data set, and whether it is new: the same files with the same options are not converted twice."""
    folder = data_home() / check_data_name(name)
    form, files = find_files(source, form, reading)
    preparation = preparation or (_default_preparation(name, form) if kind == "classification" else "general")
    choose("preparation", preparation, dict.fromkeys(PREPARATIONS), "--as")
    if background is not None and preparation != "handwriting":
        raise CoreshotError(
            f"--background {background}: only handwriting has a background; leave it out, or add --as handwriting."
        )
    if kind == "regression" and preparation == "handwriting":
        raise CoreshotError("--task regression: handwriting has classes; leave one of --task and --as out.")
    read = _Source(
        source,
        form,
        files,
        preparation,
        background,
        transpose,
        partitioner,
        kind,
        reading or Reading(),
        holding_out,
    )
    origin = read.origin()
    if folder.exists():
        return _same_or_refuse(name, folder, origin), False
    with _new_folder(name, folder) as temporary:
        facts = _convert(temporary, read, progress or Silent())
        write_json(temporary / "index.json", {"version": VERSION, "name": name, **facts, **origin})
        os.rename(temporary, folder)  # fails if a folder of that name was made in the meantime
    return open_data_set(name), True


def _default_preparation(name: str, form: str) -> str:
    """A set named like a task of handwriting is handwriting, else the format says."""
    task = TASKS.get(name)
    is_handwriting = task is not None and issubclass(task, Handwriting)
    return "handwriting" if is_handwriting else FILE_FORMATS[form].preparation


def _same_or_refuse(name: str, folder: Path, origin: Mapping[str, Any]) -> StoredData:
    if name not in stored_names():
        raise CoreshotError(f"{folder}: is in the way, and is no data set; move it, or use another name.")
    there = open_data_set(name)
    if {key: there.index.get(key) for key in origin} != origin:
        raise CoreshotError(
            f"data set {name!r} is already in the store, from other files or with other options; "
            f"use another name, or remove {folder}."
        )
    return there


@contextmanager
def _new_folder(name: str, folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder`; it is removed if anything fails."""
    temporary = folder.with_name(f".{name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            raise CoreshotError(
                f"data set {name!r}: cannot be written ({error}); check the disk, "
                f"or set {HOME_VARIABLE} to another folder."
            ) from None
        raise


def _fingerprint(file: SourceFile) -> dict[str, Any]:
    """Of a file; of a folder of images, that of their names and contents together."""
    digest, size = hashlib.sha256(), 0
    try:
        for path in list_images(file.path) if file.path.is_dir() else [file.path]:
            with path.open("rb") as opened:
                found = hashlib.file_digest(opened, "sha256")
            if path == file.path:
                digest = found
            else:
                digest.update(path.name.encode() + b"\0" + found.digest())
            size += path.stat().st_size
    except OSError as error:
        raise CoreshotError(f"{file.name}: cannot be read ({error.strerror}); check its permissions.") from None
    return {"file": file.name, "bytes": size, "sha256": digest.hexdigest()}


def _convert(folder: Path, source: _Source, progress: Progress) -> dict[str, Any]:
    """Writes inputs.npy and targets.npy into the folder; returns what the index says about them."""
    preparation = source.prepare()
    unsorted = folder / "unsorted"
    with unsorted.open("wb") as spool:
        batches = _Batches(spool, preparation, source.partitioner)
        progress.begin(f"reading {source.path.name}", len(source.files))
        for file in source.files:
            for batch in FILE_FORMATS[source.form].read(file):
                batches.take(batch)
            progress.advance()
        progress.end()
    labels = batches.labels(source.path.name)
    description, targets = preparation.describe(labels, source.path.name)
    clients, owner = _assign(batches, source.partitioner, source.holding_out, description)
    order = np.argsort(owner, kind="stable")
    inputs: np.ndarray = np.memmap(unsorted, batches.input_type, "r", shape=(len(order), *description.input_shape))
    if source.transpose:
        description, inputs = _transpose(description, inputs)
    _write_inputs(folder / "inputs.npy", inputs, order, preparation)
    _write_targets(folder / "targets.npy", targets[order])
    is_training = np.array([role != "test" for role, _ in clients])[owner[order]]
    scaling = measure(
        np.load(folder / "inputs.npy", mmap_mode="r"),
        description.input_scale,
        targets[order],
        np.flatnonzero(is_training),
    )
    unsorted.unlink()
    counts = np.bincount(owner, minlength=len(clients))
    starts = np.cumsum(counts) - counts
    return {
        "description": encode(description),
        "clients": [
            {"name": client, "role": role, "start": int(start), "count": int(count)}
            for (role, client), start, count in zip(clients, starts, counts, strict=True)
        ],
        "scaling": scaling.lists(),
    }


def _assign(
    batches: _Batches, partitioner: Partitioner | None, holding_out: HoldingOut | None, description: Description
) -> tuple[list[Owner], np.ndarray]:
    """Who holds which record: the source's clients or those of a partition, and what is held back for testing."""
    owners, owner = batches.owners()
    fraction = None if holding_out is None else holding_out.fraction
    if partitioner is not None:
        if holding_out is not None and fraction is not None:
            owners, owner = holding_out.of_all(owners, owner)
        by = getattr(partitioner, "partition_by", None)
        if description.kind == "regression" and by == "label" and not isinstance(partitioner, Continuous):
            raise CoreshotError(
                "--partition: classes divide this partition, and a regression has none; use iid or continuous, or "
                "another column with --set partition_by=NAME."
            )
        owners, owner = batches.partition(partitioner, owners, owner)
    elif holding_out is not None and fraction is not None:
        owners, owner = holding_out.of_each(owners, owner)
    if holding_out is not None and fraction is None:
        owners = holding_out.of_clients(owners)
    owners, owner = in_order(owners, owner, ROLES)
    if not any(role == "train" for role, _ in owners) and not any(role == "extra" for role, _ in owners):
        raise CoreshotError("all records are for testing, and none for training; check the split.")
    return _make_file_names(owners), owner


def _transpose(description: Description, inputs: np.ndarray) -> tuple[Description, np.ndarray]:
    if not description.holds_images:
        raise CoreshotError("--transpose: the records are vectors, and only images are transposed; leave it out.")
    height, width, channels = description.input_shape
    return replace(description, input_shape=(width, height, channels)), inputs.transpose(0, 2, 1, 3)


class _Batches:
    """Batches as they are read: inputs go to a file, because a set need not fit into memory; the rest is small."""

    def __init__(self, spool: BinaryIO, preparation: Preparation, partitioner: Partitioner | None) -> None:
        self.input_type = np.dtype(np.uint8)
        self._spool, self._preparation, self._needs_clients = spool, preparation, partitioner is None
        self._labels: list[np.ndarray] = []
        self._sizes: list[tuple[Role, str | None, int]] = []
        self._columns: list[Mapping[str, np.ndarray]] = []
        self._complete: dict[Owner, str] = {}

    def take(self, batch: Batch) -> None:
        if len(batch.inputs) == 0:
            raise CoreshotError(f"{batch.where}: there are no records; leave this client out or give it records.")
        if batch.client is None and self._needs_clients:
            raise CoreshotError(
                f"{batch.where}: says nothing of clients (no array or column clients or writers); name it with "
                "--clients NAME, or make clients, for example with --partition dirichlet --alpha 0.5 --clients 10."
            )
        if batch.client is not None and batch.is_complete:
            self._refuse_second(batch.role, batch.client, batch.where)
        inputs, labels = self._preparation.take(batch)
        self.input_type = inputs.dtype
        self._spool.write(np.ascontiguousarray(inputs).tobytes())
        self._labels.append(labels)
        self._sizes.append((batch.role, batch.client, len(labels)))
        self._columns.append({} if self._needs_clients else {**batch.columns, "label": _one_column(labels)})

    def _refuse_second(self, role: Role, client: str, where: str) -> None:
        if (role, client) in self._complete:
            raise CoreshotError(
                f"{where}: this client was already in {self._complete[role, client]}; "
                "point --from at files that have each client once."
            )
        self._complete[role, client] = where

    def labels(self, where: str) -> np.ndarray:
        if not self._labels:
            raise CoreshotError(f"{where}: there are no records in it; check the path.")
        return np.concatenate(self._labels)

    def owners(self) -> tuple[list[Owner], np.ndarray]:
        """Everyone who holds records, in the order of the source, and the number of the holder of each record."""
        present = dict.fromkeys((role, str(client)) for role, client, _ in self._sizes)
        number = {owner: index for index, owner in enumerate(present)}
        parts = [np.full(count, number[role, str(client)]) for role, client, count in self._sizes]
        return list(present), np.concatenate(parts)

    def partition(
        self, partitioner: Partitioner, holders: Sequence[Owner], owner: np.ndarray
    ) -> tuple[list[Owner], np.ndarray]:
        """The records that are not for testing, divided anew."""
        is_test = np.array([role == "test" for role, _ in holders])[owner]
        rows = np.flatnonzero(~is_test)
        names = set.intersection(*(set(columns) for columns in self._columns))
        columns = {name: np.concatenate([columns[name] for columns in self._columns])[rows] for name in names}
        parts = partitioner.partition(columns)
        tests = [index for index, (role, _) in enumerate(holders) if role == "test"]
        divided = np.empty(len(owner), int)
        for index, part in enumerate(parts.values()):
            divided[rows[part]] = index
        for index, old in enumerate(tests, start=len(parts)):
            divided[owner == old] = index
        made: list[Owner] = [("train", name) for name in parts]
        return [*made, *(holders[old] for old in tests)], divided


def _one_column(labels: np.ndarray) -> np.ndarray:
    return labels[:, 0] if labels.ndim == 2 else labels


def _make_file_names(owners: Sequence[Owner]) -> list[Owner]:
    """A client's message is stored under its name, so names must be names of files."""
    safe = [(role, re.sub("^[.]", "_", re.sub("[^A-Za-z0-9._-]", "_", name))[:100] or "_") for role, name in owners]
    first: dict[Owner, str] = {}
    for (_, name), owner in zip(owners, safe, strict=True):
        if first.setdefault(owner, name) != name:
            raise CoreshotError(
                f"clients {first[owner]!r} and {name!r} would both be called {owner[1]!r} in file names; "
                "rename one of them."
            )
    return safe


def _write_inputs(path: Path, inputs: np.ndarray, order: np.ndarray, preparation: Preparation) -> None:
    """As np.save does, but in parts. Not through a memory map: there, a full disk would kill the process."""
    rows_at_once = max(1, BYTES_AT_ONCE // inputs[:1].nbytes)
    with path.open("wb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(inputs.dtype), "fortran_order": False, "shape": inputs.shape}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, len(order), rows_at_once):
            file.write(preparation.finish(inputs[order[start : start + rows_at_once]]).tobytes())
        _sync(file)


def _write_targets(path: Path, targets: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, targets, allow_pickle=False)
        _sync(file)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
