"""The attack on low bits (Mironov, CCS 2012) against what DP-SGD releases: a coordinator who chooses the weights must
not tell a record by the lattice on which a floating-point sum lies.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from coreshot.audit.attack import measure_success, run_attack
from coreshot.audit.bound import lower_bound
from coreshot.config import decode_named
from coreshot.methods import METHODS
from coreshot.models import Model
from coreshot.models.networks import Mlp
from coreshot.privacy.guarded_records import guard_records
from coreshot.privacy.promise import promised_epsilon
from coreshot.types import make_points
from coreshot.wire.messages import Message, flatten_tree

NUM_INPUTS = 1000
EPSILON = 0.5
CONFIDENCE = 0.999  # of intervals: a check that holds fails once in a thousand runs
METHOD = {
    "name": "private_fed_avg",
    "num_rounds": 1,
    "local_steps": 1,
    "batch_size": 1,
    "client_optimizer": {"name": "sgd", "step_size": 1.0},
    "server_optimizer": {"name": "sgd", "step_size": 1.0},
    "privacy": {"epsilon": EPSILON, "delta": 1e-5},
    "sampling_rate": 1.0,
    "clip_norm": 1.0,
}


@pytest.fixture(scope="module")
def method():
    return decode_named(METHODS, METHOD, "test", "method")


@pytest.fixture(scope="module")
def model():
    return Model(Mlp(hidden=(), activation="relu"), "classification", (NUM_INPUTS,), 2, 1.0, 1.0)


def released(method, model, points, num_trials):
    """What a coordinator gets who sends weights of zero: minus the noisy gradient, and nothing that is added to it."""
    params = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), model.shapes())
    asked = Message("weights", 0, flatten_tree("params", params))
    found = []
    for _ in range(num_trials):
        clients = guard_records({"a": points}, method.releases(model))  # each is asked once
        answers = method.reply(jax.random.key(0), model, clients, [asked], jax.random.key(1), lambda _: None)
        found.append(ravel_pytree(method.read(model, "a", answers["a"][0]).trees["delta"])[0])
    return np.asarray(found)


def on_the_lattice(found, own):
    """The score of each trial: which share of its small numbers are multiples of half the last bit of the record's own
    gradient there.

    A number far smaller than the gradient can only be such a multiple where the gradient was added to noise in float32.
    Without the record it is noise alone, which has finer bits. Nothing but low bits enters the score.
    """
    step = np.spacing(np.abs(own)).astype(np.float64) / 2
    found = found.astype(np.float64)
    is_small = (np.abs(found) < np.abs(own) / 4) & (own != 0)
    is_multiple = np.fmod(found, np.where(own != 0, step, 1.0)) == 0
    num_small = np.sum(is_small, axis=1)
    return np.where(num_small > 0, np.sum(is_small & is_multiple, axis=1) / np.maximum(num_small, 1), 0.5)[:, None]


@pytest.fixture(scope="module")
def target():
    return np.abs(np.random.default_rng(0).normal(size=NUM_INPUTS)) + 0.5


@pytest.fixture(scope="module")
def own(target):
    """The target's clipped gradient at weights of zero, where both classes have probability 1 / 2; biases first."""
    gradient = np.concatenate([[-0.5, 0.5], np.outer(target, [-0.5, 0.5]).ravel()])
    return (gradient / np.linalg.norm(gradient)).astype(np.float32)


def test_low_bits_of_dp_fed_avg_do_not_tell_a_record(method, model, target, own):
    """The attack's AUC is chance, and the audit's bound is below the claim: with and without a record, beside two
    others whose gradients at weights of zero cancel.

    When DP-SGD added float32 noise to float32 sums, this test found an AUC of 0.85 and a bound of 2.9.
    """
    others = np.stack([target[::-1], target[::-1]])
    without = make_points(others, np.eye(2))
    with_it = make_points(np.concatenate([others, target[None]]), np.eye(2)[[0, 1, 0]])
    inside, outside = (on_the_lattice(released(method, model, one, 600), own) for one in (with_it, without))
    attack, releases = run_attack(inside, outside), method.releases(model)
    area = measure_success(attack.held_out, CONFIDENCE).auc
    claim, bound = promised_epsilon(releases), lower_bound(attack, releases, CONFIDENCE).epsilon
    assert area.low <= 0.5 <= area.high
    assert bound < claim <= EPSILON


def test_negative_control_the_attack_breaks_noise_in_floating_point(method, model, own):
    """The same claim and the same amount of noise, added to the same gradient in float32."""
    draws, releases = np.random.default_rng(1), method.releases(model)
    noise = np.float32(releases[0].noise_multiplier) * draws.normal(size=(2, 600, len(own))).astype(np.float32)
    attack = run_attack(on_the_lattice(own + noise[0], own), on_the_lattice(noise[1], own))
    assert measure_success(attack.held_out, CONFIDENCE).auc.low > 0.8
    assert lower_bound(attack, releases, CONFIDENCE).epsilon > 4 * EPSILON
