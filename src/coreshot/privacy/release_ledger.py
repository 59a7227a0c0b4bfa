"""A site's ledger: what was released of which data set for which study, kept so that no noise is drawn twice.

It is one SQLite file that only its owner can read. A release is in it, flushed to disk, before anything leaves; a crash
can only leave it with more than what left. Data sets and records are in it as keyed hashes (HMAC-SHA256), whose key is
in a file beside it, so that the ledger alone says nothing about them. A private answer is kept whole: the same study on
the same records is answered with the same bytes, whoever asks and how often. Exact answers are noted, and not kept.
"""

from __future__ import annotations

import hmac
import json
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from coreshot.data.large_arrays import in_parts, sort_rows, take
from coreshot.errors import CoreshotError
from coreshot.privacy.accounting import compute_epsilon
from coreshot.privacy.releases import Release, check_releases, parse_releases
from coreshot.storage import PRIVATE
from coreshot.types import Points

VARIABLE = "CORESHOT_LEDGER"
VERSION = 1
SECONDS_TO_WAIT = 60.0  # for another process that writes
EVERYTHING = ""  # in place of a data set: the total of all of them together
TOLERANCE = 1e-6  # of a total: numerical, not a second chance
KEY_BYTES = 32  # what follows them in the key's file says that answers are in the ledger
TEXT_FORMATS = (".csv", ".tsv", ".txt")  # named by their lines, in any order and with any ends

TABLES = """
CREATE TABLE shares (id INTEGER PRIMARY KEY, records TEXT NOT NULL, study TEXT NOT NULL, name TEXT NOT NULL,
    releases TEXT NOT NULL, began TEXT NOT NULL, UNIQUE (records, study));
CREATE TABLE sources (share INTEGER NOT NULL REFERENCES shares, data TEXT NOT NULL, PRIMARY KEY (share, data));
CREATE TABLE answers (share INTEGER NOT NULL REFERENCES shares, request TEXT NOT NULL, steps TEXT NOT NULL,
    message BLOB NOT NULL, PRIMARY KEY (share, request));
CREATE TABLE totals (data TEXT PRIMARY KEY, epsilon REAL NOT NULL, delta REAL);
CREATE TABLE key_check (value TEXT NOT NULL);
"""

Steps = Mapping[str, int]  # by release


class BudgetError(CoreshotError):
    """The site's total, or what the study declared, does not allow another release."""


@dataclass(frozen=True)
class Share:
    """What one study has of one data set: the study's releases, counted once, however many answers they are sent in."""

    data: str  # keyed hash of the file
    records: str  # keyed hash of the records as the study reads them
    study: str  # the study's hash
    name: str
    releases: tuple[Release, ...]

    @property
    def is_exact(self) -> bool:
        return not self.releases or any(release.is_exact for release in self.releases)


@dataclass(frozen=True)
class Entry:
    """A share as the ledger has it."""

    share: Share
    sources: frozenset[str]  # all data sets that hold these records, such as a file and its sorted copy
    began: str
    num_answers: int  # that are kept
    steps: dict[str, int]  # taken so far


@dataclass(frozen=True)
class Total:
    epsilon: float
    delta: float | None = None  # None: the smallest delta of the releases


def default_path() -> Path:
    """Where the environment variable says, or in the folder where this system keeps a user's data."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    if sys.platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return folder / "coreshot" / "ledger.sqlite"


def private_epsilon(shares: Sequence[Share], delta: float | None = None) -> tuple[float, float]:
    """Epsilon and delta of the shares that have a bound, together; without a delta, at the smallest of theirs.

    At the largest, one study with a large delta would make the epsilon of all others small, and so open a total.
    """
    releases = [release for share in shares if not share.is_exact for release in share.releases]
    at = delta or min((release.delta for release in releases if release.delta), default=1e-5)
    return compute_epsilon(releases, at), at


class ReleaseLedger:
    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._key = self._read_key()
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, PRIVATE))
            self.path.chmod(PRIVATE)
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from None
        with self._writing() as database:
            self._prepare(database)

    def hash_file(self, path: Path) -> str:
        """The name of a data set in the ledger: a keyed hash of a file, or of all files of a folder.

        Of a text it is a hash of the lines: a copy that was sorted or saved on another system is no other data set.
        """
        if path.is_file() and path.suffix.lower() in TEXT_FORMATS:
            return self._hash_lines(path)
        digest = hmac.new(self._key, b"file", "sha256")
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        for file in files:
            name = str(file.relative_to(path)).encode() if path.is_dir() else b""
            digest.update(b"%d %d " % (len(name), file.stat().st_size) + name)
            with file.open("rb") as content:
                while block := content.read(1 << 20):
                    digest.update(block)
        return digest.hexdigest()

    def _hash_lines(self, path: Path) -> str:
        """Sums of keyed hashes do not depend on their order."""
        total = 0
        with path.open(encoding="latin-1") as lines:  # any byte is a character of it, and any line end is one
            for number, line in enumerate(lines):
                text = line.rstrip("\n").encode("latin-1").removeprefix(b"\xef\xbb\xbf" if number == 0 else b"")
                if text:
                    total += int.from_bytes(hmac.digest(self._key, b"line " + text, "sha256"), "big")
        return hmac.new(self._key, b"lines " + (total % 2**256).to_bytes(32, "big"), "sha256").hexdigest()

    def hash_records(self, points: Points) -> str:
        """A keyed hash of the records in any order, so that a sorted file has no second draw of noise."""
        arrays = [np.asarray(array, np.float32).reshape(len(points.weight), -1) for array in (points.x, points.y)]

        def read(part: slice) -> np.ndarray:
            rows = np.concatenate([take(array, part) for array in arrays], axis=1)
            rows[rows == 0] = 0  # minus zero is zero
            return rows

        shape = (len(points.weight), sum(array.shape[1] for array in arrays))
        digest = hmac.new(self._key, b"records %d %d " % shape, "sha256")
        for _, rows in in_parts(sort_rows(read, *shape, _order_of_bytes)):
            digest.update(rows.tobytes())
        return digest.hexdigest()

    def answer(self, share: Share, request: str, compute: Callable[[Steps], tuple[bytes, Steps]]) -> tuple[bytes, bool]:
        """The kept answer to this request, or a new one, written down before it is returned; and whether it was kept.

        `compute` is given the steps that were taken before, and returns the answer with the steps that it took.
        """
        check_releases(share.releases, f"study {share.name!r}")  # a ledger that cannot be read again answers nobody
        with self._reading() as database:
            kept = _find_answer(database, share, request)
            if kept is not None:
                _note_share(database, share)
                return kept, True
            _check_total(database, share)
            taken = _steps_taken(database, share)
            _check_steps(share, taken, {})
        message, steps = compute(taken)
        with self._writing() as database:
            kept = _find_answer(database, share, request)  # another process may have been faster
            if kept is not None:
                return kept, True
            _check_total(database, share)
            self._mark_used()
            identity = _note_share(database, share)
            if not share.is_exact:
                _check_steps(share, _steps_taken(database, share), steps)
                values = identity, request, json.dumps(dict(steps)), message
                database.execute("INSERT INTO answers VALUES (?, ?, ?, ?)", values)
        return message, False

    def entries(self) -> list[Entry]:
        with self._reading() as database:
            return _entries(database)

    def totals(self) -> dict[str, Total]:
        """By data set; that of EVERYTHING is for all together."""
        with self._reading() as database:
            return _totals(database)

    def set_total(self, total: Total | None, data: str = EVERYTHING) -> None:
        """None removes it."""
        with self._writing() as database:
            database.execute("DELETE FROM totals WHERE data = ?", (data,))
            if total is not None:
                database.execute("INSERT INTO totals VALUES (?, ?, ?)", (data, total.epsilon, total.delta))

    @property
    def _key_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.key")

    def _read_key(self) -> bytes:
        path = self._key_path
        # Looked at first: a ledger has something in it only after its key was there.
        has_tables = self._has_tables()
        if not path.exists():
            if has_tables:
                raise CoreshotError(
                    f"ledger {self.path}: its key {path.name} is not beside it, so its data sets cannot be told; "
                    "restore the key from a copy."
                )
            _create_key(path)
        content = path.read_bytes()
        # Looked at once more: the key is marked only after there were tables, perhaps by another process just now.
        if len(content) > KEY_BYTES and not self._has_tables():
            raise CoreshotError(
                f"ledger {self.path}: is gone or empty, and its key {path.name} says that answers were kept in it; "
                "restore it from a copy, or delete the key, too, to begin anew as if nothing had been released."
            )
        return content[:KEY_BYTES]

    def _has_tables(self) -> bool:
        return self.path.exists() and self.path.stat().st_size > 0

    def _mark_used(self) -> None:
        """In the key's file, before the first answer is written: a ledger that is lost later is then missed."""
        try:
            if self._key_path.stat().st_size == KEY_BYTES:
                with self._key_path.open("ab") as file:
                    file.write(b"\n")
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            raise self._unusable(f"its key: {error.strerror}") from None

    def _prepare(self, database: sqlite3.Connection) -> None:
        [version] = database.execute("PRAGMA user_version").fetchone()
        check = hmac.new(self._key, b"key check", "sha256").hexdigest()
        if version == 0:
            for statement in TABLES.split(";"):
                database.execute(statement)
            database.execute("INSERT INTO key_check VALUES (?)", (check,))
            database.execute(f"PRAGMA user_version = {VERSION}")
        elif version != VERSION:
            raise self._unusable(f"it is of version {version}, this coreshot knows {VERSION}")
        elif database.execute("SELECT value FROM key_check").fetchone() != (check,):
            raise self._unusable("the key beside it is that of another ledger")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=SECONDS_TO_WAIT, isolation_level=None)) as database:
                # A commit is on the disk, journal and directory included, before it returns.
                database.execute("PRAGMA synchronous = EXTRA")
                yield database
        except sqlite3.Error as error:
            raise self._unusable(str(error)) from None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or nothing."""
        with self._reading() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    def _unusable(self, reason: str) -> CoreshotError:
        return CoreshotError(
            f"ledger {self.path}: cannot be used ({reason}), so nothing is released; mend it, or name another place "
            f"with --ledger or {VARIABLE}."
        )


def _create_key(path: Path) -> None:
    """Under its name only when it is whole; of two processes, both then use the first one's."""
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
        file.write(os.urandom(KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def _order_of_bytes(rows: np.ndarray) -> np.ndarray:
    rows = np.ascontiguousarray(rows)
    return np.argsort(rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel(), kind="stable")


def _find_answer(database: sqlite3.Connection, share: Share, request: str) -> bytes | None:
    query = "SELECT message FROM answers JOIN shares ON share = id WHERE records = ? AND study = ? AND request = ?"
    row = database.execute(query, (share.records, share.study, request)).fetchone()
    return bytes(row[0]) if row else None


def _steps_taken(database: sqlite3.Connection, share: Share) -> dict[str, int]:
    query = "SELECT steps FROM answers JOIN shares ON share = id WHERE records = ? AND study = ?"
    taken: dict[str, int] = {}
    for (steps,) in database.execute(query, (share.records, share.study)):
        for name, number in json.loads(steps).items():
            taken[name] = taken.get(name, 0) + number
    return taken


def _note_share(database: sqlite3.Connection, share: Share) -> int:
    releases = json.dumps([release.to_dict() for release in share.releases])
    began = datetime.now(UTC).isoformat(timespec="seconds")
    values = share.records, share.study, share.name, releases, began
    columns = "(records, study, name, releases, began)"
    database.execute(f"INSERT OR IGNORE INTO shares {columns} VALUES (?, ?, ?, ?, ?)", values)
    query = "SELECT id FROM shares WHERE records = ? AND study = ?"
    identity = int(database.execute(query, (share.records, share.study)).fetchone()[0])
    database.execute("INSERT OR IGNORE INTO sources VALUES (?, ?)", (identity, share.data))
    return identity


def _check_steps(share: Share, taken: Steps, more: Steps) -> None:
    """A BudgetError where a release would have taken more steps than the study declared, or has none left."""
    for release in share.releases if not share.is_exact else ():
        before = taken.get(release.name, 0)
        if before + more.get(release.name, 0) > release.num_steps or before == release.num_steps:
            raise BudgetError(
                f"ledger: study {share.name!r} declared {release.num_steps} steps of {release.name!r}, and this site "
                f"has taken {before} of them, so it does not answer more; agree on a new study."
            )


def _check_total(database: sqlite3.Connection, share: Share) -> None:
    """A BudgetError where this share would pass the total of its data set, or of all data sets together."""
    totals = _totals(database)
    if not totals:
        return
    entries = _entries(database)
    is_new = (share.records, share.study) not in {(one.share.records, one.share.study) for one in entries}
    for data, whose in ((share.data, "of this data set"), (EVERYTHING, "of all data sets together")):
        total = totals.get(data)
        if total is None:
            continue
        if share.is_exact:
            raise BudgetError(
                f"ledger: study {share.name!r} releases without noise, to which no epsilon is a bound, and this site's "
                f"total {whose} is epsilon {total.epsilon:g}; use a private study, or remove the total."
            )
        if not is_new:  # it was counted with its first answer
            continue
        counted = [one.share for one in entries if data == EVERYTHING or data in one.sources]
        after, delta = private_epsilon([*counted, share], total.delta)
        if after > total.epsilon * (1 + TOLERANCE):
            before, _ = private_epsilon(counted, delta)
            raise BudgetError(
                f"ledger: study {share.name!r} would bring the sum {whose} from epsilon {before:.4g} to {after:.4g} at "
                f"delta {delta:.3g}, and this site's total is {total.epsilon:g}; refuse the study, or raise the total "
                "with `coreshot budget set`."
            )


def _totals(database: sqlite3.Connection) -> dict[str, Total]:
    rows = database.execute("SELECT data, epsilon, delta FROM totals")
    return {data: Total(epsilon, delta) for data, epsilon, delta in rows}


def _entries(database: sqlite3.Connection) -> list[Entry]:
    """In the order of their first answers."""
    found = []
    rows = database.execute("SELECT id, records, study, name, releases, began FROM shares ORDER BY id").fetchall()
    for identity, records, study, name, releases, began in rows:
        sources = [data for (data,) in database.execute("SELECT data FROM sources WHERE share = ?", (identity,))]
        share = Share(sources[0], records, study, name, parse_releases(json.loads(releases), "ledger"))
        count = database.execute("SELECT count(*) FROM answers WHERE share = ?", (identity,)).fetchone()[0]
        found.append(Entry(share, frozenset(sources), began, count, _steps_taken(database, share)))
    return found
