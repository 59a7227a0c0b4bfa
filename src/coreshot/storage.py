"""Files that are complete or absent: written under a temporary name, flushed to disk, then renamed."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from coreshot.errors import CoreshotError

CLIENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,63}")


def write_bytes(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


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
