"""Threads, one worker process and two give the same bytes; a client that takes too long, or whose worker dies, is
left out and named.
"""

import time

import jax
import numpy as np
import pytest

from coreshot.errors import CoreshotError
from coreshot.runtime.executors import Processes, Reply, Threads
from coreshot.runtime.simulate import simulate
from coreshot.runtime.worker_main import write_job
from coreshot.wire.ledger import Ledger


@pytest.fixture(scope="module")
def study(make_study):
    return make_study()


@pytest.fixture(scope="module")
def clients(sample_points):
    return {name: sample_points("classification", index, 8) for index, name in enumerate("abc")}


def run(study, clients, executor, replies=None):
    replies, ledger = {} if replies is None else replies, Ledger()
    state = simulate(jax.random.key(7), study, clients, ledger, replies=replies, executor=executor)
    return state, replies, ledger


@pytest.fixture(scope="module")
def in_threads(study, clients):
    return run(study, clients, Threads())


@pytest.mark.parametrize("num_workers", [1, 2])
def test_worker_processes_give_the_same_bytes_and_the_same_ledger(study, clients, in_threads, num_workers):
    _, replies, ledger = run(study, clients, Processes(num_workers))
    assert {key: reply.data for key, reply in replies.items()} == {
        key: reply.data for key, reply in in_threads[1].items()
    }
    assert ledger.to_json_lines() == in_threads[2].to_json_lines()
    assert len({reply.data for reply in replies.values()}) == 3  # the clients differ


def test_what_a_client_has_answered_is_kept_before_the_next_one_is_done(study, clients):
    """A executor that fails at its second client: the first one's reply is there already, and is not asked for
    again.
    """

    class Failing(Threads):
        def answers(self, key, study, clients, inbox, on_chunk):
            asked.append(sorted(clients))
            for index, answer in enumerate(super().answers(key, study, clients, inbox, on_chunk)):
                if index == 1 and len(asked) == 1:
                    raise KeyboardInterrupt
                yield answer

    asked, replies = [], {}
    with pytest.raises(KeyboardInterrupt):
        run(study, clients, Failing(), replies)
    (done,) = replies
    run(study, clients, Failing(), replies)
    assert asked == [["a", "b", "c"], sorted(set("abc") - {done[1]})]
    assert len(replies) == 3


class Slow(Processes):
    """Its client b never comes back in time."""

    def _one(self, worker, key, study, name, points, inbox, on_chunk):
        return (
            worker.ask(lambda pipe: write_job(pipe, key, study, name, points, inbox), 0.001, on_chunk)
            if name == "b"
            else super()._one(worker, key, study, name, points, inbox, on_chunk)
        )


def test_a_client_that_takes_too_long_is_stopped_and_left_out(study, clients, in_threads):
    seen = []
    began = time.monotonic()
    ledger, replies = Ledger(), {}
    state = simulate(
        jax.random.key(7), study, clients, ledger, replies=replies, executor=Slow(1), on_exchange=seen.append
    )
    assert sorted(state.coresets) == ["a", "c"]
    assert seen[0].refused["b"].startswith("client b: it took longer than 0.001 s and was stopped")
    assert [entry.client for entry in ledger.entries if entry.kind == "refused"] == ["b"]
    assert replies[0, "a"].data == in_threads[1][0, "a"].data  # its worker was started again for c, and a is as ever
    assert time.monotonic() - began < 120


def test_a_worker_that_dies_is_named(study, clients):
    class Dying(Processes):
        def _one(self, worker, key, study, name, points, inbox, on_chunk):
            return worker.ask(
                lambda pipe: write_job(pipe, key, study, name, points, inbox), None, lambda _: worker._process.kill()
            )

    with pytest.raises(
        CoreshotError, match=r"no client's reply can be used.*client a: its worker process ended with code -9"
    ):
        run(study, {"a": clients["a"]}, Dying(1))


def test_a_learners_own_error_comes_back_as_it_is(make_study, clients):
    bpc = {**make_study().to_dict()["method"]["learner"], "data_chain_length": 1000}
    with pytest.raises(CoreshotError, match="data_chain_length 1000"):
        run(make_study(learner=bpc), {"a": clients["a"]}, Processes(1))


def test_replies_have_a_time_and_the_weights_of_padding_survive_the_way(study, clients, in_threads):
    assert all(isinstance(reply, Reply) and reply.seconds > 0 for reply in in_threads[1].values())
    assert np.isfinite(sum(reply.seconds for reply in in_threads[1].values()))
