"""The linear head's posterior from noisy moments, for a known noise variance. All of it is post-processing.

Bun, Allez, Bouchaud and Potters, "Rotational invariant estimator for general noisy matrices", IEEE Transactions on
Information Theory 2016.

| paper              | here                                                                  |
|--------------------|-----------------------------------------------------------------------|
| M = C + sigma W    | gram: the exact Gram matrix G plus symmetric Gaussian noise N         |
| lambda_i, u_i      | eigenvalues and eigenvectors of gram                                  |
| hat xi_i           | Spectrum.sizes: the estimate of u_i^T G u_i                           |

Different from the paper: the sum over neighbours is smoothed, the sizes are made monotone and not negative. Scores,
their class means and their covariance follow as for exact moments (`coreshot.spectral.calibration`), minus the mean of
what the noise adds to them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.optimize import isotonic_regression

from coreshot.privacy.gaussian_moments import Deviations
from coreshot.spectral.calibration import HeldOutScores, Link, link_from_scores
from coreshot.spectral.features import BIAS, UnitMap
from coreshot.spectral.posterior import LinearPosterior

# Chosen at epsilon 8, 3 and 1, with and without a secure sum, on clients of EMNIST-62 and UNIPEN-62 that no private
# table uses. `benchmarks/private_constants.py` varies each of them.
RIDGE = 0.6  # in units of the noise's spectral size, deviation * sqrt(d)
FLOOR = 0.3  # smallest eigenvalue of the covariance within classes, in units of the scores' mean square
COUNT_NOISE = 2.0  # standard deviations that are added to a class's noisy count: they shrink the mean of a rare class
DISCRIMINANT = 2.1  # the link's weight of its discriminants, when these constants were chosen
# How a link changes if all of the scores were learned from noise: see `_adjust_to_noise`.
MORE_LOGARITHM, LESS_DISCRIMINANT, LESS_FREQUENCY = 3.2, 0.7, 2.4


@dataclass(frozen=True)
class Spectrum:
    """An estimate of G: the eigenvectors of the noisy matrix, and G's size along each of them."""

    vectors: Float[np.ndarray, "d d"]
    sizes: Float[np.ndarray, " d"]


def denoise_gram(gram: Float[np.ndarray, "d d"], deviation: float) -> Spectrum:
    """Estimates u^T G u for the eigenvectors u of G + N as l - 2 deviation^2 sum 1 / (l - l'), l the eigenvalues.

    deviation is that of N's off-diagonal entries.
    """
    values, vectors = np.linalg.eigh(gram)
    size = len(values)
    if deviation == 0:
        return Spectrum(vectors, np.maximum(values, 0))
    # Smooths the sum over neighbours: finer than the width of the noise's spectrum, coarser than the gaps in it.
    width = deviation * size**0.1
    gaps = values[:, None] - values[None]
    sizes = values - 2 * deviation**2 * np.sum(gaps / (gaps**2 + width**2), axis=1)
    return Spectrum(vectors, np.maximum(isotonic_regression(sizes).x, 0))


def fit_private_posterior(
    unit_map: UnitMap, gram: Float[np.ndarray, "d d"], cross: Float[np.ndarray, "d outputs"], noise: Deviations
) -> LinearPosterior:
    """From noisy sums over clients: gram of row products, cross of rows times one-hot labels.

    The last row belongs to the constant feature: it holds the noisy numbers of records and of each class.
    """
    size, outputs = cross.shape
    centre = np.eye(outputs) - 1 / outputs
    spectrum = denoise_gram(gram, noise.off_diagonal)
    ridge = max(RIDGE * noise.off_diagonal * np.sqrt(size), 1e-9 * float(np.mean(spectrum.sizes)) + 1e-12)
    gains = 1 / (spectrum.sizes + ridge)
    along = spectrum.vectors.T @ (cross @ centre)
    mean = spectrum.vectors @ (gains[:, None] * along)
    count = max(float(gram[-1, -1]) / BIAS**2, 1.0)
    second = along.T @ ((spectrum.sizes * gains**2)[:, None] * along) / count
    seen = _estimate_scores(cross, mean, second, noise.cross, float(np.sum(gains)), centre)
    # The mean square of the residual per label: |y - 1/classes|^2 minus what the scores explain.
    explained = float(np.sum(np.diag(seen.means) * seen.sizes)) / float(np.sum(seen.sizes))
    variance = max(1 - 1 / outputs - explained, 0.01) / outputs
    root = np.sqrt(gains)[:, None] * spectrum.vectors.T
    learned = max(float(np.sum(cross * mean)), 1e-12)
    share = min(noise.cross**2 * float(np.sum(gains)) * (outputs - 1) / learned, 1.0)
    return LinearPosterior(
        unit_map,
        "classification",
        mean,
        root,
        ridge,
        variance,
        _adjust_to_noise(link_from_scores(seen, DISCRIMINANT), seen.sizes, share),
    )


def _estimate_scores(
    cross: Float[np.ndarray, "d outputs"],
    mean: Float[np.ndarray, "d outputs"],
    second: Float[np.ndarray, "outputs outputs"],
    deviation: float,
    total_gain: float,
    centre: Float[np.ndarray, "outputs outputs"],
) -> HeldOutScores:
    """Class means and covariance of scores. The head was also fitted to the noise of the cross moments, which makes a
    class's own sum too large: the mean of that is subtracted."""
    sizes = np.maximum(cross[-1] / BIAS, 0) + COUNT_NOISE * deviation / BIAS + 1e-9
    means = (cross.T @ mean - deviation**2 * total_gain * centre) / sizes[:, None]
    share = sizes / np.sum(sizes)
    between = (means * share[:, None]).T @ means
    values, vectors = np.linalg.eigh((second - between + (second - between).T) / 2)
    within = (vectors * np.maximum(values, FLOOR * np.trace(second) / len(second))) @ vectors.T
    return HeldOutScores(sizes, means, within + between, np.diag(share), {})


def _adjust_to_noise(link: Link, sizes: Float[np.ndarray, " outputs"], share: float) -> Link:
    """The link for scores of which this share was learned from noise; share 0 leaves the link as it is.

    With more noise the ridge is larger, and a class's score is closer to its frequency times the similarity of a record
    to the class mean. So the frequency is divided out, the logarithm gets a larger weight, and the discriminants, whose
    class means are noisy, a smaller one. The link of two classes has neither part.
    """
    if len(sizes) == 2:
        return link
    trusted = 1 - LESS_DISCRIMINANT * share
    return replace(
        link,
        logarithm=link.logarithm * (1 + MORE_LOGARITHM * share),
        directions=trusted * link.directions,
        offsets=trusted * link.offsets - LESS_FREQUENCY * share * np.log(sizes / np.sum(sizes)),
    )
