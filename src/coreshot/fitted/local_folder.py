"""A model that was adapted at a site, as a folder that `predict`, `evaluate` and `export` read.

It has no coresets: nobody can be added to it or forgotten in it. Adapt the federation's model again instead. It is made
of the site's own records, without noise, so it stays where they are.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

import tomli_w

from coreshot.errors import CoreshotError
from coreshot.fitted.adapting import Adapted
from coreshot.fitted.folder import ModelFolder
from coreshot.fitted.posterior_file import posterior_bytes
from coreshot.storage import PRIVATE, write_bytes


def write_local(path: Path, federation: ModelFolder, adapted: Adapted) -> None:
    """model.toml is written last, as in every model's folder."""
    if path.exists():
        raise CoreshotError(f"{path}: is there already; use another --out, or remove it.")
    values = tomllib.loads((federation.path / "model.toml").read_text())
    data = posterior_bytes(adapted.model.posterior)
    name = f"posterior-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
    of = values["posterior"].removeprefix("posterior-").removesuffix(".safetensors")
    local = {"of": of, **adapted.facts, "words": list(adapted.words)}
    write_bytes(path / "study.toml", federation.study_file.text.encode())
    write_bytes(path / name, data, PRIVATE)
    write_bytes(path / "model.toml", tomli_w.dumps({**values, "posterior": name, "local": local}).encode(), PRIVATE)
