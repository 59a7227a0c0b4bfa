"""Work that is stopped between two chunks goes on there, and comes to the bytes of work that nobody stopped."""

import threading
from dataclasses import dataclass

import numpy as np
import pytest

from coreshot.api import distill
from coreshot.errors import CoreshotError
from coreshot.learners.replay import ReplayPool
from coreshot.privacy.releases import Release
from coreshot.progress import Silent
from coreshot.runtime.resumable import Resumable, StoppedError

NUM_CHUNKS = 3
DESCENT = {"num_points": 3, "num_updates": 50, "step_size_x": 0.05, "step_size_y": 0.01, "init_scale": 0.5}
LEARNERS = {
    "bpc_fkl": {"num_updates": 50, "optimizer": "adam"},  # the shared small settings, with so many updates
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
    """Distil for the so-manieth time into the same folder; how many chunks that took, and the message (None: stopped)."""
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
    """A learner that a stop finds before its first chunk."""

    release: Release
    num_chunks: int = 2

    def releases(self, model):
        return (self.release,)


@dataclass(frozen=True)
class FakeState:
    points: np.ndarray
    experts: ReplayPool | None = None


@pytest.mark.parametrize(
    ("release", "experts", "is_kept"),
    [(EXACT, None, True), (NOISY, None, False), (EXACT, ReplayPool(*[None] * 9), False)],
    ids=["plain", "with a promise: else the noise of two runs would go into one coreset", "replayed experts"],
)
def test_what_begins_anew_keeps_nothing(tmp_path, release, experts, is_kept):
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        Resumable(Fake(release), tmp_path / "state", "work", stop).step(
            np.zeros(1), None, FakeState(np.zeros(2, np.float32), experts)
        )
    assert (tmp_path / "state").exists() == is_kept


def test_a_damaged_state_is_named(work, tmp_path):
    (tmp_path / "state").write_bytes(b"nonsense")
    with pytest.raises(CoreshotError, match=r"cannot be read .* remove it, and the work begins anew"):
        work("dm")
