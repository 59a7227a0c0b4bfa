"""One exchange from end to end: any subset of replies will do, their order does not matter, and the wire changes no
bit.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coreshot
from coreshot.errors import CoreshotError
from coreshot.inference.registry import MapEstimate
from coreshot.methods.one_shot import OneShot, pool_coresets
from coreshot.methods.protocol import Invitation, PointInference
from coreshot.privacy.guarded_records import guard_records
from coreshot.runtime.simulate import simulate
from coreshot.study import Study
from coreshot.wire.ledger import Ledger
from coreshot.wire.messages import Message, decode_message, encode_message

INFERENCE = MapEstimate(optimizer="adam", step_size=0.05, num_steps=3)
NOISE = {"name": "noise", "num_points": 4, "init_scale": 0.5}


@pytest.fixture(scope="module")
def study(make_study):
    return make_study("classification", NOISE)


@pytest.fixture(scope="module")
def clients(sample_points):
    return {name: sample_points("classification", seed, 6 + seed) for seed, name in enumerate("abc")}


@pytest.fixture(scope="module")
def method(study):
    return study.method


@pytest.fixture(scope="module")
def replies(study, method, clients):
    answers = method.reply(
        jax.random.key(0),
        study.model,
        guard_records(clients, study.releases),
        [Message("invitation", 0, {})],
        study.shared_key,
        lambda clients: None,
    )
    return {name: message for name, (message, _) in answers.items()}


def received(method, study, replies):
    key = jax.random.key(0)
    contents = {name: method.read(study.model, name, reply) for name, reply in replies.items()}
    return method.receive(key, study.model, method.init(key, study.model, study.shared_key), contents)


def test_one_exchange_and_no_more(study, method, replies):
    key = jax.random.key(0)
    state = method.init(key, study.model, study.shared_key)
    assert method.send(key, study.model, state, ("a", "b")) == Invitation(("a", "b"), Message("invitation", 0, {}))
    assert method.send(key, study.model, received(method, study, replies), ("a", "b")) is None


@pytest.mark.parametrize(
    "names", [subset for size in (1, 2, 3) for subset in itertools.combinations("abc", size)], ids="".join
)
def test_any_subset_of_replies_is_accepted(study, method, replies, names):
    state = received(method, study, {name: replies[name] for name in names})
    pooled = pool_coresets(state.coresets, "mass")
    assert pooled.num_points == 4 * len(names)
    assert float(jnp.sum(pooled.weight)) == pytest.approx(sum(6 + "abc".index(name) for name in names))
    posterior, _ = method.posterior(jax.random.key(0), study.model, state, PointInference(INFERENCE))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(posterior))


def test_order_of_arrival_does_not_matter(study, method, replies, same):
    def posterior(names):
        state = received(method, study, {name: replies[name] for name in names})
        return method.posterior(jax.random.key(0), study.model, state, PointInference(INFERENCE))[0]

    assert same(posterior("abc"), posterior("cab"))
    assert not same(posterior("abc"), posterior("ab"))


def test_the_wire_changes_no_bit(study, method, replies, same):
    crossed = {
        name: decode_message(
            encode_message(message, study_hash=study.hash, client=name), study_hash=study.hash, client=name
        )
        for name, message in replies.items()
    }
    assert all(same(crossed[name].arrays, message.arrays) for name, message in replies.items())
    assert all(isinstance(array, jax.Array) for message in crossed.values() for array in message.arrays.values())
    in_process, over_the_wire = (
        pool_coresets(received(method, study, arrived).coresets, "mass") for arrived in (replies, crossed)
    )
    assert same(in_process, over_the_wire)


def run(study, method, clients, seed=0, replies=None):
    replies, ledger = {} if replies is None else replies, Ledger()
    state = simulate(jax.random.key(seed), study, clients, ledger, replies=replies)
    return {key: reply.data for key, reply in replies.items()}, ledger, state


def test_simulating_twice_gives_the_same_bytes(study, method, clients):
    one, two, other = (
        run(study, method, clients)[0],
        run(study, method, clients)[0],
        run(study, method, clients, seed=1)[0],
    )
    assert one == two
    assert one.keys() == {(0, "a"), (0, "b"), (0, "c")}
    assert all(one[key] != other[key] for key in one)


def test_replies_that_are_there_are_not_asked_for_again(study, method, clients, monkeypatch):
    _, full_ledger, _ = run(study, method, clients)
    replies = {}
    run(study, method, {"a": clients["a"], "b": clients["b"]}, replies=replies)
    asked = []
    original = OneShot.reply
    monkeypatch.setattr(
        OneShot,
        "reply",
        lambda self, key, model, missing, *rest: asked.extend(missing) or original(self, key, model, missing, *rest),
    )
    _, ledger, state = run(study, method, clients, replies=replies)
    assert asked == ["c"]
    assert set(state.coresets) == {"a", "b", "c"}
    assert ledger.entries == full_ledger.entries  # kept replies are booked as if they had just come


def test_a_simulation_without_clients_is_refused(study, method):
    with pytest.raises(CoreshotError, match="there are no clients; give at least one"):
        run(study, method, {})


def messages(study, clients):
    return {name: coreshot.distill(study, points.x, points.y, client=name) for name, points in clients.items()}


def test_the_public_functions_agree_with_the_simulation(study, method, clients):
    """A client that distills on its own machine sends the bytes that the simulation would have sent."""
    simulated = run(study, method, clients)[0]
    assert messages(study, clients) == {name: data for (_, name), data in simulated.items()}


def test_fit_takes_messages_in_any_order(study, clients, same):
    sent = messages(study, clients)
    one = coreshot.fit(study, sent.values(), INFERENCE)
    two = coreshot.fit(study, reversed(sent.values()), INFERENCE)
    assert same(one.posterior, two.posterior)
    assert pool_coresets(one.state.coresets, "mass").num_points == 12
    found = one.evaluate(clients["a"].x, np.asarray(clients["a"].y).argmax(axis=1))
    assert 0 <= found.accuracy <= 1
    assert one.predict(clients["a"].x).mean.shape == (6, 2)


def test_fit_refuses_what_it_cannot_use(study, make_study, clients):
    sent = messages(study, clients)
    with pytest.raises(CoreshotError, match="no messages arrived"):
        coreshot.fit(study, [], INFERENCE)
    with pytest.raises(CoreshotError, match="client a: sent two messages"):
        coreshot.fit(study, [sent["a"], sent["a"]], INFERENCE)
    with pytest.raises(CoreshotError, match=r"client a, round 0, coreset: belongs to study .* distill again"):
        coreshot.fit(make_study("classification", NOISE, seed=1), [sent["a"]], INFERENCE)


def test_predict_refuses_inputs_of_another_shape(study, clients):
    model = coreshot.fit(study, messages(study, clients).values(), INFERENCE)
    with pytest.raises(CoreshotError, match=r"inputs have shape \(2, 3\).*reshape"):
        model.predict(np.zeros((2, 3)))


def test_study_survives_its_dictionary_and_every_setting_is_in_its_hash(make_study, study):
    assert Study.from_dict(study.to_dict()) == study
    assert Study.from_dict(study.to_dict()).hash == study.hash
    others = [
        make_study("classification", NOISE, seed=1),
        make_study("regression", NOISE),
        make_study("classification", {**NOISE, "num_points": 5}),
        make_study("classification", {"name": "random_subset", "num_points": 4}),
        make_study("classification"),
    ]
    assert len({study.hash, *(other.hash for other in others)}) == 6
    assert Study.from_dict(others[-1].to_dict()) == others[-1]  # nested settings too
