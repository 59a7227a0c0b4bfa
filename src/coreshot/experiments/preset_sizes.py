"""What suits a data set: a network, features, the size of a coreset and the lengths of chains, for minutes on a core.

Lengths follow from a budget of seconds and from the operations of one training pass, so they are the same everywhere;
`coreshot run PRESET --plan` measures the time on the machine at hand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from coreshot.config import decode_named
from coreshot.data.store import StoredData
from coreshot.learners import LEARNERS
from coreshot.methods import OneShot
from coreshot.models import Model
from coreshot.models.networks import NETWORKS

OPERATIONS_A_SECOND = 1.1e10  # of training passes on one core, as measured for networks of three sizes
INFERENCE_SECONDS, ROUNDS_SECONDS, CORESET_SECONDS, FEATURES_SECONDS = 12.0, 45.0, 90.0, 240.0
COLOURS = 3  # channels of a photograph
SMALLEST_IMAGE, SMALL_IMAGE = 8, 16  # pixels of the shorter side
MOST_RAW_BYTES = 1 << 30  # of all training records as float32; more are not pooled

MOST_EXPERT_BYTES = 1_500_000_000
SAVE_INTERVAL = 15  # steps of an expert; it divides the lengths below
# Experts and chains of BPC-fKL, the longest first.
CORESET_LENGTHS: tuple[dict[str, int], ...] = (
    {"updates": 40, "trajectories": 5, "noise": 4, "data": 150, "coreset": 100, "experts": 20, "steps": 600},
    {"updates": 20, "trajectories": 3, "noise": 2, "data": 90, "coreset": 60, "experts": 10, "steps": 300},
    {"updates": 10, "trajectories": 2, "noise": 1, "data": 60, "coreset": 30, "experts": 5, "steps": 150},
    {"updates": 5, "trajectories": 2, "noise": 1, "data": 30, "coreset": 15, "experts": 3, "steps": 75},
    {"updates": 3, "trajectories": 2, "noise": 1, "data": 30, "coreset": 15, "experts": 2, "steps": 45},
)


@dataclass(frozen=True)
class Shape:
    """What is known of a data set before a preset is written for it."""

    kind: Any
    input_shape: tuple[int, ...]
    num_outputs: int
    sizes: tuple[int, ...]  # training records of each client that takes part
    num_left_out: int  # clients with too few records
    num_points: int  # of a coreset
    is_scaled: bool  # inputs or targets are to be standardised
    noise_scale: float

    @property
    def holds_images(self) -> bool:
        return len(self.input_shape) == 3

    @property
    def num_records(self) -> int:
        return sum(self.sizes)

    @property
    def can_pool(self) -> bool:
        return 4 * self.num_records * math.prod(self.input_shape) <= MOST_RAW_BYTES


def look_at(data: StoredData, test_fraction: float) -> Shape:
    """`test_fraction` of a client's records will not train; 0 where the set has test records."""
    description = data.description
    sizes = [max(1, one.count - round(test_fraction * one.count)) for one in data.of_role("train")]
    is_regression = description.kind == "regression"
    wanted = 20 if is_regression else min(max(2 * description.num_outputs, 10), 62)
    # Of the smallest clients, a tenth may be left out, so that the others can send as many points as there is use for.
    num_points = max(2, min(wanted, int(np.quantile(sizes, 0.1))))
    kept = tuple(size for size in sizes if size >= num_points) or tuple(sizes)
    is_scaled = is_regression or not _has_unit_range(data)
    noise_scale = _residual_deviation(data) if is_regression else 1.0
    return Shape(
        description.kind,
        description.input_shape,
        description.num_outputs,
        kept,
        len(sizes) - len(kept),
        num_points,
        is_scaled,
        noise_scale,
    )


def _some_training_rows(data: StoredData, at_most: int) -> np.ndarray:
    rows = np.concatenate([np.arange(one.start, one.start + one.count) for one in data.of_role("train", "extra")])
    return rows if len(rows) <= at_most else np.sort(np.random.default_rng(0).choice(rows, at_most, replace=False))


def _has_unit_range(data: StoredData) -> bool:
    """Whether inputs are pixels, or numbers in about as small a range."""
    if data.inputs.dtype == np.uint8:
        return True
    some = data.inputs[_some_training_rows(data, 2000)]
    return data.description.holds_images and float(np.abs(some).max()) <= 1.5


def _residual_deviation(data: StoredData) -> float:
    """What a straight line through some training records leaves of the targets' deviation; 0.5 for many inputs."""
    rows = _some_training_rows(data, 2000)
    x = data.inputs[rows].reshape(len(rows), -1).astype(np.float64)
    if x.shape[1] > len(rows) // 4:
        return 0.5
    y = data.targets[rows].astype(np.float64)
    y = (y - y.mean(axis=0)) / np.maximum(y.std(axis=0), 1e-12)
    x = np.concatenate([(x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-12), np.ones((len(x), 1))], axis=1)
    left = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    return float(np.clip(round(float(np.sqrt(np.mean(left**2))), 2), 0.05, 1.0))


def choose_network(shape: Shape) -> dict[str, Any]:
    if not shape.holds_images or min(shape.input_shape[:2]) < SMALLEST_IMAGE:
        activation = "swish" if shape.kind == "regression" else "relu"
        return {"name": "mlp", "hidden": [64, 64], "activation": activation}
    side = min(shape.input_shape[:2])
    if side < SMALL_IMAGE:
        return {"name": "convnet", "channels": [8, 16], "dense": [32]}
    # A stride that leaves about 32 lines of a large image, so that a pass costs as much as for a small one.
    network: dict[str, Any] = {"name": "convnet", "channels": [16, 32], "dense": [64], "pool_after": [1, 2]}
    return network if side < 64 else {**network, "strides": [side // 32, 1]}


def build_model(shape: Shape) -> Model:
    network = decode_named(NETWORKS, choose_network(shape), "new-preset", "network")
    return Model(network, shape.kind, shape.input_shape, shape.num_outputs, 1e-2, shape.noise_scale)


def pass_operations(shape: Shape) -> float:
    """Of one record, forward and backward: six for each product of a weight."""
    chosen = choose_network(shape)
    if chosen["name"] == "mlp":
        return 6.0 * build_model(shape).num_params()
    height, width, depth = shape.input_shape
    products, pooled = 0.0, chosen.get("pool_after", [len(chosen["channels"])])
    for index, channels in enumerate(chosen["channels"]):
        stride = chosen.get("strides", [1] * len(chosen["channels"]))[index]
        height, width = (height - 3) // stride + 1, (width - 3) // stride + 1
        products += height * width * 9 * depth * channels
        if index + 1 in pooled:
            height, width = height // 2, width // 2
        depth = channels
    return 6.0 * (products + height * width * depth * chosen["dense"][0])


def choose_features(shape: Shape) -> dict[str, Any]:
    """A random map: more dimensions for more records."""
    dimension = next(
        (d for d, most in ((512, 2_000), (1024, 10_000), (2048, 30_000)) if shape.num_records < most), 4096
    )
    side = min(shape.input_shape[:2]) if shape.holds_images else 0
    if side < SMALLEST_IMAGE:
        num_inputs = math.prod(shape.input_shape)
        random = {"name": "random_vector", "dimension": num_inputs + min(dimension, 1024), "nonlinearity": "relu"}
        return {**random, "input_scale": 3.0 if shape.is_scaled else 1.0, "with_inputs": True}
    if side < SMALL_IMAGE:
        return {"name": "random_conv", "dimension": min(dimension, 1024), "num_filters": 64, "size": 3, "grid": 3}
    height, width, channels = shape.input_shape
    if channels == COLOURS:
        return {"name": "whitened_patches", "dimension": dimension}
    places = (height - 6) * (width - 6) * 49 * channels + 16 * dimension
    filters = FEATURES_SECONDS * OPERATIONS_A_SECOND / (2 * places * shape.num_records)
    return {
        "name": "random_conv",
        "dimension": dimension,
        "num_filters": int(2 ** np.clip(np.log2(filters) // 1, 4, 8)),
    }


def choose_lengths(shape: Shape) -> dict[str, int]:
    """Of the coreset's chains, of the server's training, and of FedAvg."""
    passes_a_second = OPERATIONS_A_SECOND / pass_operations(shape)
    num_steps = int(np.clip(INFERENCE_SECONDS * passes_a_second / 64, 300, 2000)) // 100 * 100
    cohort = min(10, len(shape.sizes))
    rounds = int(np.clip(ROUNDS_SECONDS * passes_a_second / (cohort * 20 * 32), 10, 100)) // 10 * 10
    model = build_model(shape)
    for lengths in CORESET_LENGTHS:
        method = OneShot(learner=decode_named(LEARNERS, coreset_learner(shape, lengths), "new-preset", "learner"))
        cost = method.cost(model, list(shape.sizes))
        if cost.passes <= CORESET_SECONDS * passes_a_second and cost.num_bytes * len(shape.sizes) <= MOST_EXPERT_BYTES:
            break
    return {**lengths, "server_steps": num_steps, "rounds": rounds, "cohort": cohort}


def coreset_learner(shape: Shape, lengths: dict[str, int]) -> dict[str, Any]:
    """BPC-fKL, with the paper's values where the task allows them."""
    is_regression = shape.kind == "regression"
    values: dict[str, Any] = {
        "name": "bpc_fkl",
        "num_points": shape.num_points,
        "batch_size": 25,
        "num_updates": lengths["updates"],
        "init_scale": 1.0 if is_regression else 0.1,
        "num_trajectories": lengths["trajectories"],
        "chain_optimizer": "adam",
        "chain_step_size": 1e-3 if shape.holds_images else 1e-2,
        "data_chain_length": lengths["data"],
        "coreset_chain_length": lengths["coreset"],
        "num_noise_samples": lengths["noise"],
        "noise_scale": 1e-4 if shape.holds_images else 1e-2,
        "optimizer": "adam",
        "step_size_x": 1e-3 if shape.holds_images else 1e-2,
        "step_size_y": 0.1 if is_regression else 0.0,
        "decay": "cosine",
        "point_mass": "data",
    }
    start = {"start": "informative"} if is_regression else {"start": "between", "num_starts": 1}
    experts = {
        "num_trajectories": lengths["experts"],
        "num_steps": lengths["steps"],
        "save_interval": SAVE_INTERVAL,
        "step_size": values["chain_step_size"],
        "store": "memory",
    }
    return {**values, **start, "experts": experts}
