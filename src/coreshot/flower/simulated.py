"""A client of Flower's simulation engine: its data are those that the preset's task makes for it, and the engine's process is its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

import jax

from coreshot.data import FederatedData
from coreshot.experiments.preset import build_preset
from coreshot.flower.work import Work
from coreshot.runtime.compilation import keep_compiled
from coreshot.runtime.executors import Reply, Threads
from coreshot.study import Study
from coreshot.wire.messages import decode_message


@lru_cache(maxsize=1)
def _data(preset: str, seed: int) -> FederatedData:
    values = json.loads(preset)
    data: FederatedData = build_preset(values["name"], values["values"]).task.make(seed)
    return data


def answer_simulated(work: Work, inbox: Sequence[bytes]) -> bytes:
    keep_compiled()
    study = Study.from_dict(work.study_values)
    clients = {work.client: _data(work.preset, work.seed).clients[work.client]}
    key = jax.random.wrap_key_data(jax.numpy.asarray(work.key, jax.numpy.uint32))
    messages = [decode_message(data, study_hash=study.hash) for data in inbox]
    [(_, reply)] = Threads().answers(key, study, clients, messages, lambda clients: None)
    assert isinstance(reply, Reply)  # a thread answers or raises
    return reply.data
