"""Constants that standardise frozen features: a sidecar made once on public records, never on a site's.

The sidecar is a file of JSON beside the network, and the study names its SHA-256:

    {"format": "coreshot-sidecar-1", "network_sha256": "...", "made_on": "what the public records were",
     "outputs": {"pooled": {"mean": [...], "deviation": [...]}, ...}}

`examples/backbones/sidecar.py` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from coreshot.errors import CoreshotError
from coreshot.frozen.files import read_file

FORMAT = "coreshot-sidecar-1"
FLOOR = 0.01  # of a deviation, in shares of the largest: a feature that hardly moved on public records is not blown up


def read_constants(
    file: str, sha256: str, network_sha256: str, outputs: Sequence[str]
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Means and deviations of the outputs, joined."""
    data = read_file(file, sha256)
    try:
        found: Any = json.loads(data)
        parts = [found["outputs"][name] for name in outputs]
        means, deviations = (
            np.concatenate([np.asarray(part[key], np.float64).ravel() for part in parts])
            for key in ("mean", "deviation")
        )
        is_right = found["format"] == FORMAT and means.shape == deviations.shape
    except (ValueError, KeyError, TypeError, RecursionError):
        is_right = False
    if not is_right or not np.all(np.isfinite(means)) or not np.all(np.isfinite(deviations) & (deviations >= 0)):
        raise CoreshotError(
            f"features: {file} is no sidecar with mean and deviation of {', '.join(outputs)}; "
            "make it with examples/backbones/sidecar.py."
        )
    if found.get("network_sha256") != network_sha256:
        raise CoreshotError(f"features: {file} is the sidecar of another network; take the one made for the study's.")
    return means, np.maximum(deviations, FLOOR * max(float(np.max(deviations)), 1e-12))


def standardise(
    found: Float[np.ndarray, "n d"], center: Any, deviation: Any, round_to: float
) -> Float[np.ndarray, "n d"]:
    """In float64, then rounded: machines that differ in the last bits give equal numbers except at a border."""
    scaled = (found.astype(np.float64) - np.asarray(center, np.float64)) / np.asarray(deviation, np.float64)
    return (np.round(scaled / round_to) * round_to).astype(np.float32)
