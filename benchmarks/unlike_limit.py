"""How many records `predict` calls unlike the training data: training records, held-out ones, and ones moved far away.

The limit (`coreshot.fitted.unlike.LIMIT`) follows from an inequality and was not chosen on these tables. Run:

    python benchmarks/unlike_limit.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

from coreshot.estimator import SpectralClassifier
from coreshot.fitted.unlike import is_unlike_training

TABLES = {"breast cancer": load_breast_cancer, "wine": load_wine, "iris": load_iris, "diabetes": load_diabetes}
NUM_SPLITS = 20


def measure_split(x: np.ndarray, labels: np.ndarray, num_features: int, seed: int) -> tuple[float, float, float]:
    """Shares of training records, of a held-out third, and of this third with one column ten deviations away."""
    draws = np.random.default_rng(seed)
    order, first = draws.permutation(len(x)), 2 * len(x) // 3
    train, test = x[order[:first]], x[order[first:]]
    model = SpectralClassifier(num_features=num_features).fit(train, labels[order[:first]])
    far, column = test.copy(), draws.integers(x.shape[1], size=len(test))
    far[np.arange(len(test)), column] = (train.mean(axis=0) + 10 * train.std(axis=0))[column]
    shares = [float(np.mean(is_unlike_training(model.model_, model._inputs(part)))) for part in (train, test, far)]
    return shares[0], shares[1], shares[2]


def main() -> None:
    print("table, random features: share called unlike, mean over splits (largest; of far records the smallest)")
    for name, load in TABLES.items():
        x, y = load(return_X_y=True)
        labels = y if len(np.unique(y)) < 5 else (y > np.median(y)).astype(int)
        for num_features in (0, 16, 64):
            found = np.asarray([measure_split(x, labels, num_features, seed) for seed in range(NUM_SPLITS)])
            train, test, far = found.T
            print(
                f"{name}, {num_features}: training {train.mean():.3f} ({train.max():.3f}), "
                f"held out {test.mean():.3f} ({test.max():.3f}), far {far.mean():.3f} ({far.min():.3f})"
            )


if __name__ == "__main__":
    main()
