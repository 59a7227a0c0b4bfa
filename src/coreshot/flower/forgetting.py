"""To forget a client after a run over Flower, so that it lasts.

A tombstone says that a client was forgotten: later runs of its study neither ask it nor use what it had sent. There is
one beside the results (OUT/forgotten.json) and one in the federation's folder, for runs with other results. Nothing
here imports flwr: a model can be changed where Flower is not installed.
"""

from __future__ import annotations

import datetime
import sqlite3
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from coreshot.errors import CoreshotError
from coreshot.storage import read_json, write_json

TOMBSTONES = "forgotten.json"
ORIGIN = "flower.json"  # beside the results: where they are from
# What holds, in a SuperLink's database, the content of messages. None of it is of use once its run is over.
CONTENTS = ("object_children", "run_objects", "objects", "message_res", "message_ins", "message")
SECONDS_FOR_DATABASE = 20.0


def forget_in_run(out: Path, study_hash: str, client: str) -> list[str]:
    """Delete what a run over Flower keeps of a client besides its model; return what is gone and what may be left.

    The tombstone comes first and the model, later, last: whoever is interrupted can begin again.
    """
    messages = out / "messages" / study_hash[:16]
    stored = [path for name in (client, f".{client}") for path in messages.glob(f"round-*/{name}.safetensors*")]
    if not (out / ORIGIN).is_file() and not stored:
        return [f"copies may remain: the file that {client} has sent, at the site itself, and in backups"]
    federation = _federation_of(out)
    if federation is not None and federation.is_dir():
        _refuse_during_run(federation)
    folders = [out, *([federation] if federation is not None and federation.is_dir() else [])]
    for folder in folders:
        tombstones = _read(folder)
        tombstones.setdefault(study_hash, {})[client] = datetime.datetime.now(datetime.UTC).date().isoformat()
        write_json(folder / TOMBSTONES, tombstones)
    for path in stored:  # also one that was half written when its process was killed
        path.unlink()
        path.with_suffix(".json").unlink(missing_ok=True)
    return [
        f"{client}: its stored message is deleted, and later runs of this study leave it out "
        f"(`coreshot flower run --unforget {client}` asks it again)",
        _database_line(federation),
        "copies may remain: at the site itself, in backups, and in models and predictions that were made with it "
        "before; ledger.jsonl and logs still have its name and the sizes of its messages",
    ]


def forgotten_clients(folders: Iterable[Path], study_hash: str) -> dict[str, str]:
    """The days on which clients of a study were forgotten."""
    found: dict[str, str] = {}
    for folder in folders:
        found |= _read(folder).get(study_hash, {})
    return found


def unforget(folders: Iterable[Path], study_hash: str, clients: Iterable[str]) -> None:
    """Remove tombstones, so that these clients are asked again: what they had sent is gone."""
    folders = list(folders)
    known = forgotten_clients(folders, study_hash)
    for client in clients:
        if client not in known:
            raise CoreshotError(
                f"--unforget {client}: it was not forgotten in this study (forgotten: {', '.join(known) or 'nobody'}); "
                "leave it away."
            )
    for folder in folders:
        tombstones = _read(folder)
        kept = {name: day for name, day in tombstones.get(study_hash, {}).items() if name not in set(clients)}
        if kept != tombstones.get(study_hash, {}):
            write_json(folder / TOMBSTONES, {**tombstones, study_hash: kept})


def forgotten_notes(clients: Iterable[str], forgotten: Mapping[str, str]) -> list[str]:
    return [
        f"{client}: was forgotten on {forgotten[client]} and is left out (--unforget {client} asks it again)"
        for client in clients
        if client in forgotten
    ]


def _read(folder: Path) -> dict[str, Any]:
    path = folder / TOMBSTONES
    return dict(read_json(path)) if path.is_file() else {}


def _federation_of(out: Path) -> Path | None:
    origin = read_json(out / ORIGIN) if (out / ORIGIN).is_file() else {}
    return Path(origin["federation"]) if "federation" in origin else None


def _refuse_during_run(federation: Path) -> None:
    """The content of messages is deleted from the database, which a run that goes on needs."""
    from coreshot.flower.federation import Federation, is_alive

    processes = Federation.load(federation).processes
    database = _database(federation)
    if database is None or not any(one.role == "superlink" and is_alive(one) for one in processes):
        return
    with closing(_connect(database)) as link:
        [num_open] = link.execute("SELECT COUNT(*) FROM task WHERE finished_at IS NULL").fetchone()
    if num_open:
        raise CoreshotError(
            f"{federation}: a run is going on, and needs the messages in the SuperLink's database; "
            f"forget the client when it has ended, or stop it with `coreshot flower down {federation}`."
        )


def _database(federation: Path) -> Path | None:
    path = federation / "superlink" / "link.db"
    return path if path.is_file() else None


def _connect(database: Path) -> sqlite3.Connection:
    return sqlite3.connect(database, timeout=SECONDS_FOR_DATABASE, isolation_level=None)


def _database_line(federation: Path | None) -> str:
    if federation is None or not federation.is_dir():
        return "the SuperLink's database (superlink/link.db of the federation) is not here; delete it where it is"
    database = _database(federation)
    if database is None:
        return "the SuperLink's database is gone already"
    try:
        is_clean = _clean(database)
    except sqlite3.Error as error:
        is_clean, why = False, f" ({error})"
    else:
        why = " (the SuperLink uses it)"
    if is_clean:
        return f"the SuperLink's copy is deleted: {database}"
    return (
        f"the SuperLink's copy could not be deleted{why}; stop it with `coreshot flower down {federation}` "
        f"and delete {database}"
    )


def _clean(database: Path) -> bool:
    """Delete the content of all messages, also from pages that are free and from the log of changes."""
    with closing(_connect(database)) as link:
        tables = {name for (name,) in link.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        link.execute("PRAGMA foreign_keys = OFF")
        link.execute("PRAGMA secure_delete = ON")
        link.execute("BEGIN IMMEDIATE")
        for table in CONTENTS:
            if table in tables:
                link.execute(f"DELETE FROM {table}")
        link.execute("COMMIT")
        link.execute("VACUUM")
        until = time.monotonic() + SECONDS_FOR_DATABASE
        while link.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            if time.monotonic() > until:
                return False
            time.sleep(0.2)
    return True
