"""Rounds as the simulation runs them: a reply that is not finite is refused and said so, and a run that was stopped
goes on to the same bits.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.config import decode_named
from coreshot.errors import CoreshotError
from coreshot.experiments.round_log import RoundLog, Watch, checkpoint_path, resume_or_begin
from coreshot.fitted.metrics import Metrics, metrics, sums
from coreshot.keys import named_key
from coreshot.methods import METHODS, FedAvg, Mime
from coreshot.privacy.guarded_records import guard_records
from coreshot.progress import Silent
from coreshot.runtime.simulate import simulate
from coreshot.types import make_points
from coreshot.wire.ledger import Entry, Ledger

SGD = {"name": "sgd", "step_size": 0.05, "momentum": 0.9}
ADAM = {"name": "adam", "step_size": 0.02}
STEPS = {"num_rounds": 5, "local_steps": 2, "batch_size": 4, "cohort_size": None}
SETTINGS = {
    "fed_avg": {**STEPS, "client_optimizer": SGD, "server_optimizer": ADAM},
    "fed_pa": {
        **STEPS,
        "client_optimizer": SGD,
        "server_optimizer": SGD,
        "num_samples": 2,
        "shrinkage": 0.1,
        "burn_in_rounds": 2,
    },
    "mime": {**STEPS, "base_optimizer": ADAM, "server_step_size": 1.0, "gradient_batch_size": 8},
}
KEY = jax.random.key(0)


class Stopped(Exception):
    """As good as a kill."""


@pytest.fixture(scope="module")
def make_rounds(make_study):
    def make(name="fed_avg", **changes):
        method = decode_named(METHODS, {"name": name, **SETTINGS[name], **changes}, "test", "method")
        return replace(make_study("regression"), method=method)

    return make


@pytest.fixture(scope="module")
def clients(sample_points):
    return {name: sample_points("regression", seed, 6) for seed, name in enumerate("abc")}


@pytest.fixture(scope="module")
def huge(sample_points):
    """Inputs whose squares float32 cannot hold. More points than the others have, so that the others' group is
    the same without it.
    """
    points = sample_points("regression", 9, 20)
    return make_points(1e30 * points.x, points.y)


def measure(state):
    return Metrics(*(0.5 for _ in Metrics.__dataclass_fields__))


def watched(study, clients, folder, stop_after=None, evaluate=measure, evaluate_every=1):
    """As an experiment runs a method: from the checkpoint in the folder, if there is one; stopped when so many
    rounds are done.
    """
    start = study.method.init(named_key(KEY, "init"), study.model, study.shared_key)
    log = resume_or_begin(folder, Ledger(), start)
    watch = Watch(log, folder, evaluate, evaluate_every, Silent())

    def look(exchange):
        watch.on_exchange(exchange)
        if exchange.state.round == stop_after:
            raise Stopped

    simulate(KEY, study, clients, log.ledger, state=log.state, on_exchange=look)
    return log


# Replies that are refused.


def test_a_client_whose_update_is_not_finite_is_refused_and_the_round_goes_on(
    make_rounds, clients, huge, tmp_path, same
):
    """As if it were not there."""
    study = make_rounds()
    log, without = watched(study, {**clients, "d": huge}, tmp_path / "one"), watched(study, clients, tmp_path / "two")
    assert same(log.state, without.state)
    assert without.notes == []
    assert len(log.notes) == 5
    for round, note in enumerate(log.notes):
        assert note.startswith(f"d: reply refused in round {round}: client d, round {round}, delta: array 'delta/")
        assert "not finite" in note
        assert "\n" not in note


def test_a_refused_reply_has_crossed_the_wire_all_the_same(make_rounds, clients, huge, tmp_path):
    ledger = watched(make_rounds(), {**clients, "d": huge}, tmp_path).ledger
    refused = [entry for entry in ledger.entries if entry.kind == "refused"]
    assert [(entry.round, entry.client, entry.direction) for entry in refused] == [
        (round, "d", "up") for round in range(5)
    ]
    others = {
        (entry.floats, entry.payload_bytes, entry.envelope_bytes)
        for entry in ledger.entries
        if entry.direction == "up" and entry.client == "a"
    }
    assert {
        (entry.floats, entry.payload_bytes, entry.envelope_bytes) for entry in refused
    } == others  # the same message, of the same length


def spoil(monkeypatch, cls, client, round, kind):
    """This client's reply to this message is not a number."""
    original = cls.reply

    def reply(self, key, model, clients, inbox, *rest):
        answers = original(self, key, model, clients, inbox, *rest)
        if inbox[-1].round == round and inbox[-1].kind == kind:
            message, notes = answers[client]
            name = next(iter(message.arrays))
            broken = {**message.arrays, name: jnp.full_like(message.arrays[name], jnp.nan)}
            answers[client] = replace(message, arrays=broken), notes
        return answers

    monkeypatch.setattr(cls, "reply", reply)


def by_hand(study, clients, absent):
    """The same rounds, where `absent` says whom the server does not hear from in this round, in reply to this
    kind of message.
    """
    method, model = study.method, study.model
    state, inbox = method.init(named_key(KEY, "init"), model, study.shared_key), []
    while (invitation := method.send(named_key(KEY, "cohort"), model, state, tuple(clients))) is not None:
        inbox = [*(old for old in inbox if old.round == invitation.message.round), invitation.message]
        asked = {name: clients[name] for name in invitation.clients}
        answers = method.reply(
            named_key(KEY, "clients"),
            model,
            guard_records(asked, study.releases),
            inbox,
            study.shared_key,
            lambda clients: None,
        )
        heard = {
            name: method.read(model, name, answer)
            for name, (answer, _) in answers.items()
            if name not in absent.get((state.round, invitation.message.kind), "")
        }
        state = method.receive(named_key(KEY, "server"), model, state, heard)
    return state


def close(one, other):
    return all(
        np.allclose(a, b, rtol=1e-5, atol=1e-6)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


def test_one_refused_reply_is_that_round_without_it(make_rounds, clients, tmp_path, monkeypatch):
    study = make_rounds()
    heard, unheard = by_hand(study, clients, {}), by_hand(study, clients, {(1, "weights"): "b"})
    spoil(monkeypatch, FedAvg, "b", 1, "weights")
    log = watched(study, clients, tmp_path)
    assert close(log.state, unheard)
    assert not close(log.state, heard)
    assert [note[:33] for note in log.notes] == ["b: reply refused in round 1: clie"]


@pytest.mark.parametrize("kind", ["weights", "control"])
def test_either_of_mimes_two_replies_may_be_refused(make_rounds, clients, tmp_path, monkeypatch, kind):
    """Who is refused in the first exchange is not asked in the second."""
    study = make_rounds("mime")
    expected = by_hand(study, clients, {(1, kind): "b"})
    spoil(monkeypatch, Mime, "b", 1, kind)
    log = watched(study, clients, tmp_path)
    assert close(log.state, expected)
    down = [entry.client for entry in log.ledger.entries if entry.round == 1 and entry.direction == "down"]
    assert down == (["a", "b", "c", "a", "c"] if kind == "weights" else ["a", "b", "c", "a", "b", "c"])
    assert len(log.notes) == 1


def test_a_round_in_which_all_are_refused_is_an_error(make_rounds, huge, tmp_path):
    with pytest.raises(
        CoreshotError,
        match=r"round 0: no client's reply can be used; .* The first was refused: client d, round 0, .*not finite",
    ):
        watched(make_rounds(), {"d": huge, "e": huge}, tmp_path)


# Checkpoints.


@pytest.fixture
def every_second(monkeypatch):
    monkeypatch.setattr("coreshot.experiments.round_log.CHECKPOINT_EVERY", 2)


def quality(study, points):
    """The metrics on these points, as an experiment takes them."""
    return lambda state: metrics(
        study.model, sums(study.model, study.method.posterior(KEY, study.model, state)[0], points, None)
    )


@pytest.mark.usefixtures("every_second")
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("stop_after", [2, 3])
def test_a_run_that_was_stopped_ends_in_the_same_bits(make_rounds, clients, tmp_path, same, name, stop_after):
    """At its checkpoint, or a round later, which is then lost."""
    study = make_rounds(name, cohort_size=2)
    evaluate = quality(study, clients["a"])
    whole = watched(study, clients, tmp_path / "whole", evaluate=evaluate)
    with pytest.raises(Stopped):
        watched(study, clients, tmp_path / "stopped", stop_after=stop_after, evaluate=evaluate)
    saved = resume_or_begin(tmp_path / "stopped", Ledger(), whole.state)
    assert saved.state.round == 2
    assert not same(saved.state.params, whole.state.params)  # the checkpoint is not the end
    went_on = watched(study, clients, tmp_path / "stopped", evaluate=evaluate)
    assert same(went_on.state, whole.state)
    assert went_on.ledger.entries == whole.ledger.entries
    assert went_on.curve == whole.curve
    assert [point["round"] for point in whole.curve] == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("every_second")
def test_what_was_refused_before_the_stop_is_remembered(make_rounds, clients, huge, tmp_path):
    with pytest.raises(Stopped):
        watched(make_rounds(), {**clients, "d": huge}, tmp_path, stop_after=2)
    notes = watched(make_rounds(), {**clients, "d": huge}, tmp_path).notes
    assert [note.split(":")[1] for note in notes] == [f" reply refused in round {round}" for round in range(5)]


@pytest.fixture(scope="module")
def log(make_rounds, clients, tmp_path_factory):
    """Of three rounds with Adam at the server, whose state has a count among its moments."""
    return watched(make_rounds(num_rounds=3), clients, tmp_path_factory.mktemp("log"))


def test_a_checkpoint_gives_back_all_of_the_log(log, make_rounds, same):
    study = make_rounds()
    log = replace(log, notes=["a: élan\n"], seconds=0.1 + 0.2)
    template = study.method.init(jax.random.key(8), study.model, study.shared_key)
    back = RoundLog.from_bytes(log.to_bytes(), template, "test")
    assert same(back.state, log.state)
    assert not same(back.state, template)
    assert (type(back.state.round), back.state.round, back.state.end) == (int, 3, 3)
    assert int(back.state.optimizer_state[0].count) == 3
    assert back.state.optimizer_state[0].count.dtype == jnp.int32
    assert (back.ledger, back.curve, back.notes, back.seconds) == (log.ledger, log.curve, log.notes, log.seconds)


def test_a_checkpoint_of_another_model_or_optimiser_is_refused(log, make_rounds, make_model):
    study, data = make_rounds(), log.to_bytes()
    other_model = study.method.begin(make_model("classification").init(KEY))
    with pytest.raises(
        CoreshotError, match=r"here: array 'state/params/.*' is float32\[.*\], the study wants float32\[.*\]"
    ):
        RoundLog.from_bytes(data, other_model, "here")
    rounds = make_rounds("mime", base_optimizer=SGD)
    other_optimizer = rounds.method.init(KEY, rounds.model, rounds.shared_key)
    with pytest.raises(CoreshotError, match=r"here: array 'state/optimizer_state/.*' is missing"):
        RoundLog.from_bytes(data, other_optimizer, "here")


def test_a_ledger_survives_its_lines():
    ledger = Ledger([Entry(0, "a", "down", "weights", 22, 88, 300), Entry(0, "klient é", "up", "refused", 0, 0, 7)])
    assert Ledger.from_json_lines(ledger.to_json_lines()) == ledger
    assert Ledger.from_json_lines("") == Ledger()


# The curve.


@pytest.mark.usefixtures("every_second")
def test_the_curve_is_measured_every_so_often_and_in_the_end(make_rounds, clients, tmp_path):
    log = watched(make_rounds(), clients, tmp_path, evaluate_every=3)
    assert [point["round"] for point in log.curve] == [3, 5]
    up = sum(entry.floats for entry in log.ledger.entries if entry.round < 3)
    assert [point["floats"] for point in log.curve] == [up, log.ledger.floats("up") + log.ledger.floats("down")]
    assert checkpoint_path(tmp_path).is_file()
