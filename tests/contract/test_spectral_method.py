"""The spectral method keeps the contract of a one-shot method: bytes, order, subsets, late and leaving clients, and
messages that are not right.
"""

from contextlib import suppress
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.config import decode_named, encode_named
from coreshot.errors import CoreshotError
from coreshot.fitted.posterior_file import posterior_bytes, read_posterior
from coreshot.methods import METHODS
from coreshot.methods.spectral import NUM_GROUPS
from coreshot.privacy.guarded_records import guard_records
from coreshot.runtime.simulate import simulate
from coreshot.study import Study
from coreshot.wire.ledger import Ledger
from coreshot.wire.messages import decode_message, encode_message

SETTINGS = {"name": "spectral", "features": {"name": "random_vector", "dimension": 12}, "max_bytes": 400}
NAMES = tuple("abcdef")


@pytest.fixture(scope="module")
def make_spectral(make_study):
    def make(kind="classification", **changes):
        return replace(make_study(kind), method=decode_named(METHODS, {**SETTINGS, **changes}, "test", "method"))

    return make


@pytest.fixture(scope="module")
def clients(sample_points):
    return {name: sample_points("classification", seed, 5 + seed) for seed, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def study(make_spectral):
    return make_spectral()


@pytest.fixture(scope="module")
def replies(study, clients):
    invitation = study.method.send(
        jax.random.key(0), study.model, study.method.init(jax.random.key(0), study.model, study.shared_key), NAMES
    )
    answers = study.method.reply(
        jax.random.key(0),
        study.model,
        guard_records(clients, study.releases),
        [invitation.message],
        study.shared_key,
        lambda clients: None,
    )
    return {name: message for name, (message, _) in answers.items()}


def state_of(study, replies, names):
    start = study.method.init(jax.random.key(0), study.model, study.shared_key)
    contents = {name: study.method.read(study.model, name, replies[name]) for name in names}
    return study.method.receive(jax.random.key(0), study.model, start, contents)


def head_of(study, state):
    return study.method.posterior(jax.random.key(0), study.model, state)[0]


def test_settings_and_study_survive_their_dictionary(study):
    assert decode_named(METHODS, encode_named(METHODS, study.method), "test", "method") == study.method
    assert Study.from_dict(study.to_dict()) == study


def test_the_bytes_keep_to_the_budget(make_spectral, clients):
    for max_bytes in (200, 400):
        ledger, study = Ledger(), make_spectral(max_bytes=max_bytes)
        simulate(jax.random.key(0), study, clients, ledger)
        rows = [entry.payload_bytes - 2 * 4 for entry in ledger.entries if entry.direction == "up"]
        assert len(rows) == len(clients)
        assert all(max_bytes / 3 < size <= max_bytes for size in rows)


def test_the_same_data_give_the_same_bytes_whatever_the_key(study, clients, replies):
    again = study.method.reply(
        jax.random.key(9),
        study.model,
        guard_records({"c": clients["c"]}, study.releases),
        [replies["a"]],
        study.shared_key,
        lambda clients: None,
    )
    encode = [encode_message(message, study_hash=study.hash, client="c") for message in (again["c"][0], replies["c"])]
    assert encode[0] == encode[1]


def test_neither_order_nor_occasion_matters_but_who_takes_part_does(study, replies):
    together = head_of(study, state_of(study, replies, NAMES)).mean
    first = {name: study.method.read(study.model, name, replies[name]) for name in NAMES[:3]}
    late = study.method.receive(jax.random.key(0), study.model, state_of(study, replies, NAMES[3:]), first)
    np.testing.assert_allclose(head_of(study, late).mean, together, rtol=1e-9)
    np.testing.assert_array_equal(head_of(study, state_of(study, replies, NAMES[::-1])).mean, together)
    assert not np.allclose(head_of(study, state_of(study, replies, NAMES[1:])).mean, together, rtol=1e-3)


def test_who_leaves_was_never_there(study, replies):
    left = study.method.forget(
        study.model, state_of(study, replies, NAMES), "b", study.method.read(study.model, "b", replies["b"])
    )
    never = state_of(study, replies, [name for name in NAMES if name != "b"])
    found, wanted = head_of(study, left), head_of(study, never)
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-5, atol=1e-9)
    assert found.noise_variance == pytest.approx(wanted.noise_variance, rel=1e-5)
    assert found.link.scale == pytest.approx(wanted.link.scale, rel=1e-3)
    assert found.link.floor == pytest.approx(wanted.link.floor, rel=1e-5)


def test_the_state_does_not_grow_with_the_clients(study, replies, monkeypatch):
    monkeypatch.setattr("coreshot.methods.spectral.NUM_CALIBRATION_CLIENTS", 2)
    states = [state_of(study, replies, names) for names in (NAMES[:2], NAMES, NAMES[::-1])]
    columns = 12 + 1 + study.model.num_outputs
    assert (
        max(sum(group.joint.nbytes for group in state.groups.values()) for state in states)
        <= NUM_GROUPS * 8 * columns**2
    )
    assert [len(state.class_means) for state in states] == [2, 2, 2]
    assert set(states[1].class_means) == set(states[2].class_means)  # whoever came first


def test_few_clients_are_left_out_one_by_one_and_many_by_name(study, replies):
    few, many = state_of(study, replies, NAMES[:4]), state_of(study, replies, NAMES)
    assert set(few.groups) == set(NAMES[:4])
    assert set(many.groups) <= set(range(NUM_GROUPS))
    left = study.method.forget(study.model, few, "b", study.method.read(study.model, "b", replies["b"]))
    never = state_of(study, replies, "acd")
    assert all(np.array_equal(left.groups[name].joint, never.groups[name].joint) for name in "acd")
    one_by_one = state_of(study, replies, NAMES[:4])
    for name in NAMES[4:]:
        one_by_one = study.method.receive(
            jax.random.key(0), study.model, one_by_one, {name: study.method.read(study.model, name, replies[name])}
        )
    # Rows of several clients are multiplied together: the last bits of a sum are those of who arrived with whom.
    for number in many.groups:
        np.testing.assert_allclose(one_by_one.groups[number].joint, many.groups[number].joint, rtol=1e-12, atol=1e-9)


def test_probabilities(study, replies, clients):
    posterior = head_of(study, state_of(study, replies, NAMES))
    predictive = posterior.predict(np.asarray(clients["a"].x))
    np.testing.assert_allclose(np.sum(predictive.mean, axis=1), 1, rtol=1e-6)
    assert np.all(predictive.epistemic > 0)
    far = 1e3 * np.ones((1, 2), np.float32)
    assert posterior.novelty(far).shape == (1,)
    one_hot = posterior.log_predictive(clients["a"])
    np.testing.assert_allclose(np.exp(one_hot), np.sum(predictive.mean * np.asarray(clients["a"].y), axis=1), rtol=1e-6)


def test_one_client_with_one_class_still_gives_a_model(study, sample_points):
    points = sample_points("classification", 0, 6)
    points = replace(points, y=jnp.asarray(np.eye(study.model.num_outputs, dtype=np.float32)[np.zeros(6, int)]))
    state = simulate(jax.random.key(0), study, {"a": points}, Ledger())
    assert np.all(np.isfinite(head_of(study, state).predict(np.asarray(points.x)).mean))


def damaged(message, **changes):
    return replace(
        message,
        arrays={
            name: changes.get(name, array)
            for name, array in message.arrays.items()
            if changes.get(name, array) is not None
        },
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"step": None}, r"a spectral coreset has rows, step, num_examples; found num_examples, rows"),
        ({"num_examples": jnp.zeros(1)}, r"num_examples 0.*out of range"),
        ({"num_examples": jnp.ones(1)}, r"at most 1 can be|rows have shape"),
        ({"step": jnp.zeros(1)}, r"coded rows have a step above 0"),
        ({"rows": jnp.zeros((2, 3))}, r"coded rows have a step above 0"),
        ({"rows": jnp.zeros(7, jnp.uint8)}, r"rows have shape \(0, 15\)|damaged"),
        ({"rows": jnp.full(50, 255, jnp.uint8)}, r"the coded rows are damaged"),
    ],
)
def test_a_message_that_is_not_right_is_refused(study, replies, changes, words):
    with pytest.raises(CoreshotError, match=rf"client c, round 0, spectral: .*({words})"):
        study.method.read(study.model, "c", damaged(replies["c"], **changes))


def test_damaged_code_is_refused_or_harmless(study, replies):
    """Every byte of the code changed in turn: an error of ours, or rows that are finite; never a crash."""
    code = np.asarray(replies["c"].arrays["rows"])
    for index in range(len(code)):
        for change in (1, 128):
            other = code.copy()
            other[index] ^= change
            message = damaged(replies["c"], rows=jnp.asarray(other))
            with suppress(CoreshotError):
                assert np.all(np.isfinite(study.method.read_rows(study.model, "c", message)[0]))


def test_the_message_survives_the_wire(study, replies):
    data = encode_message(replies["c"], study_hash=study.hash, client="c")
    back = decode_message(data, study_hash=study.hash, client="c")
    np.testing.assert_array_equal(
        study.method.read_rows(study.model, "c", back)[0], study.method.read_rows(study.model, "c", replies["c"])[0]
    )


def test_regression(make_spectral, sample_points):
    study = make_spectral("regression", max_bytes=None)
    clients = {name: sample_points("regression", seed, 9) for seed, name in enumerate("ab")}
    posterior = head_of(study, simulate(jax.random.key(0), study, clients, Ledger()))
    predictive = posterior.predict(np.asarray(clients["a"].x))
    assert predictive.mean.shape == predictive.epistemic.shape == predictive.aleatoric.shape
    assert posterior.link is None


def test_features_that_do_not_fit_are_refused(make_spectral):
    study = make_spectral(features={"name": "random_conv", "dimension": 8})
    with pytest.raises(CoreshotError, match=r"random_conv wants images"):
        study.method.init(jax.random.key(0), study.model, study.shared_key)


def test_a_head_survives_its_file(study, replies, clients):
    """Arrays of a solver are not laid out as they are indexed: a file that took no care of that would hold
    another head.
    """
    posterior = head_of(study, state_of(study, replies, NAMES))
    back = read_posterior(study, posterior_bytes(posterior), "test")
    x = np.asarray(clients["a"].x)
    np.testing.assert_allclose(back.predict(x).mean, posterior.predict(x).mean, rtol=1e-6)
    np.testing.assert_array_equal(back.mean, posterior.mean)
