"""Can the spectral posterior teach a ConvNet in later rounds? FedAvg whose clients' labels are mixed with the
posterior's probabilities.

`python benchmarks/spectral_teacher.py unipen62_quick spectral_unipen62 spectral_260 --rounds 20 --seed 100`: a preset
with the method fed_avg_10,
one with a spectral method, and that method's name. Clients get the posterior once (d x classes floats) and use it on
their own records only.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from coreshot.data.federated import FederatedData
from coreshot.experiments.job import Job
from coreshot.experiments.preset import load_preset
from coreshot.fitted.metrics import metrics, sums
from coreshot.keys import named_key
from coreshot.runtime.simulate import simulate
from coreshot.types import Points
from coreshot.wire.ledger import Ledger

SHARES = (0.0, 0.5, 0.9)  # of the teacher's probabilities in a label


def learned(job: Job, clients: Mapping[str, Points], **replies: Any) -> Any:
    """The posterior of the job's method from these clients."""
    study, key = job.method_study, named_key(job.key, f"method {job.arm.method}")
    method = study.method
    state = simulate(key, study, clients, Ledger(), **replies)
    return method.posterior(named_key(key, "posterior"), study.model, state)[0]


def say(name: str, job: Job, posterior: Any, data: FederatedData) -> None:
    found = metrics(job.method_study.model, sums(job.method_study.model, posterior, data.test, data.truth))
    print(f"{name}: accuracy {found.accuracy:.3f}, NLL {found.nll:.3f}, ECE {found.ece:.3f}", flush=True)


def taught(points: Points, teacher: Job, posterior: Any, share: float) -> Points:
    opinion = np.asarray(posterior.predict(np.asarray(points.x)).mean, np.float32)
    return replace(points, y=(1 - share) * points.y + share * opinion)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("preset")
    parser.add_argument("spectral_preset")
    parser.add_argument("spectral_method")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=100)
    options = parser.parse_args()
    preset = load_preset(options.preset, [f"method.fed_avg_10.num_rounds={options.rounds}"])
    spectral = load_preset(options.spectral_preset)
    pupil = Job(
        preset, next(arm for arm in preset.arms if arm.method == "fed_avg_10" and arm.learner is None), options.seed
    )
    teacher = Job(spectral, next(arm for arm in spectral.arms if arm.method == options.spectral_method), options.seed)
    data = pupil.data()
    posterior = learned(teacher, data.clients, replies={})
    say("the teacher itself", teacher, posterior, data)
    for share in SHARES:
        clients = {name: taught(points, teacher, posterior, share) for name, points in data.clients.items()}
        say(f"FedAvg, {options.rounds} rounds, labels {share:.0%} the teacher's", pupil, learned(pupil, clients), data)


if __name__ == "__main__":
    main()
