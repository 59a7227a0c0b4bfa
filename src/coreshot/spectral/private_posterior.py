"""The head's posterior from noisy moments, by a server that knows how large the noise is: all of it is post-processing.

The Gram matrix is seen as G + N, with N symmetric and Gaussian. The best that can be said of G's size along the eigenvectors of what is seen is a
known function of its eigenvalues (Bun, Allez, Bouchaud and Potters 2016); noise alone comes out at zero. Scores, their class means and their
covariance then follow as for exact moments (`coreshot.spectral.calibration`), less what the noise adds to them on average.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.optimize import isotonic_regression

from coreshot.privacy.gaussian_moments import Deviations
from coreshot.spectral.calibration import HeldOut, Link, link_of
from coreshot.spectral.features import BIAS, UnitMap
from coreshot.spectral.posterior import LinearPosterior

# Found on clients that no private table is about, at epsilon 8, 3 and 1, with and without a secure sum; `benchmarks/private_constants.py` looks
# around them.
RIDGE = 0.6  # over the noise's size, deviation * sqrt(d)
FLOOR = 0.3  # of the scores' mean square: the covariance within classes has no smaller eigenvalue
COUNT_NOISE = 2.0  # deviations of a class's noisy count that are added to it, so that a rare class does not have a mean of pure noise
# What a share of 1 of noise changes in the link: see `_in_noise`.
MORE_LOGARITHM, LESS_DISCRIMINANT, LESS_FREQUENCY = 3.2, 0.7, 2.4


@dataclass(frozen=True)
class Spectrum:
    """G as far as it can be known: eigenvectors of what was seen, and G's size along each of them."""

    vectors: Float[np.ndarray, "d d"]
    sizes: Float[np.ndarray, " d"]


def denoised(gram: Float[np.ndarray, "d d"], deviation: float) -> Spectrum:
    """u^T G u for the eigenvectors u of G + N, where N's entries beside the diagonal have this deviation: l - 2 deviation^2 sum 1 / (l - l')."""
    values, vectors = np.linalg.eigh(gram)
    size = len(values)
    if deviation == 0:
        return Spectrum(vectors, np.maximum(values, 0))
    width = (
        deviation * size**0.1
    )  # smooths the sum over neighbours: finer than the noise's spectrum, coarser than the gaps in it
    gaps = values[:, None] - values[None]
    sizes = values - 2 * deviation**2 * np.sum(gaps / (gaps**2 + width**2), axis=1)
    return Spectrum(vectors, np.maximum(isotonic_regression(sizes).x, 0))


def fit_private_head(
    unit_map: UnitMap, gram: Float[np.ndarray, "d d"], cross: Float[np.ndarray, "d outputs"], noise: Deviations
) -> LinearPosterior:
    """From the sums over clients of rows' products and of rows times one-hot labels. The last row is the constant: it counts records and classes."""
    size, outputs = cross.shape
    centre = np.eye(outputs) - 1 / outputs
    spectrum = denoised(gram, noise.off_diagonal)
    ridge = max(RIDGE * noise.off_diagonal * np.sqrt(size), 1e-9 * float(np.mean(spectrum.sizes)) + 1e-12)
    gains = 1 / (spectrum.sizes + ridge)
    along = spectrum.vectors.T @ (cross @ centre)
    mean = spectrum.vectors @ (gains[:, None] * along)
    count = max(float(gram[-1, -1]) / BIAS**2, 1.0)
    second = along.T @ ((spectrum.sizes * gains**2)[:, None] * along) / count
    seen = _scores_seen(cross, mean, second, noise.cross, float(np.sum(gains)), centre)
    # The residual's mean square, in units of one label: what is left of |y - 1/classes|^2 once the scores have explained their part.
    explained = float(np.sum(np.diag(seen.means) * seen.sizes)) / float(np.sum(seen.sizes))
    variance = max(1 - 1 / outputs - explained, 0.01) / outputs
    root = np.sqrt(gains)[:, None] * spectrum.vectors.T
    learned = max(float(np.sum(cross * mean)), 1e-12)
    share = min(noise.cross**2 * float(np.sum(gains)) * (outputs - 1) / learned, 1.0)
    return LinearPosterior(
        unit_map, "classification", mean, root, ridge, variance, _in_noise(link_of(seen), seen.sizes, share)
    )


def _scores_seen(
    cross: Float[np.ndarray, "d outputs"],
    mean: Float[np.ndarray, "d outputs"],
    second: Float[np.ndarray, "outputs outputs"],
    deviation: float,
    total_gain: float,
    centre: Float[np.ndarray, "outputs outputs"],
) -> HeldOut:
    """Class means and covariance of scores. The head has learned the cross moments' noise, too: by that a class's own sum is too large."""
    sizes = np.maximum(cross[-1] / BIAS, 0) + COUNT_NOISE * deviation / BIAS + 1e-9
    means = (cross.T @ mean - deviation**2 * total_gain * centre) / sizes[:, None]
    share = sizes / np.sum(sizes)
    between = (means * share[:, None]).T @ means
    values, vectors = np.linalg.eigh((second - between + (second - between).T) / 2)
    within = (vectors * np.maximum(values, FLOOR * np.trace(second) / len(second))) @ vectors.T
    return HeldOut(sizes, means, within + between, np.diag(share), {})


def _in_noise(link: Link, sizes: Float[np.ndarray, " outputs"], share: float) -> Link:
    """For scores of which this share was learned from noise; without noise, the link as it is.

    The more noise, the heavier the ridge, and the more is a class's score its frequency times how like its mean a record is: frequency is taken out
    again, likeness counts for more, and the discriminants, whose class means are as noisy, for less. Two classes have neither part.
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
