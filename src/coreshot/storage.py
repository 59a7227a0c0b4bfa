"""Files that are complete or absent: written under a temporary name, flushed to disk, then renamed."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from coreshot.errors import CoreshotError

CLIENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,63}")


PRIVATE = 0o600  # the mode of a file that is for its owner alone


def write_bytes(path: Path, data: bytes, mode: int = 0o666) -> None:
    """The mode is what the process's umask leaves of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)  # of a killed process with the same number; its mode may be another
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_private(path: Path, data: bytes) -> None:
    """For what was computed from records, and for keys: no other user of the machine can read it."""
    write_bytes(path, data, PRIVATE)


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=1) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise CoreshotError(
            f"{path}: not valid JSON ({error}); it was changed by hand or damaged: "
            "restore it, or use another directory."
        ) from None


def check_client_name(client: str) -> str:
    """The same name, if it can be the name of a file on every system: a client's coreset is stored under it."""
    if CLIENT_NAME.fullmatch(client) and not client.endswith((" ", ".")):
        return client
    raise CoreshotError(
        f"client {client!r}: a name has at most 64 letters, digits, spaces, '.', '_' and '-', "
        "the first a letter or digit; change it."
    )
