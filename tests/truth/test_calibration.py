"""Intervals of a forecaster who is right about himself hold the truth as often as they say; those of one who is too
sure do not.
"""

import numpy as np

from coreshot.fitted.calibration import LEVELS, coverage
from coreshot.fitted.metrics import class_sums
from coreshot.report.calibration import draw_reliability

COUNT = 4000
ERROR = 4 * 0.5 / np.sqrt(COUNT)  # four deviations of a share


def forecaster(too_sure):
    """Means that are right, with both kinds of deviation; the truth deviates as both together say, times `too_sure`."""
    draws = np.random.default_rng(0)
    epistemic, aleatoric = draws.uniform(0.1, 1, (COUNT, 1)), draws.uniform(0.1, 1, (COUNT, 1))
    mean = draws.normal(size=(COUNT, 1))
    truth = mean + too_sure * np.sqrt(epistemic**2 + aleatoric**2) * draws.normal(size=(COUNT, 1))
    return mean, np.hypot(epistemic, aleatoric), truth


def test_coverage_of_a_calibrated_forecaster():
    assert np.all(np.abs(coverage(*forecaster(1.0), LEVELS) - LEVELS) < ERROR)


def test_negative_control_one_who_is_too_sure():
    assert np.all(coverage(*forecaster(2.0), LEVELS)[2:-2] < LEVELS[2:-2] - ERROR)


def test_the_diagram_says_in_words_what_it_shows():
    """Ten records of which the model is 80 % sure, seven right."""
    probabilities = np.tile([0.8, 0.2], (10, 1))
    labels = np.eye(2)[[0] * 7 + [1] * 3]
    assert (
        draw_reliability(class_sums(probabilities, labels, 0.0)).alt
        == "Reliability diagram. confidence 80 %: 70 % correct."
    )
