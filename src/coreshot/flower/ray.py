"""A run on Flower's simulation engine: a SuperLink for the time of the run, and Ray's processes as its nodes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax

from coreshot.data import FederatedData
from coreshot.errors import CoreshotError
from coreshot.experiments.preset import build_preset
from coreshot.flower.local_federation import start_superlink
from coreshot.flower.messages import WorkRequest
from coreshot.flower.runs import RunRequest, submit
from coreshot.runtime.compilation import keep_compiled
from coreshot.runtime.executors import Reply, Threads
from coreshot.study import Study
from coreshot.wire.messages import decode_message


def simulate_on_ray(request: RunRequest, num_clients: int, num_cpus: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Run a request with one CPU per client: Flower's default of two would leave half of the CPUs idle."""
    if find_spec("ray") is None:
        raise CoreshotError("--simulate: Ray is not installed; install coreshot[flower-sim].")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # many processes share the memory of one GPU
    folder = Path(tempfile.mkdtemp(prefix="coreshot-ray-"))
    try:
        federation = start_superlink(folder, "127.0.0.1", None, None, is_simulation=True)
        try:
            engine = f"num-supernodes={num_clients} client-resources-num-cpus=1 init-args-num-cpus={num_cpus}"
            return submit(federation, request, say, ["--federation-config", engine])
        finally:
            federation.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@lru_cache(maxsize=1)
def _task_data(preset: str, seed: int) -> FederatedData:
    values = json.loads(preset)
    data: FederatedData = build_preset(values["name"], values["values"]).task.make(seed)
    return data


def answer_simulated(request: WorkRequest, inbox: Sequence[bytes]) -> bytes:
    """The reply of a simulated client; its data are made by the preset's task, in this process of the engine."""
    keep_compiled()
    study = Study.from_dict(request.study_values)
    clients = {request.client: _task_data(request.preset, request.seed).clients[request.client]}
    key = jax.random.wrap_key_data(jax.numpy.asarray(request.key, jax.numpy.uint32))
    messages = [decode_message(data, study_hash=study.hash) for data in inbox]
    [(_, reply)] = Threads().answers(key, study, clients, messages, lambda clients: None)
    assert isinstance(reply, Reply)  # a thread answers or raises
    return reply.data
