"""A learner whose work can be cut off: its state goes to a file between chunks, and the same work, begun again, goes on from there to the same bytes.

What init makes of the records (the records themselves, experts) is not kept; it is made again, from the same keys. Two kinds of work begin anew:
with a promise, because its noise would be drawn twice and both draws would go into one coreset; and with experts that are replayed.
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
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Array, Key

from coreshot.errors import CoreshotError
from coreshot.learners import Learner
from coreshot.learners.protocol import Health, State
from coreshot.learners.replay import ReplayPool
from coreshot.models import Model
from coreshot.privacy.guarded_records import Records
from coreshot.storage import write_bytes
from coreshot.study import Study
from coreshot.types import Points, PRNGKey
from coreshot.wire.messages import flatten_tree, unflatten_tree

SECONDS_BETWEEN_SAVES = 20.0
MADE_AGAIN = ("data", "experts")  # fields of a learner's state


class StoppedError(Exception):
    """Somebody has asked for a stop, and the work stands still between two chunks."""


def name_of_work(study: Study, points: Points, client: str, seed: int) -> str:
    """All that the result depends on."""
    digest = hashlib.sha256(
        json.dumps([study.hash, client, seed, version("coreshot"), version("jax"), jax.default_backend()]).encode()
    )
    for array in (points.x, points.y, points.weight):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class Resumable:
    """A learner like the one inside, for one group of clients; chunks that an earlier run has done are not done again."""

    def __init__(self, learner: Learner, path: Path, work: str, stop: threading.Event) -> None:
        self._learner, self._path, self._work, self._stop = learner, path, work, stop
        self._kept = self._read()
        self.num_skipped = int(self._kept["chunk"]) if self._kept else 0
        self._chunk, self._saved_at = 0, time.monotonic()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def init(self, keys: Key[Array, " clients"], model: Model, records: Records, shared_key: PRNGKey) -> State:
        state = self._learner.init(keys, model, records, shared_key)
        return _with_kept(state, self._kept, str(self._path)) if self._kept else state

    def step(self, keys: Key[Array, " clients"], model: Model, state: State) -> tuple[State, Health]:
        if self._chunk < self.num_skipped:
            self._chunk += 1
            return state, Health(np.full(len(keys), -1), np.zeros(len(keys)), 0, 0)
        if self._stop.is_set():
            self._save(model, state)
            raise StoppedError
        state, health = self._learner.step(keys, model, state)
        if not (health.first_bad_update >= 0).any():  # else the loop goes back and does this chunk again
            self._chunk += 1
            if time.monotonic() - self._saved_at > SECONDS_BETWEEN_SAVES and self._chunk < self._learner.num_chunks:
                self._save(model, state)
        return state, health

    def _save(self, model: Model, state: State) -> None:
        self._saved_at = time.monotonic()
        if isinstance(getattr(state, "experts", None), ReplayPool) or not all(
            release.is_exact for release in self._learner.releases(model)
        ):
            return
        words = {"chunk": np.asarray(self._chunk), "work": np.frombuffer(self._work.encode(), np.uint8)}
        arrays = {name: np.asarray(array, order="C") for name, array in flatten_tree("state", _tree(state)).items()}
        write_bytes(self._path, safetensors.numpy.save({**arrays, **words}))

    def _read(self) -> dict[str, np.ndarray] | None:
        """None where there is nothing, or something of other work: of other records, another study or another version."""
        if not self._path.is_file():
            return None
        try:
            found = safetensors.numpy.load(self._path.read_bytes())
            return found if found["work"].tobytes() == self._work.encode() else None
        except (safetensors.SafetensorError, ValueError, KeyError) as error:
            raise CoreshotError(
                f"{self._path}: the state of an earlier run cannot be read ({error}); remove it, and the work begins anew."
            ) from None


def _tree(state: State) -> dict[str, Any]:
    return {field.name: getattr(state, field.name) for field in fields(state) if field.name not in MADE_AGAIN}


def _with_kept(state: State, kept: dict[str, np.ndarray], where: str) -> State:
    made = _tree(state)
    loaded = unflatten_tree(
        {name: jnp.asarray(array) for name, array in kept.items()}, "state", jax.tree.map(jnp.asarray, made), where
    )
    return replace(state, **jax.tree.map(lambda old, new: int(new) if isinstance(old, int) else new, made, loaded))


@contextmanager
def ctrl_c_asks_for(stop: threading.Event) -> Iterator[None]:
    """The first Ctrl-C asks for a stop after the present chunk; a second one ends the process at once."""

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        print("stopping after the present chunk; Ctrl-C again ends at once", file=sys.stderr)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
