"""A preset that compares learners, inferences and coreset sizes K on one task.

It always has the baselines that a learned coreset must beat: a random subset, class means, noise, as many raw records
of 8 bits as fit the same bytes, raw images at half resolution, the spectral coreset with these bytes, and pooled data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coreshot.config import choose
from coreshot.errors import CoreshotError
from coreshot.experiments.preset import Preset, build_preset, load_preset

BYTES_PER_FLOAT = 4
LEAST_BYTES = 500  # of a spectral coreset: its histograms need some
IMAGE_FEATURES = {"name": "random_conv", "dimension": 1024}
VECTOR_FEATURES = {"name": "random_vector", "dimension": 256}


def comparison_preset(
    name: str,
    overrides: Sequence[str],
    learners: Sequence[str] | None,
    inferences: Sequence[str] | None,
    sizes: Sequence[int] | None,
) -> Preset:
    """The preset of the comparison. Learners and inferences are named as in the given preset."""
    preset = load_preset(name, overrides)
    where = f"compare {preset.name}"
    own = [key for key, learner in preset.learners.items() if learner.num_chunks]  # without baselines
    chosen = list(learners or own)
    infer = list(inferences or list(preset.inferences)[:1])
    for key in chosen:
        choose("learner", key, dict.fromkeys(own), where)
    for key in infer:
        choose("inference", key, preset.inferences, where)
    if not chosen or not infer:
        raise CoreshotError(
            f"{where}: the preset has no learner or no inference to compare; add one, or name another preset."
        )
    sizes = list(sizes or [preset.learners[chosen[0]].num_points])  # type: ignore[list-item]
    tables = _learner_tables(preset, chosen, sizes)
    methods = _spectral_tables(preset, sizes)
    arms = [*_learner_arms(tables, infer), *({"label": label, "method": key} for key, (label, _) in methods.items())]
    values = {
        **preset.resolved,
        "title": f"Learners compared: {preset.title}",
        "learner": {key: values for key, (_, values) in tables.items()},
        "method": {key: values for key, (_, values) in methods.items()},
        "arm": arms,
        "match": arms[0]["label"],
    }
    values.pop("sweep", None)
    return build_preset(f"{preset.name}_compare", values)


def _learner_tables(
    preset: Preset, chosen: Sequence[str], sizes: Sequence[int]
) -> dict[str, tuple[str, dict[str, Any]]]:
    """By key: the learner's label and its settings."""
    found = {
        f"{key}_{size}": (f"{key}, K = {size}", {**preset.resolved["learner"][key], "num_points": size})
        for key in chosen
        for size in sizes
    }
    shape = preset.model.input_shape
    for size in sizes:
        max_bytes = size * math.prod(shape) * BYTES_PER_FLOAT
        found[f"random_subset_{size}"] = f"random subset, K = {size}", {"name": "random_subset", "num_points": size}
        found[f"class_mean_{size}"] = f"class mean, K = {size}", {"name": "class_mean", "num_points": size}
        found[f"noise_{size}"] = f"noise, K = {size}", {"name": "noise", "num_points": size, "init_scale": 0.1}
        raw = {"name": "raw_images", "max_bytes": max_bytes}
        found[f"raw_{size}"] = f"raw records of 8 bits, in the bytes of K = {size}", {**raw, "coding": {"bits": 8}}
        if len(shape) == 3 and shape[0] % 2 == shape[1] % 2 == 0:
            found[f"half_{size}"] = (
                f"raw images at half resolution, in the bytes of K = {size}",
                {**raw, "coding": {"bits": 8, "factor": 2}},
            )
    return {**found, "pooled": ("pooled", {"name": "everything"})}


def _learner_arms(
    tables: Mapping[str, tuple[str, dict[str, Any]]], inferences: Sequence[str]
) -> Iterator[dict[str, Any]]:
    for key, (label, _) in tables.items():
        for inference in inferences:
            yield {"label": f"{label} + {inference}", "learner": key, "inference": inference, "weighting": "mass"}


def _spectral_tables(preset: Preset, sizes: Sequence[int]) -> dict[str, tuple[str, dict[str, Any]]]:
    """The preset's own spectral methods, or for each K one that sends as many bytes as K points of float32."""
    own = {
        key: (key.replace("_", " "), values)
        for key, values in preset.resolved.get("method", {}).items()
        if values["name"] == "spectral"
    }
    if own:
        return own
    shape = preset.model.input_shape
    features = IMAGE_FEATURES if len(shape) == 3 else VECTOR_FEATURES
    if len(shape) == 3 and min(shape[:2]) < 16:
        features = {**features, "size": 3, "grid": 3}
    budgets = [max(LEAST_BYTES, size * math.prod(shape) * BYTES_PER_FLOAT) for size in sizes]
    return {
        f"spectral_{size}": (
            f"spectral, in the bytes of K = {size}",
            {"name": "spectral", "features": features, "max_bytes": budget},
        )
        for size, budget in zip(sizes, budgets, strict=True)
    }


def per_client(rows: Sequence[dict[str, Any]], num_clients: int) -> list[dict[str, Any]]:
    return [
        {**row, "kilobytes": row["bytes_up"] / num_clients / 1e3, "seconds": row["seconds_client"] / num_clients}
        for row in rows
    ]
