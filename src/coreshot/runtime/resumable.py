"""A learner whose work can be interrupted: its state goes to a file between chunks, and the same work continues from
there.

The result has the same bytes as without the interruption. The `Local` fields of a state (records, experts) are never
written; `init` computes them again from the same keys. Nothing is saved of learners that cannot do that (`can_resume`),
nor of private ones: their noise would be drawn twice, and both draws would go into one coreset.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Key

from coreshot.learners import Learner
from coreshot.learners.protocol import Health, LearningCost, State
from coreshot.models import Model
from coreshot.privacy.guarded_records import Local, Records
from coreshot.privacy.releases import Release
from coreshot.runtime.checkpoint import decode_checkpoint, encode_checkpoint, read_words
from coreshot.storage import write_private
from coreshot.study import Study
from coreshot.types import Coreset, Points, PRNGKey
from coreshot.wire.point_coding import PointCoding

SECONDS_BETWEEN_SAVES = 20.0


class StoppedError(Exception):
    """The work was asked to stop, and did so between two chunks."""


def hash_work(study: Study, points: Points, client: str, seed: int) -> str:
    """A hash of all that the result depends on."""
    digest = hashlib.sha256(
        json.dumps([study.hash, client, seed, version("coreshot"), version("jax"), jax.default_backend()]).encode()
    )
    for array in (points.x, points.y, points.weight):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class Resumable:
    """A learner like the one inside, for one group of clients; it skips the chunks that an earlier run has done."""

    def __init__(self, learner: Learner, path: Path, work: str, stop: threading.Event) -> None:
        self._learner, self._path, self._work, self._stop = learner, path, work, stop
        self._saved = path.read_bytes() if path.is_file() else b""
        words = read_words(self._saved, str(path)) if self._saved else {}
        # The file may be of other work: of other records, another study or another version.
        self.num_skipped = int(words["chunk"]) if words.get("work") == work else 0
        self._chunk, self._saved_at = 0, time.monotonic()

    @property
    def num_points(self) -> int | None:
        return self._learner.num_points

    @property
    def coding(self) -> PointCoding | None:
        return self._learner.coding

    @property
    def num_chunks(self) -> int:
        return self._learner.num_chunks

    @property
    def can_resume(self) -> bool:
        return self._learner.can_resume

    def releases(self, model: Model) -> tuple[Release, ...]:
        return self._learner.releases(model)

    def slower(self, state: State, clients: Bool[np.ndarray, " clients"]) -> State:
        return self._learner.slower(state, clients)

    def coreset(self, state: State) -> Coreset:
        return self._learner.coreset(state)

    def advice(self) -> str:
        return self._learner.advice()

    def cost(self, model: Model, num_examples: int) -> LearningCost:
        return self._learner.cost(model, num_examples)

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> State:
        state = self._learner.init(keys, model, records, shared_key)
        if not self.num_skipped:
            return state
        saved, _ = decode_checkpoint(self._saved, saved_part(state), str(self._path))
        return replace(state, **saved)

    def step(self, keys: Key[Array, " clients"], model: Model, state: State) -> tuple[State, Health]:
        if self._chunk < self.num_skipped:
            self._chunk += 1
            return state, Health(np.full(len(keys), -1), np.zeros(len(keys)), 0, 0)
        if self._stop.is_set():
            self._save(model, state)
            raise StoppedError
        state, health = self._learner.step(keys, model, state)
        if not (health.first_bad_update >= 0).any():  # otherwise this chunk is done again
            self._chunk += 1
            if time.monotonic() - self._saved_at > SECONDS_BETWEEN_SAVES and self._chunk < self._learner.num_chunks:
                self._save(model, state)
        return state, health

    def _save(self, model: Model, state: State) -> None:
        self._saved_at = time.monotonic()
        is_exact = all(release.is_exact for release in self._learner.releases(model))
        if self._learner.can_resume and is_exact:
            words = {"chunk": self._chunk, "work": self._work}
            write_private(self._path, encode_checkpoint(saved_part(state), words))


def saved_part(state: State) -> dict[str, Any]:
    """The fields of a learner's state that go to the file: all but those whose type is Local."""
    parts = {field.name: getattr(state, field.name) for field in fields(state)}
    return {name: part for name, part in parts.items() if not isinstance(part, Local)}


@contextmanager
def stop_on_interrupt(stop: threading.Event) -> Iterator[None]:
    """The first Ctrl-C asks for a stop after the present chunk; the second ends the process at once."""

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        print("stopping after the present chunk; Ctrl-C again ends at once", file=sys.stderr)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
