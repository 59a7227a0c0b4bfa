"""The [method] of a new study: what every site computes, unless the coordinator writes something else."""

from __future__ import annotations

from collections.abc import Sequence

from coreshot.study.draft import Task

_METHOD = """# What a site computes and sends, once. See docs/learners.md for others.
[method]
name = "spectral"
max_bytes = {max_bytes}
features = {features}

# For differential privacy of single records: name = "private_spectral" above, without max_bytes, and
# [privacy]
# epsilon = 3.0
# delta = 1e-5
"""
_VECTOR_FEATURES = (
    '{ name = "random_vector", dimension = 96, nonlinearity = "relu", input_scale = 3.0, with_inputs = true }'
)
_IMAGE_FEATURES = '{ name = "random_conv", dimension = 1024 }'
_SMALL_IMAGE_FEATURES = '{ name = "random_conv", dimension = 512, num_filters = 64, size = 3, grid = 3 }'


def method_lines(task: Task, num_inputs: int | None) -> str:
    """Of a table; its number of inputs is None while columns are still to be filled in."""
    return _METHOD.format(features=_VECTOR_FEATURES, max_bytes="9_000")


def image_method_lines(shape: Sequence[int]) -> str:
    features = _IMAGE_FEATURES if min(shape[:2]) >= 16 else _SMALL_IMAGE_FEATURES
    return _METHOD.format(features=features, max_bytes="70_000")
