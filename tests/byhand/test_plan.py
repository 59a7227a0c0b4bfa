"""What a plan counts: against hand counts, and against a model that counts the points it is given."""

from dataclasses import dataclass

import jax
import pytest

from coreshot.config import decode_named
from coreshot.learners import LEARNERS
from coreshot.learners.experts import expert_steps
from coreshot.learners.informative_start import NUM_CANDIDATES
from coreshot.learners.loop import distill
from coreshot.models import Model
from coreshot.privacy.guarded_records import guard_records

PRIVACY = {"epsilon": 8.0, "delta": 1e-5}
DESCENT = {"num_points": 3, "num_updates": 5, "step_size_x": 0.05}
BPC = {"num_updates": 4, "num_trajectories": 2, "coreset_chain_length": 5}
NUM_EXAMPLES = 12  # padded to 16
EXPERTS = 3 * 10 * 8  # 3 experts x 10 steps x a batch of 8
CHAINS = 4 * 2 * 5 * 3  # 4 updates x 2 chains x 5 steps x 3 points

BY_HAND = {
    # 3 points, 5 updates: 3 + 16 records
    "dm": (DESCENT, 5 * (3 + 16)),
    # 3 points, a batch of 5, and 2 networks that are trained on 3 points
    "vbpc": ({**DESCENT, "num_networks": 2, "batch_size": 5}, 5 * (3 + 5 + 2 * 3)),
    # twice 4 records of 2 classes; 3 points once, again for 2 classes, and in 2 steps of the network
    "gradient_matching": ({**DESCENT, "batch_size": 4, "network_steps": 2}, 5 * (2 * 2 * 4 + 3 * (1 + 2 + 2))),
    # one batch of 64 under 2 networks, then 3 points in each update
    "private_dm": ({**DESCENT, "privacy": PRIVACY, "num_networks": 2, "records_each": 9.0}, 2 * 64 + 5 * 3),
    "everything": ({}, 0),
    "random_subset": ({"num_points": 3}, 0),
    "raw_images": ({"max_bytes": 6, "coding": {"bits": 8}}, 0),
    "class_mean": ({"num_points": 3}, 0),
    "noise": ({"num_points": 3, "init_scale": 0.5}, 0),
    "start_only": ({"num_points": 3, "init_scale": 0.5}, 0),
    # 2 x 2 perturbed ends of either kind, 3 points each
    "bpc_fkl": (BPC, EXPERTS + CHAINS + 4 * 3 * (4 + 4)),
    # 2 x 2 perturbed ends: a batch of 8 records and 3 points, then 3 points again
    "bpc_rkl": (BPC, EXPERTS + CHAINS + 4 * 4 * (8 + 2 * 3)),
    # each step of the chains once more, on the way back
    "bpc_w": (BPC, EXPERTS + 2 * CHAINS),
    # outputs at 3 points for 2 ends of either kind
    "fbpc": (BPC, EXPERTS + CHAINS + 4 * 3 * (2 + 2)),
    # a step of an expert sees half of 12 records on average
    "private_bpc_fkl": (
        {**BPC, "privacy": PRIVACY, "sampling_rate": 0.5, "clip_norm": 1.0, "records_each": 9.0},
        3 * 10 * 6 + CHAINS + 4 * 3 * (4 + 4),
    ),
}
UNCOUNTED = {"bpc_w", "private_bpc_fkl"}  # the way back through a chain, and the mean of random batches


@pytest.fixture
def make(bpc_settings):
    def make(name, **changes):
        base = bpc_settings if "bpc" in name and name != "vbpc" else {}
        return decode_named(LEARNERS, {**base, **BY_HAND[name][0], **changes, "name": name}, "test", "learner")

    return make


def test_every_learner_is_planned():
    assert BY_HAND.keys() == LEARNERS.keys()


@pytest.mark.parametrize("name", BY_HAND)
def test_passes_by_hand(make, make_model, name):
    cost = make(name).cost(make_model("classification"), NUM_EXAMPLES)
    assert cost.passes == BY_HAND[name][1]
    assert (cost.num_bytes > 0) == (cost.passes > 0) == (cost.work != "no training")


COUNTS: list[int] = []  # of all counting models: equal ones share compiled functions


@dataclass(frozen=True)
class CountingModel(Model):
    """Counts the points that are sent through the network, under every vmap and in every loop."""

    def _count(self, params, x):
        # Both are passed on, so that a vmap over either of them is seen.
        jax.debug.callback(lambda *_: COUNTS.append(x.shape[0]), jax.tree.leaves(params)[0].sum(), x.sum())

    def apply(self, params, x):
        self._count(params, x)
        return super().apply(params, x)

    def embed(self, params, x):
        self._count(params, x)
        return super().embed(params, x)


@pytest.mark.parametrize("name", sorted({name for name, (_, passes) in BY_HAND.items() if passes} - UNCOUNTED))
def test_passes_are_those_of_a_counting_model(make, make_model, sample_points, name):
    small = make_model("classification")
    model = CountingModel(small.network, small.kind, small.input_shape, small.num_outputs, 0.1, 1.0)
    learner = make(name)
    COUNTS.clear()
    clients = guard_records({"a": sample_points("classification", 0, NUM_EXAMPLES)}, learner.releases(model))
    distill(model, learner, clients, {"a": jax.random.key(0)}, jax.random.key(9))
    jax.effects_barrier()
    assert sum(COUNTS) == learner.cost(model, NUM_EXAMPLES).passes


def test_the_search_for_a_start_adds_its_chains(make, make_model):
    """6 draws x 2 chains x 5 steps x 3 points more, and 16 records at each end; one draw is not searched."""
    model = make_model("classification")
    usual = make("bpc_fkl").cost(model, NUM_EXAMPLES).passes
    assert make("bpc_fkl", start="between", num_starts=1).cost(model, NUM_EXAMPLES).passes == usual
    searched = make("bpc_fkl", start="between", num_starts=6).cost(model, NUM_EXAMPLES).passes
    assert searched == usual + 6 * 2 * (5 * 3 + 16)


def test_the_informative_start_asks_the_experts_twice(make, make_model):
    """3 experts at all candidates and 16 records; at the end at 3 points, twice, and 16 records."""
    model = make_model("regression")
    usual = make("bpc_fkl").cost(model, NUM_EXAMPLES).passes
    informed = make("bpc_fkl", start="informative").cost(model, NUM_EXAMPLES)
    assert informed.passes == usual + 3 * (NUM_CANDIDATES + 16) + 3 * (2 * 3 + 16)
    assert informed.has_point_weights


def test_more_data_draws_need_no_noise_samples(make, make_model):
    cost = make("bpc_fkl", num_data_draws=10).cost(make_model("classification"), NUM_EXAMPLES)
    assert cost.passes == EXPERTS + CHAINS + 4 * 3 * (4 + 10)


def test_steps_with_replay(make_bpc):
    """Starts 0, 2, 4, 6. A pool of 2 begins half-way through them on average, 4 steps, and 4 for the chain; the 8 draws
    move both ends by 2 each, and replace 2 trajectories, whose later ends take 4 steps each."""
    learner = make_bpc(experts={"store": "replay", "pool": 2})
    assert expert_steps(learner.experts, learner.data_chain_length, 8) == 2 * (4 + 4) + 8 * 2 * 2 + 2 * 4


def test_bytes_are_those_of_the_networks(make, make_model):
    model = make_model("classification")
    assert make("dm").cost(model, NUM_EXAMPLES).num_bytes == 4 * model.num_params()
    assert make("private_dm").cost(model, NUM_EXAMPLES).num_bytes == 2 * 4 * model.num_params()
    stored = make("bpc_fkl").cost(model, NUM_EXAMPLES).num_bytes
    assert stored == 4 * 3 * 6 * model.num_params()  # 3 experts, of which steps 0, 2, ..., 10 can be drawn
