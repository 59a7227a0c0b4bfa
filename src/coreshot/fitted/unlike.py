"""Which records are unlike the training data: those much further from the clients' records than these usually are."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from coreshot.fitted.model import FittedModel

# A record is unlike the training data if its novelty is above this many times the usual one, which is the root mean
# square over the clients' records. By Markov's inequality at most 1 / LIMIT^2, one in nine, of their own records can
# be so far away, whatever the data are. Not tuned. On held-out thirds of four tables of scikit-learn, 20 splits each
# (benchmarks/unlike_limit.py), 0 to 2.7 % are called unlike on average, and up to 8 % of a single split of 50 records.
LIMIT = 3.0


def is_unlike_training(model: FittedModel, x: Float[np.ndarray, "n ..."]) -> Bool[np.ndarray, " n"] | None:
    """None where the posterior does not know where the clients' records were."""
    usual = model.posterior.usual_novelty()
    return None if usual is None else np.asarray(model.novelty(x)) > LIMIT * usual
