"""How the time of an EMNIST update grows with K, the number of clients and the width of the network, as JSON: ratios
to the middle of three.

One trajectory instead of five, which are run one after the other. Width multiplies channels and hidden units, so that
work grows with its square.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

from chain import seconds
from coreshot_update import Clients, learner_of
from updates import CHANNELS, DENSE, EMNIST, Update

from coreshot.models.networks import ConvNet

NUM_TURNS = 3
MIDDLE = replace(EMNIST, num_trajectories=1)


def clients(update: Update, num_clients: int, width: float = 1) -> Clients:
    network = ConvNet(
        channels=tuple(round(width * one) for one in CHANNELS), dense=tuple(round(width * one) for one in DENSE)
    )
    return Clients(learner_of(update), update, num_clients, network)


def main() -> None:
    one = clients(MIDDLE, 1)
    made = {
        "k": {
            "half": clients(replace(MIDDLE, num_points=31), 1),
            "middle": one,
            "2x": clients(replace(MIDDLE, num_points=124), 1),
        },
        "clients": {"half": one, "middle": clients(MIDDLE, 2), "2x": clients(MIDDLE, 4)},
        "width": {"half": clients(MIDDLE, 1, 0.5), "middle": one, "2x": clients(MIDDLE, 1, 2)},
    }
    best = {(what, size): math.inf for what, of in made.items() for size in of}
    for _ in range(1 + NUM_TURNS):  # the first compiles
        best = {(what, size): min(before, seconds(made[what][size].update)) for (what, size), before in best.items()}
    growth = {
        f"time_growth_{what}_{size}": best[what, size] / best[what, "middle"] for what, size in best if size != "middle"
    }
    print(json.dumps(growth))


if __name__ == "__main__":
    main()
