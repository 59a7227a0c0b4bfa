"""The cost of every method of the registry: passes by hand, and messages as long as those of a run."""

from dataclasses import replace

import jax
import pytest

from coreshot.config import decode_named
from coreshot.errors import CoreshotError
from coreshot.methods import METHODS
from coreshot.methods.peers import PEERS
from coreshot.runtime.simulate import simulate
from coreshot.wire.ledger import Ledger
from coreshot.wire.messages import encode_message

SIZES = (5, 7, 7)  # records of the three clients
STEPS = {"num_rounds": 2, "local_steps": 3, "batch_size": 6}
SGD = {"name": "sgd", "step_size": 0.1}
ADAM = {"name": "adam", "step_size": 0.02}
OPTIMIZERS = {"client_optimizer": SGD, "server_optimizer": ADAM}
PRIVACY = {"epsilon": 1.0, "delta": 1e-3}  # much noise is calibrated in less time
MIME = {"name": "mime", **STEPS, "base_optimizer": ADAM, "server_step_size": 1.0, "gradient_batch_size": 3}
FEATURES = {"name": "random_vector", "dimension": 6}
PRIVATE_SPECTRAL = {"name": "private_spectral", "privacy": PRIVACY, "features": {**FEATURES, "dimension": 40}}
MAP = {"optimizer": "adam", "step_size": 0.01, "num_steps": 5}
POOLED = {
    "name": "private_pooled_dm",
    "privacy": PRIVACY,
    "num_networks": 2,
    "points_per_class": 2,
    "num_updates": 4,
    "step_size_x": 0.1,
    "inference": MAP,
}
DOSFL = {
    "name": "dosfl",
    "distill_steps": 3,
    "distill_epochs": 2,
    "distill_batch_size": 2,
    "num_updates": 5,
    "batch_size": 4,
    "init_scale": 0.5,
    "initial_step_size": 0.1,
    "x_optimizer": SGD,
}
LOCAL = 3 * (5 + 6 + 6)  # 3 steps on batches of 6, or on all 5 records
# Settings; passes of all clients in all rounds; passes of the server.
CASES = {
    "fed_avg": ({"name": "fed_avg", **STEPS, **OPTIMIZERS}, 2 * LOCAL, 0),
    "fed_pa": (
        {"name": "fed_pa", **STEPS, **OPTIMIZERS, "num_samples": 3, "shrinkage": 0.1, "burn_in_rounds": 0},
        2 * LOCAL,
        0,
    ),
    # A full gradient, and in each step a gradient at two sets of weights; or at one.
    "mime": (MIME, 2 * (sum(SIZES) + 2 * LOCAL), 0),
    "mime lite": ({**MIME, "is_lite": True}, 2 * (sum(SIZES) + LOCAL), 0),
    # In each step half of the records on average.
    "private_fed_avg": (
        {
            "name": "private_fed_avg",
            **STEPS,
            **OPTIMIZERS,
            "privacy": PRIVACY,
            "sampling_rate": 0.5,
            "clip_norm": 1.0,
        },
        2 * 3 * sum(SIZES) / 2,
        0,
    ),
    # An update is four runs of 3 x 2 steps on 2 points, and a batch of 4; the server makes one run for each client.
    "dosfl": (DOSFL, 3 * 5 * (4 * 12 + 4), 3 * 12),
    "fed_avg_head": ({"name": "fed_avg_head", **STEPS, **OPTIMIZERS, "features": FEATURES}, 0, 0),
    **{name: ({"name": name, "features": FEATURES}, 0, 0) for name in PEERS if name != "fed_avg_head"},
    "glm": ({"name": "glm", "dimension": 6}, 0, 0),
    "one_shot": ({"name": "one_shot", "learner": {"name": "random_subset", "num_points": 3}}, 0, 0),
    "spectral": ({"name": "spectral", "features": FEATURES, "num_points": 4}, 0, 0),
    "spectral, coded": ({"name": "spectral", "features": FEATURES, "max_bytes": 60}, 0, 0),
    "private_spectral": (PRIVATE_SPECTRAL, 0, 0),
    "private_spectral, secure": ({**PRIVATE_SPECTRAL, "num_sharers": 3}, 0, 0),
    # One batch of 64 under 2 networks; 4 updates of 4 points, then 5 steps on them.
    "private_pooled_dm": (POOLED, 3 * 2 * 64, 4 * 4 + 5 * 4),
    "private_pooled_dm, secure": ({**POOLED, "num_sharers": 3}, 3 * 2 * 64, 4 * 4 + 5 * 4),
}
# Messages whose length depends on what is in them, and by how much more than a run's the plan's may be.
INEXACT = {"glm": 1.5, "spectral, coded": 1.3, "private_spectral": 1.1, "private_pooled_dm": 1.3}


@pytest.fixture(params=CASES)
def case(request):
    return request.param


@pytest.fixture
def make(make_study):
    def make(case, **changes):
        method = decode_named(METHODS, {**CASES[case][0], **changes}, "test", "method")
        return replace(make_study("classification"), method=method)

    return make


def test_every_method_has_a_case():
    assert {settings["name"] for settings, _, _ in CASES.values()} == METHODS.keys()


def test_passes_by_hand(make, case):
    study = make(case)
    found = study.method.cost(study.model, SIZES)
    assert (found.passes, found.server_passes) == CASES[case][1:]
    uses_features = "spectral" in case or case == "glm" or case in PEERS
    assert (found.operations > 0) == uses_features
    assert (found.server_operations > 0) == (uses_features and case != "fed_avg_head")


@pytest.mark.parametrize("case", ["fed_avg", "mime"], indirect=True)
def test_a_cohort_does_its_share(make, case):
    """Two of three clients of equal size are asked in a round: two thirds of the passes and of the answers."""
    study = make(case)
    every, some = (
        study.method.cost(study.model, (7, 7, 7)),
        make(case, cohort_size=2).method.cost(study.model, [7] * 3),
    )
    assert some.passes == pytest.approx(2 / 3 * every.passes)
    assert some.num_answers == pytest.approx(2 / 3 * every.num_answers)


def test_operations_grow_with_records_and_features(make):
    study = make("spectral")
    larger = make("spectral", features={**FEATURES, "dimension": 12})
    small, more, wide = (
        study.method.cost(study.model, [100]),
        study.method.cost(study.model, [200]),
        larger.method.cost(study.model, [100]),
    )
    assert small.operations < more.operations <= 2 * small.operations
    assert small.operations < wide.operations
    assert small.server_operations == more.server_operations < wide.server_operations


def test_a_secure_sum_of_other_clients_has_no_plan(make):
    study = make("private_spectral, secure")
    with pytest.raises(CoreshotError, match="num_sharers is 3, but there are 2 clients"):
        study.method.cost(study.model, (5, 7))


def test_messages_are_as_long_as_those_of_a_run(make, case, sample_points):
    study, ledger, planned = make(case), Ledger(), Ledger()
    names = [f"client {index}" for index in range(3)]
    clients = {
        name: sample_points("classification", seed, size)
        for seed, (name, size) in enumerate(zip(names, SIZES, strict=True))
    }
    simulate(jax.random.key(0), study, clients, ledger)
    found = study.method.cost(study.model, SIZES)
    for client, exchanges in zip(clients, found.exchanges, strict=True):
        for down, up in exchanges:
            planned.book("down", client, down, encode_message(down, study_hash=study.hash, client=client))
            encoded = encode_message(up, study_hash=study.hash, client=client, releases=study.releases)
            planned.book("up", client, up, encoded)
    assert found.num_answers * planned.bytes("down") == ledger.bytes("down")
    assert found.num_answers * len(planned.entries) == len(ledger.entries)
    if case in INEXACT:
        assert ledger.bytes("up") / INEXACT[case] <= planned.bytes("up") <= INEXACT[case] * ledger.bytes("up")
    else:
        assert found.num_answers * planned.bytes("up") == ledger.bytes("up")
        assert found.num_answers * planned.floats("up") == ledger.floats("up")
