"""How large a peer's scores should count as logits: the scale of the smallest NLL, on records of no table.

`python benchmarks/peer_scales.py peers_digits` fits every peer's head on partition 100 of the digits and looks at its
test records; `peers_emnist62` fits on clients 100 to 149 of EMNIST-62 and looks at the records of clients 200 to 229.
Prints the scale beside each arm; they stand in the presets.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
import scipy.optimize
import scipy.special

from coreshot.experiments.preset import Preset, load_preset
from coreshot.methods.peers.linear_head import LinearHead
from coreshot.methods.peers.statistics import PeerMethod
from coreshot.runtime.simulate import simulate
from coreshot.types import Points
from coreshot.wire.ledger import Ledger

SEED = 100


def some_records(preset: Preset) -> tuple[dict[str, Points], tuple[np.ndarray, np.ndarray]]:
    if preset.name == "peers_digits":
        data = preset.task.make(SEED)
        return dict(data.clients), (np.asarray(data.test.x), np.asarray(data.test.y))
    every = list(load_preset(preset.name, ["task.num_clients=300"]).task.make(0).clients.items())
    judged = [points for _, points in every[200:230]]
    x, y = (np.concatenate([np.asarray(getattr(one, name)) for one in judged]) for name in "xy")
    return dict(every[100:150]), (x, y)


def main(name: str) -> None:
    preset = load_preset(name)
    clients, (x, y) = some_records(preset)
    for arm in preset.arms:
        study = preset.method_study(str(arm.method), SEED)
        if not isinstance(study.method, PeerMethod):
            continue
        state = simulate(jax.random.key(SEED), study, clients, Ledger())
        head: LinearHead = study.method.posterior(jax.random.key(SEED), study.model, state)[0]
        logits = head.logits(x) / study.method.scale

        def nll(log_scale: float, logits: np.ndarray = logits) -> float:
            return -float(np.mean(np.sum(y * scipy.special.log_softmax(np.exp(log_scale) * logits, axis=1), axis=1)))

        found = scipy.optimize.minimize_scalar(nll, bounds=(np.log(1e-4), np.log(1e4)), method="bounded").x
        right = float(np.mean(logits.argmax(axis=1) == y.argmax(axis=1)))
        print(f"{arm.label}: scale {np.exp(found):.3g}, NLL {nll(found):.3f}, accuracy {right:.3f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
