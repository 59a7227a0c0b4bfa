"""The most memory that a process needs for one client's update at the paper's EMNIST settings, jax and all, as JSON.

The chain is shortened, which changes nothing: it keeps one set of weights. The store of experts is not counted: see
store.py.
"""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import replace

from coreshot_update import Clients, learner_of
from updates import EMNIST_PAPER

UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes


def main() -> None:
    update = replace(EMNIST_PAPER, chain_length=2)
    Clients(learner_of(update), update, num_clients=1).update()
    print(json.dumps({"peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT / 1e6}))


if __name__ == "__main__":
    main()
