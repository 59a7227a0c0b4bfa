"""Flower's simulation engine: a SuperLink of its own for the time of a run, and Ray's processes as the nodes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coreshot.errors import CoreshotError
from coreshot.flower.runs import Order
from coreshot.flower.submit import submit
from coreshot.flower.trial import bring_up


def simulate_on_ray(order: Order, num_clients: int, num_cpus: int, say: Callable[[str], None]) -> dict[str, Any]:
    """One CPU a client; Flower's own default of two would leave half of them idle."""
    if find_spec("ray") is None:
        raise CoreshotError("--simulate: Ray is not installed; install coreshot[flower-sim].")
    folder = Path(tempfile.mkdtemp(prefix="coreshot-ray-"))
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        federation = bring_up(folder, "127.0.0.1", None, None, is_simulation=True)
        try:
            engine = f"num-supernodes={num_clients} client-resources-num-cpus=1 init-args-num-cpus={num_cpus}"
            return submit(federation, order, say, ["--federation-config", engine])
        finally:
            federation.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
