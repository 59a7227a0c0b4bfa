"""Limits on what a study may ask for, checked before any work: a study comes from somebody else.

They are far above what any study of use needs, and keep a mistake or a hostile file from filling a site's memory.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from coreshot.errors import CoreshotError

MAX_INPUTS = 10_000_000  # numbers of one record
MAX_OUTPUTS = 100_000
MAX_NUMBERS = 200_000_000  # in the points of one client
MAX_WEIGHTS = 500_000_000  # of a network's layers
MAX_SEED = 2**63 - 1
# Of settings by name, wherever they stand.
LIMITS = {
    "dimension": 20_000,
    "num_points": 100_000,
    "points_per_class": 10_000,
    "distill_steps": 100_000,
    "distill_batch_size": 100_000,
    "num_trajectories": 10_000,
    "pool": 10_000,
    "num_networks": 10_000,
    "num_starts": 10_000,
    "num_noise_samples": 10_000,
    "num_filters": 10_000,
    "input_size": 2_048,
    "num_samples": 100_000,
    "batch_size": 1_000_000,
    "gradient_batch_size": 1_000_000,
    "num_sharers": 100_000,
}
MAX_COUNT = 10**12  # of every other whole number
LAYERS = ("hidden", "channels", "dense")


def check_limits(agreement: Any, network: Any, method: Any, where: str = "study") -> None:
    """A CoreshotError that names the first setting beyond its limit."""
    num_inputs = math.prod(agreement.input_shape)
    _at_most(num_inputs, MAX_INPUTS, f"{where}: input_shape gives", "numbers for a record")
    _at_most(agreement.num_outputs, MAX_OUTPUTS, f"{where}: num_outputs =", "")
    if abs(agreement.seed) > MAX_SEED:
        raise CoreshotError(f"{where}: seed is not a whole number of 64 bits; choose a smaller one.")
    found = dict[str, int]()
    for part in (network, method):
        for name, value in _whole_numbers(part):
            _at_most(value, LIMITS.get(name, MAX_COUNT), f"{where}: {name} =", "")
            found[name] = max(value, found.get(name, 0))
    points = found.get("num_points", found.get("points_per_class", 0) * agreement.num_outputs)
    _at_most(points * num_inputs, MAX_NUMBERS, f"{where}: points and inputs give", "numbers in a client's points")
    proxy = vars(vars(method)["learner"]).get("proxy_network") if "learner" in vars(method) else None
    for name, layers in (("network", network), ("proxy network", proxy)):
        widths = [num_inputs, *(width for name, width in _whole_numbers(layers) if name in LAYERS)]
        weights = sum(one * next_one for one, next_one in pairwise([*widths, agreement.num_outputs]))
        if len(widths) > 1:  # the network of a method without one is there by default, and is not used
            _at_most(weights, MAX_WEIGHTS, f"{where}: the {name}'s layers have", "weights")


def _at_most(value: int, limit: int, found: str, what: str) -> None:
    if value > limit:
        number = f"{value:,}" if value < 10**15 else "far too many"
        raise CoreshotError(f"{found} {number}{f' {what}' if what else ''}, and the limit is {limit:,}; lower it.")


def _whole_numbers(value: Any, name: str = "") -> Iterator[tuple[str, int]]:
    """The whole numbers among the settings, with the setting's name, at any depth."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _whole_numbers(vars(value).get(field.name), field.name)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _whole_numbers(item, name)
    elif type(value) is int:
        yield name, value
