"""The likelihood-ratio attack: how much likelier is what the server got with the record than without it (Carlini et al. 2022, LiRA).

A trial comes as a few numbers, its clues. Some of the trials teach the attacker how clues are distributed with and without the record; the others,
which taught nothing, are what it is scored on. Every estimate below is of the latter.

| literature             | here                                          |
|------------------------|-----------------------------------------------|
| shadow models, in/out  | trials that teach                             |
| TPR at 1 % FPR         | `found_at`, with `FALSE_POSITIVES`            |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.stats
from jaxtyping import Bool, Float

from coreshot.audit.confidence import CONFIDENCE, Estimate, at_least, at_most, wilson

TEACH_EVERY = 3  # of so many trials one teaches; it is known by its number, so that more trials never change sides
FALSE_POSITIVES = 0.01
LEAST_DEVIATION = (
    1e-3  # of a clue, over its deviation in all trials: where a message has no randomness, none would divide by 0
)
ROUNDING = 1e-9  # relative differences below it are none


@dataclass(frozen=True)
class Scores:
    """Of trials with (inside) and without (outside) the record; the higher, the likelier inside."""

    inside: Float[np.ndarray, " trials"]
    outside: Float[np.ndarray, " trials"]


@dataclass(frozen=True)
class Attack:
    """What teaches, to choose thresholds on, and what counts."""

    taught: Scores
    scored: Scores


@dataclass(frozen=True)
class Success:
    auc: Estimate  # 0.5: guessing
    found_at_one_percent: Estimate  # records found, at one false alarm in a hundred
    num_inside: int
    num_outside: int


def teaches(num_trials: int) -> Bool[np.ndarray, " trials"]:
    return np.arange(num_trials) % TEACH_EVERY == 0


def attack(inside: Float[np.ndarray, "trials clues"], outside: Float[np.ndarray, "trials clues"]) -> Attack:
    """One clue is taken as the score itself: whoever gives only one knows that nothing else matters."""
    first, second = teaches(len(inside)), teaches(len(outside))
    if inside.shape[1] == 1:
        scored = inside[:, 0], outside[:, 0]
    else:
        teach = inside[first], outside[second]
        scored = log_ratio(*teach, inside), log_ratio(*teach, outside)
    return Attack(Scores(scored[0][first], scored[1][second]), Scores(scored[0][~first], scored[1][~second]))


def log_ratio(
    inside: Float[np.ndarray, "taught clues"],
    outside: Float[np.ndarray, "taught clues"],
    clues: Float[np.ndarray, "trials clues"],
) -> Float[np.ndarray, " trials"]:
    """Of two Gaussians for each clue, fitted to trials with and without the record; clues count as independent."""
    both = np.concatenate([inside, outside])
    spread = np.std(both, axis=0)
    tells = spread > ROUNDING * np.max(np.abs(both), axis=0)
    if not tells.any():
        return np.zeros(len(clues))
    inside, outside, clues, least = (
        inside[:, tells],
        outside[:, tells],
        clues[:, tells],
        LEAST_DEVIATION * spread[tells],
    )
    means = np.mean(inside, axis=0), np.mean(outside, axis=0)
    deviations = np.maximum(np.std(inside, axis=0), least), np.maximum(np.std(outside, axis=0), least)
    densities = [
        scipy.stats.norm.logpdf(clues, mean, deviation) for mean, deviation in zip(means, deviations, strict=True)
    ]
    return np.sum(densities[0] - densities[1], axis=1)


def success(scores: Scores, confidence: float = CONFIDENCE) -> Success:
    sizes = len(scores.inside), len(scores.outside)
    # The variance of an AUC is at most that of a share of the smaller of the two numbers of trials (Birnbaum and Klose 1957).
    area = wilson(auc(scores), min(sizes), confidence)
    return Success(area, found_at(scores, FALSE_POSITIVES, confidence), *sizes)


def auc(scores: Scores) -> float:
    """The chance that a trial with the record has the higher score; equal ones count half."""
    num_in, num_out = len(scores.inside), len(scores.outside)
    ranks = scipy.stats.rankdata(np.concatenate([scores.inside, scores.outside]))
    return float((np.sum(ranks[:num_in]) - num_in * (num_in + 1) / 2) / (num_in * num_out))


def found_at(scores: Scores, false_positives: float, confidence: float = CONFIDENCE) -> Estimate:
    """The share of true positives at the threshold that lets this share of false ones pass.

    The threshold is not known either. Each limit takes the order statistic that lies on its far side with half of the error allowed, and the share
    beyond it with the other half. With too few trials for any to lie there, the limit says nothing.
    """
    num, highest = len(scores.outside), np.sort(scores.outside)[::-1]
    error = (1 - confidence) / 4
    above = scipy.stats.binom.cdf(
        np.arange(num + 1), num, false_positives
    )  # the chance of at most so many false positives
    for_low, for_high = int(np.searchsorted(above, error, side="right")) - 1, int(np.searchsorted(above, 1 - error))
    low, middle, high = (
        int(np.sum(scores.inside > threshold))
        for threshold in (
            highest[for_low] if for_low >= 0 else np.inf,
            highest[int(false_positives * num)],
            highest[for_high] if for_high < num else -np.inf,
        )
    )
    size = len(scores.inside)
    return Estimate(middle / size, float(at_least(low, size, 1 - error)), float(at_most(high, size, 1 - error)))


def roc(scores: Scores) -> tuple[Float[np.ndarray, " thresholds"], Float[np.ndarray, " thresholds"]]:
    """False and true positives at every threshold, from the highest down."""
    thresholds = np.unique(np.concatenate([scores.inside, scores.outside]))[::-1]
    shares = [1 - np.searchsorted(np.sort(part), thresholds) / len(part) for part in (scores.outside, scores.inside)]
    return np.concatenate([[0.0], shares[0]]), np.concatenate([[0.0], shares[1]])
