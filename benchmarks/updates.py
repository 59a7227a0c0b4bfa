"""The BPC-fKL pseudodata updates that are timed: the paper's settings, for both sides, so plain numbers only."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Update:
    num_points: int  # K
    batch_size: int
    num_trajectories: int  # weight mc samples per update
    chain_optimizer: str
    chain_step_size: float
    chain_length: int  # L_C
    num_noise_samples: int  # S
    noise_scale: float
    prior_precision: float
    step_size_x: float
    step_of: str  # the gradient that step_size_x follows: of the points' log-likelihoods summed, or averaged
    input_shape: tuple[int, ...]
    num_outputs: int
    num_clients: int  # learned at the same time


MOONS = Update(
    num_points=5,
    batch_size=50,
    num_trajectories=20,
    chain_optimizer="adam",
    chain_step_size=1e-2,
    chain_length=200,
    num_noise_samples=10,
    noise_scale=1e-2,
    prior_precision=1e-1,
    step_size_x=1e-3,
    step_of="sum",
    input_shape=(2,),
    num_outputs=2,
    num_clients=1,
)
EMNIST_PAPER = Update(
    num_points=62,
    batch_size=25,
    num_trajectories=5,
    chain_optimizer="sgd",
    chain_step_size=1e-2,
    chain_length=250,
    num_noise_samples=10,
    noise_scale=1e-4,
    prior_precision=1e-2,
    step_size_x=1e2,
    step_of="mean",
    input_shape=(28, 28, 1),
    num_outputs=62,
    num_clients=2,
)
# A tenth of the chain and of the noise samples, so that the share of either in an update stays: a whole one takes
# about a minute.
EMNIST = replace(EMNIST_PAPER, chain_length=25, num_noise_samples=1)

UPDATES = {"moons": MOONS, "emnist": EMNIST}
MOONS_HIDDEN, MOONS_GROUPS = (50, 50), 2
CHANNELS, DENSE = (32, 64), (128,)
