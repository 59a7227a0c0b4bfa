"""Methods of many rounds, and DOSFL: what they book, cohorts, padding, one compilation; beyond test_every_method.py."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from coreshot.config import decode, decode_named, encode_named
from coreshot.errors import CoreshotError
from coreshot.methods import METHODS
from coreshot.methods import rounds as _rounds
from coreshot.methods.dosfl import _update as dosfl_compiled
from coreshot.methods.fed_avg import local_deltas as fed_avg_compiled
from coreshot.methods.fed_pa import _posterior_deltas as fed_pa_compiled
from coreshot.methods.mime import _corrected_deltas as mime_compiled
from coreshot.methods.mime import _lite_updates as mime_lite_compiled
from coreshot.privacy.guarded_records import guard_records
from coreshot.runtime.simulate import simulate
from coreshot.study import Study
from coreshot.wire.ledger import Ledger

NUM_ROUNDS = 3
STEPS = {"num_rounds": NUM_ROUNDS, "local_steps": 2, "batch_size": 4}
SGD = {"name": "sgd", "step_size": 0.1, "momentum": 0.9}
ADAM = {"name": "adam", "step_size": 0.02}
MIME = {"name": "mime", **STEPS, "base_optimizer": ADAM, "server_step_size": 1.0, "gradient_batch_size": 3}
SETTINGS = {
    "fed_avg": {"name": "fed_avg", **STEPS, "client_optimizer": SGD, "server_optimizer": ADAM},
    "fed_pa": {
        "name": "fed_pa",
        **STEPS,
        "client_optimizer": SGD,
        "server_optimizer": SGD,
        "num_samples": 2,
        "shrinkage": 0.1,
        "burn_in_rounds": 1,
    },
    "mime": MIME,
    "mime lite": {**MIME, "is_lite": True},
    "dosfl": {
        "name": "dosfl",
        "distill_steps": 3,
        "distill_epochs": 2,
        "distill_batch_size": 2,
        "num_updates": 2,
        "batch_size": 4,
        "init_scale": 0.5,
        "initial_step_size": 0.1,
        "x_optimizer": SGD,
        "step_size_optimizer": ADAM,
        "soft_reset_scale": 0.1,
        "mask_probability": 0.3,
    },
}
COMPILED = {
    "fed_avg": fed_avg_compiled,
    "fed_pa": fed_pa_compiled,
    "mime": mime_compiled,
    "mime lite": mime_lite_compiled,
    "dosfl": dosfl_compiled,
}
IN_ROUNDS = [case for case in SETTINGS if case != "dosfl"]
P, INPUTS, OUTPUTS = 22, 2, 2  # of the small model
ADAMS = 1 + 2 * P  # a count and two moments
# Numbers down and up for one client in one round; n_m goes up with each message. DOSFL: 3 steps of 2 points, and
# their step sizes, once.
FLOATS = {
    "fed_avg": (P, P + 1),
    "fed_pa": (P, P + 1),
    "mime": (P + P + ADAMS, 2 * P + 2),
    "mime lite": (P + ADAMS, 2 * P + 1),
    "dosfl": (0, 3 * 2 * (INPUTS + OUTPUTS) + 3 + 1),
}


def test_every_case_is_a_method_and_has_its_numbers():
    """The whole registry is in test_every_method.py."""
    assert {settings["name"] for settings in SETTINGS.values()} <= METHODS.keys()
    assert SETTINGS.keys() == COMPILED.keys() == FLOATS.keys()


@pytest.fixture(scope="module")
def make_method_study(make_study):
    """A study made anew each time, so that equal settings must be found in the compilation cache."""

    def make(case, **changes):
        method = decode_named(METHODS, {**SETTINGS[case], **changes}, "test", "method")
        return replace(make_study("classification"), method=method)

    return make


@pytest.fixture(scope="module")
def clients(sample_points):
    """Of 5, 7 and 7 points."""
    return {name: sample_points("classification", seed, 5 if name == "a" else 7) for seed, name in enumerate("abc")}


def run(study, clients, seed=0):
    """The weights in the end, and the ledger."""
    ledger, key = Ledger(), jax.random.key(seed)
    state = simulate(key, study, clients, ledger)
    return study.method.posterior(key, study.model, state)[0].params, ledger


@pytest.fixture(scope="module", params=SETTINGS)
def case(request):
    return request.param


@pytest.fixture(scope="module")
def finished(case, make_method_study, clients):
    return run(make_method_study(case), clients)


def test_same_key_same_answer(case, make_method_study, clients, finished, same):
    params, ledger = run(make_method_study(case), clients)
    assert same(params, finished[0])
    assert ledger == finished[1]
    assert not same(run(make_method_study(case), clients, seed=1)[0], params)


def test_one_sample_of_finite_weights_away_from_the_start(case, make_method_study, finished):
    study = make_method_study(case)
    assert study.model.num_params() == P
    flat = np.asarray(ravel_pytree(finished[0])[0])
    assert flat.shape == (P,)  # one sample
    assert np.all(np.isfinite(flat))
    start = study.method.init(jax.random.key(0), study.model, study.shared_key)
    assert not np.allclose(flat, ravel_pytree(getattr(start, "params", None) or start.start)[0])


def test_the_ledger_books_the_closed_form_counts(case, clients, finished):
    down, up = FLOATS[case]
    num_rounds = 1 if case == "dosfl" else NUM_ROUNDS
    ledger = finished[1]
    assert ledger.floats("down") == num_rounds * len(clients) * down
    assert ledger.floats("up") == num_rounds * len(clients) * up
    exchanges = 2 if case == "mime" else 1
    assert len(ledger.entries) == num_rounds * len(clients) * exchanges * 2  # and no message beside these
    assert {entry.round for entry in ledger.entries} == set(range(num_rounds))
    assert all(entry.payload_bytes == 4 * entry.floats for entry in ledger.entries)


def exchange(study, state, clients, inbox, seed=0):
    """The server's message, and the answers to it."""
    key = jax.random.key(seed)
    message = study.method.send(key, study.model, state, tuple(clients)).message
    inbox = [*inbox, message]
    asked = guard_records(clients, study.releases)
    answers = study.method.reply(key, study.model, asked, inbox, study.shared_key, lambda clients: None)
    assert all(records.used == {release.name for release in study.releases} for records in asked.values()), (
        "declared is what is used"
    )
    return inbox, {name: answer for name, (answer, _) in answers.items()}


@pytest.fixture(scope="module")
def first_replies(case, make_method_study, clients):
    study = make_method_study(case)
    state = study.method.init(jax.random.key(0), study.model, study.shared_key)
    return study, state, exchange(study, state, clients, [])[1]


def received(first_replies, names):
    study, state, replies = first_replies
    heard = {name: study.method.read(study.model, name, replies[name]) for name in names}
    return study.method.receive(jax.random.key(0), study.model, state, heard)


@pytest.mark.parametrize(
    "names", [subset for size in (1, 2, 3) for subset in itertools.combinations("abc", size)], ids="".join
)
def test_any_subset_of_replies_is_accepted(case, first_replies, clients, names):
    study, _, _ = first_replies
    state = received(first_replies, names)
    params = study.method.posterior(jax.random.key(0), study.model, state)[0].params
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(params))
    if case == "mime":  # the second exchange is with those whose gradient arrived, and any of them will do
        invitation = study.method.send(jax.random.key(0), study.model, state, tuple(clients))
        assert (invitation.clients, invitation.message.kind) == (names, "control")


def test_order_of_arrival_does_not_matter_but_who_replied_does(case, first_replies, same):
    def result(names):
        state = received(first_replies, names)
        return (
            (state.control, state.cohort)
            if case == "mime"
            else first_replies[0].method.posterior(jax.random.key(0), first_replies[0].model, state)[0]
        )

    assert same(result("abc"), result("cab"))
    assert not same(result("abc"), result("ab"))


def test_no_reply_at_all_is_an_error(first_replies):
    with pytest.raises(CoreshotError, match=r"round 0: no client's reply can be used"):
        received(first_replies, "")


def test_settings_and_study_survive_their_dictionary(case, make_method_study):
    study = make_method_study(case)
    assert decode_named(METHODS, encode_named(METHODS, study.method), "test", "method") == study.method
    assert Study.from_dict(study.to_dict()) == study
    assert Study.from_dict(study.to_dict()).hash == study.hash
    assert len({make_method_study(other).hash for other in SETTINGS}) == len(SETTINGS)


def test_a_study_has_a_learner_or_a_method(make_study, make_method_study):
    values, learner = make_method_study("fed_avg").to_dict(), make_study().to_dict()["method"]["learner"]
    neither = {key: value for key, value in values.items() if key != "method"}
    for wrong in ({**values, "learner": learner}, neither):
        with pytest.raises(CoreshotError, match=r"has a learner .* or a method, not both and not neither"):
            Study.from_dict(wrong)
    assert Study.from_dict({**neither, "learner": learner}).learner == make_study().learner


def test_a_second_run_does_not_compile_again(case, make_method_study, clients, finished, same):
    """Another start and another key; only the shapes are the same."""
    before = COMPILED[case]._cache_size()
    second = run(make_method_study(case), clients, seed=2)
    assert COMPILED[case]._cache_size() == before > 0
    assert not same(second[0], finished[0])


@pytest.mark.parametrize("case", SETTINGS)
def test_a_client_answers_the_same_alone_and_padded_in_a_group(make_method_study, clients, case, monkeypatch):
    """a has 5 points: as they are when alone, padded to 8 beside c, which has 7; both exchanges of MIME. DOSFL's
    clients are never grouped.
    """
    study = make_method_study(case)
    state = study.method.init(jax.random.key(0), study.model, study.shared_key)
    inboxes = {"a": [], "ac": []}
    for _ in range(2 if case == "mime" else 1):
        answers = {}
        for names, room in (("a", lambda size: size), ("ac", lambda size: 8)):
            monkeypatch.setattr(_rounds, "padded_size", room)
            inboxes[names], answers[names] = exchange(
                study, state, {name: clients[name] for name in names}, inboxes[names]
            )
        alone, grouped, other = answers["a"]["a"].arrays, answers["ac"]["a"].arrays, answers["ac"]["c"].arrays
        assert all(np.max(np.abs(alone[name] - grouped[name])) < 1e-6 for name in alone)
        assert any(
            np.max(np.abs(alone[name] - other[name])) > 1e-4 for name in alone if name != "num_examples"
        )  # c's is told apart
        assert float(alone["num_examples"][0]) == 5
        if case == "mime":
            heard = {name: study.method.read(study.model, name, reply) for name, reply in answers["ac"].items()}
            state = study.method.receive(jax.random.key(0), study.model, state, heard)


def asked(study, clients, seed=0):
    """Who was asked, round by round."""
    _, ledger = run(study, clients, seed)
    return [
        [entry.client for entry in ledger.entries if entry.round == round and entry.direction == "down"]
        for round in range(NUM_ROUNDS)
    ]


@pytest.fixture(scope="module")
def many(sample_points):
    return {f"client-{index}": sample_points("classification", index, 6) for index in range(6)}


@pytest.mark.parametrize("case", IN_ROUNDS)
def test_a_cohort_is_so_many_clients_and_differs_between_rounds(make_method_study, many, case):
    cohorts = asked(make_method_study(case, cohort_size=2), many)
    if case == "mime":
        assert all(names[:2] == names[2:] for names in cohorts)  # both exchanges of a round with the same clients
        cohorts = [names[:2] for names in cohorts]
    assert all(len(names) == len(set(names)) == 2 for names in cohorts)
    assert len({tuple(names) for names in cohorts}) > 1
    assert all(set(names) <= many.keys() for names in cohorts)


def test_cohorts_depend_on_the_key_and_reach_every_client(make_method_study, many):
    study = make_method_study("fed_avg", cohort_size=2)
    state = study.method.init(jax.random.key(0), study.model, study.shared_key)

    def cohorts(seed):
        states = (replace(state, round=round, end=30) for round in range(30))
        return [study.method.send(jax.random.key(seed), study.model, one, tuple(many)).clients for one in states]

    assert cohorts(0) == cohorts(0)
    assert cohorts(0) != cohorts(1)
    assert {name for names in cohorts(0) for name in names} == many.keys()


@pytest.mark.parametrize("case", IN_ROUNDS)
def test_a_cohort_larger_than_the_clients_is_refused(make_method_study, clients, case):
    with pytest.raises(CoreshotError, match=r"cohort_size is 4, but there are only 3 clients"):
        run(make_method_study(case, cohort_size=4), clients)


@pytest.mark.parametrize("case", IN_ROUNDS)
@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_a_cohort_of_nobody_is_refused(case, size):
    settings = {key: value for key, value in SETTINGS[case].items() if key != "name"}
    with pytest.raises(CoreshotError, match=rf"cohort_size = {size}"):
        decode(METHODS[SETTINGS[case]["name"]], {**settings, "cohort_size": size}, "test")


@pytest.mark.parametrize("case", SETTINGS)
def test_replies_that_do_not_fit_the_study_are_refused(make_method_study, clients, case):
    study = make_method_study(case)
    state = study.method.init(jax.random.key(0), study.model, study.shared_key)
    _, replies = exchange(study, state, clients, [])
    name = next(name for name in replies["b"].arrays if name != "num_examples")
    bad = [
        {key: array for key, array in replies["b"].arrays.items() if key != name},
        {**replies["b"].arrays, name: jnp.zeros((1, 1, 1))},
        {**replies["b"].arrays, "num_examples": jnp.zeros(2)},
    ]
    for arrays in bad:
        with pytest.raises(CoreshotError, match="client b, round 0"):
            study.method.read(study.model, "b", replace(replies["b"], arrays=arrays))
