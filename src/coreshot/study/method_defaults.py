"""The [method] of a new study: what every site computes, unless the coordinator writes something else."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from coreshot.study.draft import Task

_RANDOM_FEATURES = (
    '{{ name = "random_vector", dimension = {wide}, nonlinearity = "relu", input_scale = 3.0, with_inputs = true }}'
)
_TABLE_METHOD = f"""# What a site computes and sends, once. See docs/learners.md for others.
[method]
name = "glm" # {{what}}, on the columns and products of them
winsorise = true # a number far from the site's others counts as a limit, so that wrong cells weigh little
# max_bytes = 9_000 # of a site's sums, at most (its file has 1 or 2 kB more); without it, what predictions need
# dimension = {{dimension}} # features: {{dimension}} columns with their categories are the least; then no products

# For differential privacy of single records, in place of the lines above, and outside = "missing" or "clip" in each
# column (and "clip" in a quantity):
# [method]
# name = "private_spectral"
# features = {_RANDOM_FEATURES}
# [privacy]
# epsilon = 3.0
# delta = 1e-5
"""
_IMAGE_METHOD = """# What a site computes and sends, once. See docs/learners.md for others.
[method]
name = "spectral"
max_bytes = 70_000
features = {features}

# For differential privacy of single records: name = "private_spectral" above, without max_bytes, and
# [privacy]
# epsilon = 3.0
# delta = 1e-5
"""
_ADDITIONAL = 64  # random features of the private method
_IMAGE_FEATURES = '{ name = "random_conv", dimension = 1024 }'
_SMALL_IMAGE_FEATURES = '{ name = "random_conv", dimension = 512, num_filters = 64, size = 3, grid = 3 }'


def method_lines(task: Task, num_inputs: int | None) -> str:
    """Of a table; its number of inputs is None while columns are still to be filled in."""
    what = "linear regression" if task == "regression" else "logistic regression"
    least = num_inputs or 20
    return _TABLE_METHOD.format(what=what, dimension=least, wide=least + _ADDITIONAL)


def private_table_features(num_inputs: int) -> dict[str, Any]:
    """Of private_spectral, as the comment in a new study's file has them."""
    text = _RANDOM_FEATURES.format(wide=num_inputs + _ADDITIONAL)
    return dict(tomllib.loads(f"features = {text}")["features"])


def image_method_lines(shape: Sequence[int]) -> str:
    return _IMAGE_METHOD.format(features=_IMAGE_FEATURES if min(shape[:2]) >= 16 else _SMALL_IMAGE_FEATURES)
