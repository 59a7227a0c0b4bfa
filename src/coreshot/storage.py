"""Files that are whole or not there: written under a temporary name, flushed to disk, renamed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from coreshot.errors import CoreshotError


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
            f"{path}: not valid JSON ({error}); it was changed by hand or damaged: restore it, or use another directory."
        ) from None
