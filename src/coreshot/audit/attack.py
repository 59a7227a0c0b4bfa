"""The likelihood-ratio attack: was the record in the data from which the server's message was made?

Carlini et al., "Membership Inference Attacks From First Principles" (2022), LiRA.

| paper                          | here                                                         |
|--------------------------------|--------------------------------------------------------------|
| shadow models, in and out      | shadow trials with and without the record, `is_shadow`       |
| phi, the model's statistic     | several statistics of a trial, see `statistics`              |
| Lambda, the likelihood ratio   | `log_likelihood_ratio`, a trial's score                      |
| TPR at 1 % FPR                 | `true_positives_at` with `FALSE_POSITIVES`                   |

Differences: a trial is a whole distillation, not a model; a Gaussian is fitted to each statistic, and statistics count
as independent. Every estimate is computed from held-out trials, which were not used to fit the Gaussians.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.stats
from jaxtyping import Bool, Float

from coreshot.audit.confidence import CONFIDENCE, Estimate, lower_limit, upper_limit, wilson_interval

SHADOW_EVERY = 3  # one trial in so many is a shadow trial, by its number, so that more trials never change this
FALSE_POSITIVES = 0.01
# Of a statistic, relative to its standard deviation over all trials: avoids a division by zero where a message has no
# randomness.
LEAST_DEVIATION = 1e-3
ROUNDING = 1e-9  # a relative spread below it is rounding


@dataclass(frozen=True)
class Scores:
    """Scores of trials with (inside) and without (outside) the record; a higher score means more likely inside."""

    inside: Float[np.ndarray, " inside"]
    outside: Float[np.ndarray, " outside"]


@dataclass(frozen=True)
class Attack:
    """Scores of shadow trials, on which thresholds are chosen, and of held-out trials, from which results come."""

    shadow: Scores
    held_out: Scores


@dataclass(frozen=True)
class Success:
    auc: Estimate  # 0.5: guessing
    found_at_one_percent: Estimate  # the share of true positives at 1 % false positives
    num_inside: int
    num_outside: int


def is_shadow(num_trials: int) -> Bool[np.ndarray, " trials"]:
    return np.arange(num_trials) % SHADOW_EVERY == 0


def run_attack(
    inside: Float[np.ndarray, "inside statistics"], outside: Float[np.ndarray, "outside statistics"]
) -> Attack:
    """Scores of all trials. A single statistic is the score itself, because it is sufficient where it stands alone."""
    shadow_in, shadow_out = is_shadow(len(inside)), is_shadow(len(outside))
    if inside.shape[1] == 1:
        scores_in, scores_out = inside[:, 0], outside[:, 0]
    else:
        shadow = inside[shadow_in], outside[shadow_out]
        scores_in, scores_out = log_likelihood_ratio(*shadow, inside), log_likelihood_ratio(*shadow, outside)
    return Attack(
        Scores(scores_in[shadow_in], scores_out[shadow_out]), Scores(scores_in[~shadow_in], scores_out[~shadow_out])
    )


def log_likelihood_ratio(
    inside: Float[np.ndarray, "inside statistics"],
    outside: Float[np.ndarray, "outside statistics"],
    trials: Float[np.ndarray, "trials statistics"],
) -> Float[np.ndarray, " trials"]:
    """log p(trial | inside) - log p(trial | outside), for Gaussians fitted to shadow trials of both kinds."""
    both = np.concatenate([inside, outside])
    spread = np.std(both, axis=0)
    varies = spread > ROUNDING * np.max(np.abs(both), axis=0)
    if not varies.any():
        return np.zeros(len(trials))
    trials, least = trials[:, varies], LEAST_DEVIATION * spread[varies]

    def log_density(shadow: Float[np.ndarray, "shadow statistics"]) -> Float[np.ndarray, "trials varying"]:
        mean, deviation = np.mean(shadow[:, varies], axis=0), np.std(shadow[:, varies], axis=0)
        return scipy.stats.norm.logpdf(trials, mean, np.maximum(deviation, least))

    return np.sum(log_density(inside) - log_density(outside), axis=1)


def measure_success(scores: Scores, confidence: float = CONFIDENCE) -> Success:
    sizes = len(scores.inside), len(scores.outside)
    # The variance of an AUC is at most auc (1 - auc) / min(sizes) (Birnbaum and Klose 1957).
    area = wilson_interval(auc(scores), min(sizes), confidence)
    return Success(area, true_positives_at(scores, FALSE_POSITIVES, confidence), *sizes)


def auc(scores: Scores) -> float:
    """The probability that a trial with the record has the higher score; ties count half."""
    from sklearn.metrics import roc_auc_score  # loads in about a second, which only an audit should pay

    return float(roc_auc_score(*_labelled(scores)))


def roc(scores: Scores) -> tuple[Float[np.ndarray, " thresholds"], Float[np.ndarray, " thresholds"]]:
    """Shares of false and of true positives at every threshold, from the highest threshold down."""
    from sklearn.metrics import roc_curve

    false, true, _ = roc_curve(*_labelled(scores), drop_intermediate=False)
    return false, true


def _labelled(scores: Scores) -> tuple[Bool[np.ndarray, " both"], Float[np.ndarray, " both"]]:
    """Whether each trial is inside, and its score."""
    is_inside = np.repeat([True, False], [len(scores.inside), len(scores.outside)])
    return is_inside, np.concatenate([scores.inside, scores.outside])


def true_positives_at(scores: Scores, false_positives: float, confidence: float = CONFIDENCE) -> Estimate:
    """The share of true positives at the threshold that this share of false positives exceeds.

    The threshold is estimated too. Each limit spends half of its allowed error on an order statistic beyond the true
    threshold, and half on the share of true positives above that order statistic. With too few trials for such an
    order statistic, the limit is 0 or 1.
    """
    num, highest = len(scores.outside), np.sort(scores.outside)[::-1]
    error = (1 - confidence) / 4
    at_most_so_many = scipy.stats.binom.cdf(np.arange(num + 1), num, false_positives)
    for_low = int(np.searchsorted(at_most_so_many, error, side="right")) - 1
    for_high = int(np.searchsorted(at_most_so_many, 1 - error))
    thresholds = (
        highest[for_low] if for_low >= 0 else np.inf,
        highest[int(false_positives * num)],
        highest[for_high] if for_high < num else -np.inf,
    )
    low, middle, high = (int(np.sum(scores.inside > threshold)) for threshold in thresholds)
    size = len(scores.inside)
    return Estimate(middle / size, float(lower_limit(low, size, 1 - error)), float(upper_limit(high, size, 1 - error)))
