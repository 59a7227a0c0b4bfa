"""The worker behind a Flower site: one draw of noise, however often it is asked, and no step beyond what was declared.

The worker's own function is called in this process; test_client_app.py and test_secure_federation.py run processes.
"""

import io
from dataclasses import replace

import jax
import numpy as np
import pytest

from coreshot.api import distill
from coreshot.config import decode_named
from coreshot.flower.client_app import REASONS
from coreshot.methods import METHODS
from coreshot.privacy import gaussian_moments
from coreshot.privacy.release_ledger import ReleaseLedger, Total
from coreshot.runtime.simulate import simulate
from coreshot.runtime.site_answers import SiteAnswers
from coreshot.runtime.worker_main import answer_job, key_words, write_job
from coreshot.runtime.worker_process import read_frame
from coreshot.wire.ledger import Ledger
from coreshot.wire.messages import Message, encode_message

NUM_REQUESTS, NUM_JOBS = 2_000, 400  # jobs: from the study and the file on
PRIVATE = {
    "name": "private_spectral",
    "features": {"name": "identity", "dimension": 2},
    "privacy": {"epsilon": 1.0, "delta": 1e-5},
}
ROUNDS = {
    "name": "private_fed_avg",
    "num_rounds": 3,
    "local_steps": 1,
    "batch_size": 4,
    "server_optimizer": {"name": "sgd", "step_size": 1.0},
    "client_optimizer": {"name": "sgd", "step_size": 0.1},
    "privacy": {"epsilon": 3.0, "delta": 1e-5},
    "sampling_rate": 1.0,
    "clip_norm": 1.0,
}


@pytest.fixture(scope="module")
def make(make_study):
    return lambda settings, **changes: replace(
        make_study("classification"), method=decode_named(METHODS, {**settings, **changes}, "test", "method")
    )


@pytest.fixture
def data(sample_points, tmp_path):
    points = sample_points("classification", 0, 12)
    np.savez(tmp_path / "data.npz", x=np.asarray(points.x), y=np.asarray(points.y))
    return tmp_path / "data.npz"


@pytest.fixture
def ask(data, ledger_path):
    """One job of the worker, as a site's app writes it: the kind of the answer and its bytes."""

    def one(study, *messages, seed=0):
        messages = messages or (Message("invitation", 0, {}),)
        inbox = [encode_message(message, study_hash=study.hash, client="site") for message in messages]
        return answered(head(study, seed), inbox)

    def head(study, seed):
        named = {"client": "site", "data": str(data), "ledger": str(ledger_path)}
        return {**named, "study": study.to_dict(), "key": key_words(jax.random.key(seed))}

    def answered(head, inbox):
        pipe = io.BytesIO()
        answer_job(head, inbox, pipe)
        pipe.seek(0)
        while (frame := read_frame(pipe))[0]["kind"] == "chunk":
            pass
        return frame[0]["kind"], frame[1][0] if frame[1] else frame[0]["error"]

    one.head, one.answered = head, answered
    return one


@pytest.fixture
def draws(monkeypatch):
    """How often noise was drawn."""
    count, draw = [], gaussian_moments.rounded_gaussian

    def counted(*arguments):
        count.append(1)
        return draw(*arguments)

    monkeypatch.setattr(gaussian_moments, "rounded_gaussian", counted)
    return count


def test_two_thousand_requests_are_one_draw_and_equal_answers(make, ask, draws, data, sample_points, ledger_path):
    study = make(PRIVATE)
    kind, first = ask(study)
    assert kind == "reply"
    drawn = len(draws)
    assert drawn > 0
    # Neither another key nor other words, another round or arrays get another draw.
    asked = [Message(f"kind {n}", n % 5, {"x": np.ones(n % 3, np.float32)}) for n in range(20)]
    inboxes = [[encode_message(message, study_hash=study.hash, client="site")] for message in asked]
    head = ask.head(study, 0)
    for number in range(NUM_JOBS):
        assert ask.answered({**head, "key": [number, 1]}, inboxes[number % 20]) == ("reply", first)
    site = SiteAnswers(ReleaseLedger(ledger_path), study, data, sample_points("classification", 0, 12))
    for number in range(NUM_REQUESTS - NUM_JOBS):  # what the worker does once it has read the records
        assert site.reply(jax.random.key(0), "site", inboxes[number % 20], lambda clients: None) == (first, [])
    assert len(draws) == drawn


def test_without_the_ledger_each_request_is_a_draw(make, draws, data, sample_points):
    """Negative control: the count sees draws."""
    study, points = make(PRIVATE), sample_points("classification", 0, 12)
    answers = {distill(study, points.x, np.asarray(points.y), client="site") for _ in range(3)}
    assert len(answers) == 3
    assert len(draws) >= 3


def test_a_file_that_was_distilled_is_the_answer_over_flower(make, ask, data, sample_points, ledger_path):
    study, points = make(PRIVATE), sample_points("classification", 0, 12)
    site = SiteAnswers(ReleaseLedger(ledger_path), study, data, points)
    file, is_kept = site.send_once("site", lambda: distill(study, points.x, np.asarray(points.y), client="site"))
    assert not is_kept
    assert ask(study) == ("reply", file)


def test_a_second_study_over_the_total_is_refused(make, ask, ledger_path):
    ReleaseLedger(ledger_path).set_total(Total(1.2))
    assert ask(make(PRIVATE))[0] == "reply"
    kind, error = ask(make(PRIVATE, privacy={"epsilon": 1.1, "delta": 1e-5}))
    assert kind == "spent"
    assert "from epsilon 1 to" in error
    assert "this site's total is 1.2" in error
    assert kind in REASONS
    assert ask(make(PRIVATE))[0] == "reply", "what it has answered before"
    assert ask(make({"name": "spectral", "features": {"name": "identity", "dimension": 2}}))[0] == "spent"


def weights(study, round, shift=0.0):
    from coreshot.methods.fed_avg import FedAvg

    assert isinstance(study.method, FedAvg)
    state = study.method.init(jax.random.key(0), study.model, study.shared_key)
    message = study.method.send(jax.random.key(0), study.model, replace(state, round=round), ("site",)).message
    return replace(message, arrays={name: array + shift for name, array in message.arrays.items()})


def test_a_site_counts_its_rounds_whatever_the_server_asks(make, ask, ledger_path):
    study = make(ROUNDS)
    first = ask(study, weights(study, 0))
    assert first[0] == "reply"
    assert ask(study, weights(study, 0), seed=9) == first, "a repeated round is the same answer"
    # A server that repeats a round with other weights uses up what was declared.
    assert ask(study, weights(study, 0, 0.5))[0] == "reply"
    assert ask(study, weights(study, 1))[0] == "reply"
    kind, error = ask(study, weights(study, 2))
    assert kind == "spent"
    assert "declared 3 steps of 'local steps', and this site has taken 3" in error
    assert ask(study, weights(study, 0)) == first, "and answers the old round still"
    [entry] = ReleaseLedger(ledger_path).entries()
    assert entry.num_answers == 3
    assert entry.steps == {"local steps": 3}


def test_simulations_use_no_ledger(make, sample_points, ledger_path):
    study, clients = make(PRIVATE), {name: sample_points("classification", 0, 12) for name in "ab"}
    simulate(jax.random.key(0), study, clients, Ledger())
    pipe, answers = io.BytesIO(), io.BytesIO()  # as a worker process gets its jobs in `coreshot run --workers`
    write_job(pipe, jax.random.key(0), study, "a", clients["a"], [Message("invitation", 0, {})])
    pipe.seek(0)
    answer_job(*read_frame(pipe), answers)
    assert b'"reply"' in answers.getvalue()
    assert not ledger_path.exists()
