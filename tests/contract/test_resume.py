"""Work that is stopped between two chunks goes on there, and comes to the bytes of work that nobody stopped."""

import pickle
import threading
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

from coreshot.api import distill
from coreshot.errors import CoreshotError
from coreshot.privacy.guarded_records import Local, Records
from coreshot.privacy.releases import Release
from coreshot.progress import Silent
from coreshot.runtime.checkpoint import decode_checkpoint, encode_checkpoint
from coreshot.runtime.resumable import Resumable, StoppedError
from coreshot.types import make_points

NUM_CHUNKS = 3
DESCENT = {"num_points": 3, "num_updates": 50, "step_size_x": 0.05, "step_size_y": 0.01, "init_scale": 0.5}
LEARNERS = {
    # The shared small settings, with so many updates, and an expert that judges them.
    "bpc_fkl": {"num_updates": 50, "optimizer": "adam", "num_held_out": 1, "chain_state": "expert"},
    "vbpc": {**DESCENT, "num_networks": 2, "network_updates": 6, "batch_size": 5},
    "dm": DESCENT,
}


class Counted(Silent):
    """Counts chunks, and asks for a stop after the so-manieth."""

    def __init__(self, stop, after=None):
        self.stop, self.after, self.chunks = stop, after, 0

    def advance(self, amount=1):
        self.chunks += amount
        if self.chunks == self.after:
            self.stop.set()


@pytest.fixture
def work(make_study, bpc_settings, tmp_path):
    """Distil once more into the same folder; how many chunks that took, and the message (None: stopped)."""
    draws = np.random.default_rng(0)
    x, y = draws.normal(size=(16, 2)), np.arange(16) % 2

    def run(name, after=None, keep="state", change=0.0, **changes):
        values = {**(bpc_settings if name == "bpc_fkl" else {}), **LEARNERS[name], **changes, "name": name}
        stop = threading.Event()
        counted = Counted(stop, after)
        path = tmp_path / keep if keep else None
        try:
            message = distill(
                make_study(learner=values), x + change, y, client="a", progress=counted, keep=path, stop=stop
            )
        except StoppedError:
            message = None
        return counted.chunks, message

    return run


@pytest.mark.parametrize("name", LEARNERS)
def test_stopped_work_goes_on_to_the_same_bytes(work, name, tmp_path):
    undisturbed = work(name, keep=None)
    assert undisturbed[0] == NUM_CHUNKS
    assert work(name, after=1) == (1, None)
    assert work(name, after=1) == (1, None)  # stopped again, a chunk later
    assert (tmp_path / "state").is_file()
    assert work(name) == (1, undisturbed[1])


def test_state_of_other_records_is_not_used(work):
    assert work("dm", after=2) == (2, None)
    assert work("dm", change=0.5) == work("dm", change=0.5, keep=None)
    assert work("dm")[0] == NUM_CHUNKS - 2


EXACT, NOISY = Release("sums", "of gradients"), Release("sums", "of gradients", "gaussian", 1.0, 1.0, delta=1e-5)


@dataclass(frozen=True)
class Fake:
    """A learner that is stopped before its first chunk."""

    release: Release = EXACT
    can_resume: bool = True
    num_chunks: int = 2

    def releases(self, model):
        return (self.release,)


@dataclass(frozen=True)
class FakeState:
    points: np.ndarray
    other: Any = 0


@pytest.fixture
def stop_and_save(tmp_path):
    """Stops a fake learner with a state before its first chunk; the path that the state goes to."""

    def run(learner, state):
        stop = threading.Event()
        stop.set()
        Resumable(learner, tmp_path / "state", "work", stop).step(jax.random.split(jax.random.key(0), 1), None, state)

    return run


@pytest.mark.parametrize(
    ("learner", "is_kept"),
    [(Fake(), True), (Fake(NOISY), False), (Fake(can_resume=False), False)],
    ids=["plain", "private: otherwise the noise of two runs would go into one coreset", "replayed experts"],
)
def test_what_begins_again_keeps_nothing(stop_and_save, tmp_path, learner, is_kept):
    with pytest.raises(StoppedError):
        stop_and_save(learner, FakeState(np.zeros(2, np.float32)))
    assert (tmp_path / "state").exists() == is_kept


def test_replayed_experts_cannot_resume(make_bpc):
    assert make_bpc().can_resume
    assert not make_bpc(experts={"store": "replay"}).can_resume


SECRET = np.float32(0.123456789)


def given_records():
    """As a learner gets them from `Records.exact`."""
    return Records(make_points([[SECRET]], [[1.0]]), [EXACT]).exact("sums")


@pytest.mark.parametrize("wrap", [lambda it: it, lambda it: (1, [it]), lambda it: {"a": jax.tree.map(lambda x: x, it)}])
def test_records_in_any_field_of_a_state_are_not_saved(stop_and_save, tmp_path, wrap):
    """Of a learner that keeps its records in a field of any name: they are refused by their type."""
    with pytest.raises(TypeError, match=r"'other'.* is a RecordPoints, which is not written to disk"):
        stop_and_save(Fake(), FakeState(np.zeros(2, np.float32), wrap(given_records())))
    assert not (tmp_path / "state").exists()


def test_a_local_field_is_left_out_and_the_rest_is_saved(stop_and_save, tmp_path):
    with pytest.raises(StoppedError):
        stop_and_save(Fake(), FakeState(np.ones(2, np.float32), Local(given_records())))
    saved = (tmp_path / "state").read_bytes()
    assert SECRET.tobytes() not in saved
    assert np.ones(2, np.float32).tobytes() in saved


def test_a_local_within_a_field_is_refused(stop_and_save):
    with pytest.raises(TypeError, match="is a Local"):
        stop_and_save(Fake(), FakeState(np.ones(2, np.float32), (Local(1),)))


def test_a_local_cannot_be_serialised():
    with pytest.raises(TypeError, match="must not leave this process"):
        pickle.dumps(Local(given_records()))


def test_a_checkpoint_comes_back_as_it_was(same):
    tree = {"a": np.arange(3, dtype=np.float32), "done": 7, "b": (np.ones((2, 2), np.float32),)}
    found, words = decode_checkpoint(encode_checkpoint(tree, {"notes": ["ü"]}), tree, "test")
    assert same(found, tree)
    assert isinstance(found["done"], int)
    assert words == {"notes": ["ü"]}
    with pytest.raises(CoreshotError, match="'state/a' is float32"):
        decode_checkpoint(encode_checkpoint(tree, {}), {**tree, "a": np.zeros(4, np.float32)}, "test")


def test_a_damaged_state_is_named(work, tmp_path):
    (tmp_path / "state").write_bytes(b"nonsense")
    with pytest.raises(CoreshotError, match=r"cannot be read .* remove it, and the work begins again"):
        work("dm")
