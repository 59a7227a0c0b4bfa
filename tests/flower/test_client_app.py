"""A site's app: what leaves it is a coreset or one of a few sentences, whatever happens behind it."""

import json
import time

import jax
import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.app.message_type import MessageType

from coreshot import distill
from coreshot.errors import CoreshotError
from coreshot.flower.client_app import _inbox, app
from coreshot.flower.messages import CLIENT, EXPLAINED, REQUEST, WorkRequest, decode_records, encode_records
from coreshot.keys import named_key
from coreshot.runtime.worker_main import key_words
from coreshot.runtime.worker_process import Worker
from coreshot.wire.messages import Message as Sent
from coreshot.wire.messages import encode_message, pack, read_header, unpack

pytestmark = pytest.mark.usefixtures("as_task")

MEAN = {"name": "class_mean", "num_points": 4}


@pytest.fixture(scope="module")
def study(make_study):
    return make_study("classification", MEAN)


@pytest.fixture
def site(study, sample_points, tmp_path):
    """Ask this site, with these settings of its node, and see what it sends."""
    points = sample_points("classification", 0, 12)

    def ask(x=points.x, y=points.y, seconds=600.0, **config):
        path = tmp_path / "data.npz"
        np.savez(path, x=np.asarray(x), y=np.asarray(y))
        settings = {
            "client-id": "site-1",
            "data-path": str(path),
            **{key.replace("_", "-"): value for key, value in config.items()},
        }
        context = Context(run_id=1, node_id=2, node_config=settings, state=RecordDict(), run_config={})
        content = encode_records(encode_message(Sent("invitation", 0, {}), study_hash=study.hash, client="site-1"))
        key = key_words(named_key(jax.random.key(0), "clients"))
        content[REQUEST] = WorkRequest(json.dumps(study.to_dict()), key, seconds, "site-1").record()
        message = Message(content, 2, MessageType.TRAIN)
        message.metadata.__dict__["_message_id"] = "asked"
        return app(message, context)

    return ask


def test_it_sends_the_bytes_of_distill_and_nothing_else(site, study, sample_points):
    reply = site(study_hash=study.hash, seconds_limit=500.0)
    points = sample_points("classification", 0, 12)
    assert decode_records(reply.content) == distill(study, points.x, np.asarray(points.y), client="site-1")
    assert sorted(reply.content) == ["arrays", "header"]
    assert sorted(reply.content["header"]) == ["client", "format", "kind", "releases", "round", "study"]


def test_data_that_do_not_fit_are_refused_without_a_word_about_them(site, caplog):
    reply = site(y=[1234.0] * 12)
    assert (reply.error.code, reply.error.reason) == (EXPLAINED, "its data do not fit the study (its own log says why)")
    assert "the label at index 0 is none of the study's classes" in caplog.text  # at the site


def test_it_answers_to_the_study_that_it_agreed_to_and_to_no_other(site):
    assert site(study_hash="0" * 64).error.reason == "it has agreed to another study than this"


@pytest.mark.parametrize("limit", [{"seconds_limit": 0.2}, {"seconds": 0.2}])
def test_work_ends_when_the_sites_time_or_the_coordinators_is_over(site, limit):
    began = time.monotonic()
    assert "it took longer than 0.2 s and was stopped" in site(**limit).error.reason
    assert time.monotonic() - began < 5


def test_an_error_of_the_app_itself_is_named_by_its_kind_only(site, monkeypatch, caplog):
    def broken(*arguments):
        raise RuntimeError("record 42 says 1234")

    monkeypatch.setattr(Worker, "ask", broken)
    assert site().error.reason == "its app raised RuntimeError (its own log says why)"
    assert "record 42 says 1234" in caplog.text


def test_it_remembers_what_was_sent_in_this_round_of_this_study_and_no_more(study):
    context = Context(run_id=1, node_id=2, node_config={}, state=RecordDict(), run_config={})

    def kinds(kind, round, study_hash):
        data = encode_message(Sent(kind, round, {}), study_hash=study_hash, client="a")
        return [(read_header(one)["kind"], read_header(one)["round"]) for one in _inbox(data, context)]

    assert kinds("invitation", 0, study.hash) == [("invitation", 0)]
    assert kinds("weights", 0, "0" * 64) == [("weights", 0)]
    assert kinds("control", 0, "0" * 64) == [("weights", 0), ("control", 0)]  # as MIME speaks
    assert kinds("weights", 0, "0" * 64) == [("weights", 0)]  # begun anew
    assert kinds("control", 0, "0" * 64) == [("weights", 0), ("control", 0)]
    assert kinds("weights", 2, "0" * 64) == [("weights", 2)]


def test_it_says_its_name_when_asked():
    context = Context(run_id=1, node_id=2, node_config={"client-id": "site-1"}, state=RecordDict(), run_config={})
    message = Message(RecordDict(), 2, MessageType.QUERY)
    message.metadata.__dict__["_message_id"] = "asked"
    assert dict(app(message, context).content[CLIENT]) == {CLIENT: "site-1"}


def test_messages_cross_to_the_last_bit(study):
    arrays = {
        "a/b": np.arange(6, dtype=np.int32).reshape(2, 3),
        "c": np.asarray([1.5, -0.0, np.pi], np.float32),
        "d": np.zeros(0, np.uint8),
    }
    sent = Sent("coreset", 3, arrays)
    for data in (
        encode_message(sent, study_hash=study.hash, client="é"),
        encode_message(sent, study_hash=study.hash, client="a", releases=study.releases),
        encode_message(Sent("invitation", 0, {}), study_hash=study.hash, client="a"),
    ):
        assert decode_records(encode_records(data)) == data
        assert pack(*unpack(data)) == data
    assert read_header(decode_records(encode_records(data)))["client"] == "a"


def test_what_is_no_message_is_refused():
    with pytest.raises(CoreshotError, match="is not a coreshot message"):
        decode_records(RecordDict())
