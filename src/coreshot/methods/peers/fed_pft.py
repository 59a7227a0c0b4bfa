"""FedPFT: each client sends a Gaussian mixture of each class's features; the server trains a head on draws from them.

Beitollahi, Bie, Hemati, Brunswic, Li, Chen and Zhang, "Parametric Feature Transfer: One-shot Federated Learning with
Foundation Models", 2024.

| paper           | here                                            |
|-----------------|-------------------------------------------------|
| K               | num_components; diagonal covariances            |
| pi, mu, Sigma   | shares, means, variances                        |
| n_{i,c}         | counts: as many features are drawn              |

Different from the paper: the head is the multinomial logistic regression with a small penalty, found by L-BFGS; the
numbers are sent as float32 (the authors: 16 bits).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Float

from coreshot.config import Count, Positive, settings
from coreshot.methods.peers.statistics import PeerMethod, Shapes, Statistics

NUM_STEPS = 20  # of expectation maximisation
LEAST_VARIANCE = 1e-3  # of the class's mean variance: a component of one record has none of its own


@settings
class FedPft(PeerMethod):
    kind: ClassVar[str] = "fed_pft"
    content: ClassVar[str] = "a Gaussian mixture of the records' features for each class; a class of one is that record"
    is_sum: ClassVar[bool] = False

    num_components: Count = 1
    penalty: Positive = 1e-4  # half of it times the squared weights, beside the mean loss of a draw
    num_steps: Count = 100  # of L-BFGS

    def statistics(self, features: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n outputs"]) -> Statistics:
        shapes = self.shapes(features.shape[1], y.shape[1])
        found = {name: np.zeros(shape) for name, shape in shapes.items()}
        labels = np.argmax(y, axis=1)
        for label in np.unique(labels):
            own = features[labels == label, :-1]
            found["counts"][label] = len(own)
            found["shares"][label], found["means"][label], found["variances"][label] = fit_mixture(
                own, self.num_components
            )
        return found

    def shapes(self, dimension: int, num_outputs: int) -> Shapes:
        mixture = (num_outputs, self.num_components)
        return {
            "counts": (num_outputs,),
            "shares": mixture,
            "means": (*mixture, dimension - 1),
            "variances": (*mixture, dimension - 1),
        }

    def weights(self, kept: Sequence[Statistics]) -> Float[np.ndarray, "d outputs"]:
        draws = np.random.default_rng(0)
        features, labels = [], []
        for one in kept:
            for label, count in enumerate(one["counts"]):
                shares = np.maximum(one["shares"][label], 0)
                if round(count) < 1 or not np.sum(shares) > 0:
                    continue
                part = draws.choice(len(shares), size=round(count), p=shares / np.sum(shares))
                spread = np.sqrt(np.maximum(one["variances"][label][part], 0))
                features.append(
                    (one["means"][label][part] + spread * draws.normal(size=spread.shape)).astype(np.float32)
                )
                labels.append(np.full(round(count), label))
        return fit_softmax(
            np.concatenate(features), np.concatenate(labels), len(kept[0]["counts"]), self.penalty, self.num_steps
        )


def fit_mixture(
    rows: Float[np.ndarray, "n d"], num_components: int
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "k d"], Float[np.ndarray, "k d"]]:
    """Expectation maximisation from evenly chosen records; shares of zero where there are fewer records than parts."""
    used = min(num_components, len(rows))
    level = float(np.mean(np.var(rows, axis=0))) if len(rows) > 1 else 0.0
    shares, means = np.full(used, 1 / used), rows[np.linspace(0, len(rows) - 1, used).astype(int)]
    variances = np.tile(np.var(rows, axis=0) + LEAST_VARIANCE * level + 1e-9, (used, 1))
    for _ in range(NUM_STEPS if used > 1 else 1):
        distances = ((rows[:, None] - means) ** 2 / variances + np.log(variances)).sum(axis=2)
        parts = scipy.special.softmax(np.log(np.maximum(shares, 1e-300)) - 0.5 * distances, axis=1)
        mass = np.maximum(parts.sum(axis=0), 1e-9)
        shares, means = mass / np.sum(mass), parts.T @ rows / mass[:, None]
        squares = parts.T @ rows**2 / mass[:, None] - means**2
        variances = np.maximum(squares, 0) + LEAST_VARIANCE * level + 1e-9
    missing = num_components - used
    pad = [(0, missing), (0, 0)]
    return np.pad(shares, (0, missing)), np.pad(means, pad), np.pad(variances, pad)


def fit_softmax(
    features: Float[np.ndarray, "n d"], labels: np.ndarray, num_outputs: int, penalty: float, num_steps: int
) -> Float[np.ndarray, "d+1 outputs"]:
    """Penalised multinomial logistic regression on standardised features; the last row are the offsets."""
    center, spread = features.mean(axis=0), features.std(axis=0) + 1e-6
    rows = np.concatenate([(features - center) / spread, np.ones((len(features), 1), np.float32)], axis=1)
    targets = np.eye(num_outputs, dtype=np.float32)[labels]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        head = flat.reshape(rows.shape[1], num_outputs).astype(np.float32)
        log_probs = scipy.special.log_softmax(rows @ head, axis=1)
        gradient = rows.T @ (np.exp(log_probs) - targets) / len(rows) + penalty * head
        value = -float(np.sum(targets * log_probs)) / len(rows) + 0.5 * penalty * float(np.sum(head**2))
        return value, gradient.ravel().astype(np.float64)

    start = np.zeros(rows.shape[1] * num_outputs)
    found = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": num_steps}).x
    head = found.reshape(rows.shape[1], num_outputs)
    plain = head[:-1] / spread[:, None]
    return np.concatenate([plain, (head[-1] - center @ plain)[None]])
