"""A site's file of vectors says of which embedding they are, where a study's features are precomputed."""

from __future__ import annotations

from pathlib import Path

from coreshot.data.readers.npz_archive import load_arrays
from coreshot.errors import CoreshotError
from coreshot.methods.spectral import Spectral
from coreshot.spectral.brought_network import Precomputed
from coreshot.study.study import Study

KEY = "embedding"  # in an npz file: the embedding's name, a space, and the SHA-256 of its network


def check_embedding(study: Study, path: Path) -> None:
    if not isinstance(study.method, Spectral) or not isinstance(study.method.features, Precomputed):
        return
    features, arrays = study.method.features, load_arrays(path, str(path))
    wanted = f"{features.embedding} {features.sha256}"
    if KEY not in arrays:
        raise CoreshotError(
            f"{path}: does not say of which embedding its vectors are; save the text {features.embedding!r}, a space "
            f"and its network's SHA-256 as an array called {KEY}."
        )
    if str(arrays[KEY]) != wanted:  # what the file says instead is the site's own
        raise CoreshotError(
            f"{path}: its vectors are of another embedding than the study's {features.embedding} "
            f"({features.sha256[:12]}...); compute them again with the study's network."
        )
