"""How the work of a spectral study grows with the number of clients, the features d, and the bytes of a message.

    python benchmarks/spectral_growth.py

Seconds of the cores, which other work disturbs less than seconds of the clock; each row is the least of two runs after
one that compiles. The exponent is the slope of a line through the logarithms: 1 is linear. The last line is JSON.
"""

from __future__ import annotations

import json

import numpy as np
from profile_spectral import spectral_study, whole
from spectral_clients import some_clients

from coreshot.study import Study

MIDDLE = {"clients": 8, "dimension": 512, "bytes": 35_000}
VARIED = {"clients": [8, 16, 32, 64], "dimension": [256, 512, 1024, 2048], "bytes": [10_000, 35_000, 70_000, 140_000]}


def seconds(clients: int, dimension: int, bytes: int) -> float:
    study: Study = spectral_study(dimension, bytes)
    shape, outputs = study.model.input_shape, study.model.num_outputs
    whole(study, some_clients(0, 2, shape, outputs))
    return min(whole(study, some_clients(100, clients, shape, outputs))[1] for _ in range(2))


def main() -> None:
    found = {}
    for what, values in VARIED.items():
        spent = [seconds(**{**MIDDLE, what: value}) for value in values]
        exponent = float(np.polyfit(np.log(values), np.log(spent), 1)[0])
        found[what] = {"exponent": exponent, **dict(zip(map(str, values), spent, strict=True))}
        told = ", ".join(f"{value:,}: {one:.2f} s" for value, one in zip(values, spent, strict=True))
        print(f"{what:10} {told}; exponent {exponent:.2f}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
