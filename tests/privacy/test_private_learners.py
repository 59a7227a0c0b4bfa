"""Private learners and private FedAvg: their promise, what they need of the records, and that they learn where the
noise allows it.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest

from coreshot.api import distill as send
from coreshot.config import decode_named, encode_named
from coreshot.errors import CoreshotError
from coreshot.learners import LEARNERS
from coreshot.learners.loop import distill
from coreshot.methods import METHODS
from coreshot.methods.one_shot import OneShot, coreset_message, message_coreset
from coreshot.privacy.accounting import compute_epsilon
from coreshot.privacy.guarded_records import guard_records, stacked
from coreshot.privacy.promise import promise
from coreshot.runtime.simulate import simulate
from coreshot.types import make_points
from coreshot.wire.ledger import Ledger

PRIVACY = {"epsilon": 6.0, "delta": 1e-4}
DM = {
    "name": "private_dm",
    "num_points": 4,
    "num_updates": 3,
    "step_size_x": 0.05,
    "privacy": PRIVACY,
    "num_networks": 2,
    "records_each": 30.0,
}
FED_AVG = {
    "name": "private_fed_avg",
    "num_rounds": 3,
    "local_steps": 2,
    "batch_size": 10,
    "client_optimizer": {"name": "sgd", "step_size": 0.5},
    "server_optimizer": {"name": "sgd", "step_size": 1.0},
    "privacy": PRIVACY,
    "sampling_rate": 0.3,
    "clip_norm": 1.0,
}


@pytest.fixture(scope="module")
def make_private(bpc_settings):
    changed = {
        **bpc_settings,
        "name": "private_bpc_fkl",
        "privacy": PRIVACY,
        "sampling_rate": 0.3,
        "clip_norm": 1.0,
        "records_each": 30.0,
    }

    def make(name, **changes):
        return decode_named(LEARNERS, {**(DM if name == "private_dm" else changed), **changes}, "test", "learner")

    return make


@pytest.fixture(scope="module")
def clients(sample_points):
    return {name: sample_points("classification", seed, 30 + seed) for seed, name in enumerate("ab")}


def learn(learner, model, clients):
    asked = guard_records(clients, learner.releases(model))
    keys = {name: jax.random.key(index) for index, name in enumerate(clients)}
    return {name: one.coreset for name, one in distill(model, learner, asked, keys, jax.random.key(9)).items()}


@pytest.mark.parametrize("name", ["private_bpc_fkl", "private_dm"])
def test_keeps_its_promise_by_declaration_and_learns_whole_coresets(make_private, make_model, clients, name):
    learner, model = make_private(name), make_model("classification")
    releases = learner.releases(model)
    assert all(release.mechanism in ("gaussian", "dp_sgd") for release in releases)
    assert 0.98 * PRIVACY["epsilon"] < compute_epsilon(releases, PRIVACY["delta"]) <= PRIVACY["epsilon"]
    assert "epsilon = 6 and delta = 0.0001" in promise(releases)
    for coreset in learn(learner, model, clients).values():
        assert coreset.points.x.shape == (learner.num_points, 2)
        assert float(coreset.num_examples) == 30, "how many records there are is not told"
        assert np.all(np.isfinite(coreset.points.x))
        back = message_coreset(coreset_message(coreset, model, 0), model, "a")
        assert np.array_equal(back.points.x, coreset.points.x)


@pytest.mark.parametrize("name", ["private_bpc_fkl", "private_dm"])
def test_uses_what_it_declares_and_nothing_else(make_private, make_model, clients, name):
    learner, model = make_private(name), make_model("classification")
    (release,) = learner.releases(model)
    asked, undeclared = (stacked(list(guard_records(clients, declared).values()), 32) for declared in ([release], []))
    learner.init(jax.random.split(jax.random.key(0), 2), model, asked, jax.random.key(9))
    assert asked.used == {release.name}
    with pytest.raises(CoreshotError, match=f"asks for its client's records as '{release.name}'"):
        learner.init(jax.random.split(jax.random.key(0), 2), model, undeclared, jax.random.key(9))


@pytest.mark.parametrize("name", ["private_bpc_fkl", "private_dm"])
def test_whether_there_is_an_answer_does_not_hang_on_one_record(make_private, make_study, name):
    """Records of one class, or fewer than a coreset has points: an exact learner refuses them in words that tell
    of it, a private one does not.
    """
    private = replace(make_study("classification"), method=OneShot(learner=make_private(name)))
    for x, y in ((np.ones((30, 2)), np.zeros(30, int)), (np.ones((1, 2)), np.zeros(1, int))):
        assert send(private, x, y, client="a")
        with pytest.raises(CoreshotError, match=r"all 30 labels|fewer than the coreset"):
            send(make_study("classification"), x, y, client="a")


@pytest.mark.parametrize("name", ["private_bpc_fkl", "private_dm"])
def test_two_runs_with_the_same_seeds_differ(make_private, make_model, clients, name):
    learner, model = make_private(name), make_model("classification")
    first, second = learn(learner, model, clients), learn(learner, model, clients)
    assert not np.array_equal(first["a"].points.x, second["a"].points.x)


@pytest.mark.parametrize("name", ["private_bpc_fkl", "private_dm"])
def test_start_and_labels_are_the_same_for_any_records(make_private, make_model, name):
    """Records of one class only, far away: the labels still cycle through all classes, and no start has seen
    where the records are.
    """
    learner, model = make_private(name), make_model("classification")
    far = {"a": make_points(np.full((30, 2), 500.0), np.tile([[0.0, 1.0]], (30, 1)))}
    coreset = learn(learner, model, far)["a"]
    assert np.array_equal(np.argmax(coreset.points.y, axis=1), np.arange(learner.num_points) % 2)
    assert np.max(np.abs(coreset.points.x)) < 50


@pytest.mark.parametrize("name", ["private_bpc_fkl", "private_dm"])
def test_settings_survive_and_regression_is_refused(make_private, make_model, sample_points, name):
    learner = make_private(name)
    assert decode_named(LEARNERS, encode_named(LEARNERS, learner), "test", "learner") == learner
    with pytest.raises(CoreshotError, match="classification study"):
        learn(learner, make_model("regression"), {"a": sample_points("regression", 0, 12)})


def test_a_start_at_the_records_is_refused(make_private):
    with pytest.raises(CoreshotError, match="starts around start_value"):
        make_private("private_bpc_fkl", start="between")


def test_private_dm_matches_where_the_noise_allows_it(make_private, make_model, sample_points):
    """Many records and little noise: points of a class move to where that class is."""
    learner = make_private(
        "private_dm", num_updates=200, privacy={"epsilon": 8.0, "delta": 1e-3}, num_networks=4, init_scale=0.5
    )
    model = make_model("classification")
    clients = {"a": sample_points("classification", 0, 2000)}
    coreset = learn(learner, model, clients)["a"]
    real, points = clients["a"], coreset.points
    gap = np.mean(points.x[1::2], axis=0) - np.mean(points.x[::2], axis=0)
    label = np.argmax(real.y, axis=1)
    truth = np.mean(np.asarray(real.x)[label == 1], axis=0) - np.mean(np.asarray(real.x)[label == 0], axis=0)
    assert gap @ truth / np.linalg.norm(gap) / np.linalg.norm(truth) > 0.8


@pytest.fixture(scope="module")
def fed_avg(make_study):
    def make(**changes):
        return replace(
            make_study("classification"),
            method=decode_named(METHODS, {**FED_AVG, **changes}, "test", "method"),
        )

    return make


def test_private_fed_avg_counts_every_step_of_every_round(fed_avg, clients):
    study = fed_avg()
    (release,) = study.releases
    assert (release.num_steps, release.sampling_rate, release.sensitivity) == (6, 0.3, 1.0)
    assert 0.98 * PRIVACY["epsilon"] < compute_epsilon(study.releases, PRIVACY["delta"]) <= PRIVACY["epsilon"]
    longer = fed_avg(num_rounds=15).releases[0]  # as many steps as private_bpc_fkl: its noise is calibrated already
    assert longer.noise_multiplier > 1.3 * release.noise_multiplier
    assert release.sampling_rate * 30 < 10, "divided by the batch size that the study names, whatever is drawn"
    states = [simulate(jax.random.key(0), study, clients, Ledger()) for _ in range(2)]
    assert not np.array_equal(*[np.asarray(jax.tree.leaves(state.params)[0]) for state in states])


def test_private_fed_avg_uses_what_it_declares_and_nothing_else(fed_avg, clients):
    study = fed_avg()
    state = study.method.init(jax.random.key(0), study.model, study.shared_key)
    message = study.method.send(jax.random.key(0), study.model, state, tuple(clients)).message
    asked, undeclared = guard_records(clients, study.releases), guard_records(clients, [])
    study.method.reply(jax.random.key(0), study.model, asked, [message], study.shared_key, lambda _: None)
    assert all(records.used == {"local steps"} for records in asked.values())
    with pytest.raises(CoreshotError, match="asks for its client's records as 'local steps'"):
        study.method.reply(jax.random.key(0), study.model, undeclared, [message], study.shared_key, lambda _: None)


def test_private_fed_avg_learns_with_many_records(fed_avg, sample_points):
    study = fed_avg(num_rounds=15, batch_size=600)
    clients = {name: sample_points("classification", seed, 2000) for seed, name in enumerate("ab")}
    state = simulate(jax.random.key(0), study, clients, Ledger())
    test = sample_points("classification", 9, 400)
    logits = study.model.apply(state.params, test.x)
    assert np.mean(np.argmax(logits, axis=1) == np.argmax(test.y, axis=1)) > 0.85
