"""Download a file, continue where it stopped, and check its SHA-256 before the file gets its name."""

from __future__ import annotations

import hashlib
import http.client
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from coreshot.errors import CoreshotError
from coreshot.progress import Progress, Silent
from coreshot.storage import read_json, write_json

CHUNK = 1 << 20
TIMEOUT = 30.0  # seconds without a byte
MOST_ATTEMPTS = 20  # each attempt but the last has received some bytes


def download(url: str, folder: Path, sha256: str, progress: Progress | None = None) -> tuple[Path, bool]:
    """The file, and whether it is new. The bytes received so far are in NAME.part beside it until all are there."""
    sha256 = sha256.lower()
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise CoreshotError(
            f"--sha256 {sha256}: a SHA-256 has 64 hexadecimal digits, this has {len(sha256)} characters; copy it anew."
        )
    target = folder / _file_name(url)
    if target.exists():
        found = _digest(target)
        if found != sha256:
            raise CoreshotError(
                f"{target}: is already there with another SHA-256 ({found}); move it away, or use another folder."
            )
        return target, False
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    _fetch(url, part, progress or Silent())
    found = _digest(part)
    if found != sha256:
        _forget(part)
        raise CoreshotError(
            f"{url}: the SHA-256 of what arrived is {found}, wanted was {sha256}; it was removed. "
            "Check the address and the checksum, and try again."
        )
    part.rename(target)
    _forget(part)
    return target, True


def _file_name(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    name = urllib.parse.unquote(parts.path.rpartition("/")[2])
    if parts.scheme not in ("http", "https") or not parts.netloc or not re.fullmatch(r"[\w][\w.+-]*", name):
        raise CoreshotError(
            f"{url}: not the address of a file; it starts with http:// or https:// and ends with the name of a file."
        )
    return name


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _notes(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _notes(part).unlink(missing_ok=True)


def _fetch(url: str, part: Path, progress: Progress) -> None:
    """Try until all bytes are there, as long as each attempt receives some."""
    for _ in range(MOST_ATTEMPTS):
        before = _size(part)
        if _fetch_more(url, part, progress):
            return
        if _size(part) <= before:
            break
    raise CoreshotError(
        f"{url}: the connection ended after {_size(part)} bytes, before the file did; "
        "give the same command again, and it goes on from there."
    )


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _fetch_more(url: str, part: Path, progress: Progress) -> bool:
    """Append what the server sends; True if the file is then complete."""
    headers = _resume_headers(url, part)
    start = _size(part)
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT) as answer:
            if answer.status != 206 or not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                start = 0  # the server sends the whole file: it cannot resume, or the file has changed
            return _receive(url, part, start, answer, progress)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and start:  # no bytes beyond ours: they are all, or of another file
                if error.headers.get("Content-Range") == f"bytes */{start}":
                    return True
                _forget(part)
                return _fetch_more(url, part, progress)
            raise CoreshotError(f"{url}: the server answers {error.code} {error.reason}; check the address.") from None
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise CoreshotError(
            f"{url}: no answer ({reason}); check the address and the network, and give the same command again."
        ) from None


def _resume_headers(url: str, part: Path) -> dict[str, str]:
    """If-Range: if the file has changed on the server, the server sends all of it, not an end that does not fit."""
    notes = read_json(_notes(part)) if _notes(part).exists() else {}
    if notes.get("url") != url:  # left by another address, or without notes
        _forget(part)
    if not _size(part):
        return {}
    return {"Range": f"bytes={_size(part)}-", **({"If-Range": notes["version"]} if notes.get("version") else {})}


def _receive(url: str, part: Path, start: int, answer: Any, progress: Progress) -> bool:
    length = answer.headers.get("Content-Length")
    total = None if length is None else start + int(length)
    if total is not None and total - start > shutil.disk_usage(part.parent).free:
        raise CoreshotError(
            f"{url}: {total - start} bytes do not fit on the disk of {part.parent}; make room, or use another folder."
        )
    etag = answer.headers.get("ETag")
    # If-Range does not accept a weak ETag.
    strong = etag if etag and not etag.startswith("W/") else answer.headers.get("Last-Modified")
    write_json(_notes(part), {"url": url, "version": strong})
    progress.begin(f"downloading {part.stem}, MB", -(-(total or start) // CHUNK))
    progress.advance(start // CHUNK)
    with part.open("r+b" if start else "wb") as file:
        file.seek(start)
        while chunk := _next_chunk(answer):
            file.write(chunk)
            progress.advance(len(chunk) // CHUNK)
    whole = chunk is not None and total in (None, _size(part))
    if whole:
        progress.end()
    return whole


def _next_chunk(answer: Any) -> bytes | None:
    """Empty at the end of the file; None if the connection broke."""
    try:
        return answer.read(CHUNK)
    except (OSError, http.client.HTTPException):
        return None
