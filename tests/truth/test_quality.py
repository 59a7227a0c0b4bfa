"""Intervals and measures of an evaluation: against scikit-learn, against known answers, and with negative controls."""

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, confusion_matrix, log_loss, roc_auc_score

from coreshot.data.schema import Quantity
from coreshot.errors import CoreshotError
from coreshot.fitted.class_quality import _bootstrap, _ece, _Forecasts, class_quality
from coreshot.fitted.intervals import (
    MAX_RESAMPLES,
    MIN_RESAMPLES,
    num_resamples,
    percentiles,
    resample,
    weighted_auc,
    wilson,
)
from coreshot.fitted.metrics import class_sums
from coreshot.fitted.quality import Answers
from coreshot.fitted.quantity_quality import quantity_quality


def class_answers(probabilities, labels):
    one_hot = np.eye(probabilities.shape[1])[labels]
    log_prob = np.log(np.sum(probabilities * one_hot, axis=1))
    return Answers(probabilities, np.zeros_like(probabilities), log_prob, one_hot)


def two_classes(seed, count=300, sharpness=1.0):
    """Labels are drawn from the probabilities; sharpness other than 1 states them wrong."""
    draws = np.random.default_rng(seed)
    logits = draws.normal(size=count) * 2
    labels = (draws.uniform(size=count) < 1 / (1 + np.exp(-logits))).astype(int)
    stated = 1 / (1 + np.exp(-sharpness * logits))
    return class_answers(np.stack([1 - stated, stated], axis=1), labels)


def test_wilson_by_hand():
    """8 of 10: z = 1.96, centre (0.8 + z^2 / 20) / (1 + z^2 / 10), half-width from the same formula."""
    z = 1.959964
    centre = (0.8 + z**2 / 20) / (1 + z**2 / 10)
    half = z / (1 + z**2 / 10) * np.sqrt(0.8 * 0.2 / 10 + z**2 / 400)
    assert wilson(8, 10) == pytest.approx((centre - half, centre + half), abs=1e-6)
    assert wilson(0, 0) is None
    assert wilson(10, 10)[1] == 1


def test_the_bootstrap_of_a_mean_has_the_width_of_the_normal_interval():
    values = np.random.default_rng(0).normal(3, 2, size=400)
    found = resample(400, 1000, lambda weights: {"mean": weights @ values / 400})["mean"]
    low, high = percentiles(found)
    half = 1.96 * np.std(values) / 20
    assert (high - low) / 2 == pytest.approx(half, rel=0.15)  # 1,000 resamples: quantiles are known to about 5 %
    assert (high + low) / 2 == pytest.approx(np.mean(values), abs=0.2 * half)
    again = resample(400, 1000, lambda weights: {"mean": weights @ values / 400})["mean"]
    np.testing.assert_array_equal(found, again)


def test_fewer_resamples_of_many_records():
    assert num_resamples(182) == MAX_RESAMPLES
    assert num_resamples(1_000_000) == MIN_RESAMPLES
    assert percentiles(np.full(5, np.nan)) is None


def test_the_area_of_many_rows_of_weights_is_scikit_learns():
    draws = np.random.default_rng(1)
    scores = np.round(draws.uniform(size=200), 1)  # with ties
    is_positive = draws.uniform(size=200) < scores
    weights = draws.integers(0, 4, size=(5, 200)).astype(float)
    wanted = [roc_auc_score(is_positive, scores, sample_weight=row) for row in weights]
    np.testing.assert_allclose(weighted_auc(scores, is_positive)(weights), wanted)
    only_one = weights * is_positive
    assert np.all(np.isnan(weighted_auc(scores, is_positive)(only_one)))


def test_two_classes_against_scikit_learn():
    answers = two_classes(0)
    labels, chance = answers.y.argmax(axis=1), answers.mean[:, 1]
    found = class_quality(answers, ("no", "yes"), threshold=0.3)
    said = chance >= 0.3
    table = confusion_matrix(labels, said)
    assert found.measure("auc").value == pytest.approx(roc_auc_score(labels, chance))
    assert found.measure("nll").value == pytest.approx(log_loss(labels, chance))
    assert found.measure("brier").value == pytest.approx(2 * brier_score_loss(labels, chance))
    assert found.measure("sensitivity").value == table[1, 1] / table[1].sum()
    assert found.measure("specificity").value == table[0, 0] / table[0].sum()
    assert found.confusion == tuple(map(tuple, confusion_matrix(labels, chance > 0.5).tolist()))
    rate = labels.mean()
    assert found.measure("nll").baseline == pytest.approx(log_loss(labels, np.full(300, rate)))
    assert found.measure("accuracy").baseline == max(rate, 1 - rate)
    sums = class_sums(answers.mean, answers.y, 0.0)
    gap = np.sum(np.abs(sums.bin_confidence - sums.bin_correct)) / 300
    assert found.measure("ece").value == pytest.approx(gap)
    for one in found.measures:
        assert one.interval[0] <= one.value <= one.interval[1], one.name
    assert found.classes[1].mean_probability == pytest.approx(chance.mean())
    assert found.classes[1].share == pytest.approx(rate)
    other = class_quality(answers, ("no", "yes"), positive="no", threshold=0.7)
    # P(no) is at least 0.7 where P(yes) is at most 0.3, so that the two are exchanged.
    assert other.measure("sensitivity").value == found.measure("specificity").value


def test_many_classes_have_the_mean_area_of_one_against_the_rest():
    draws = np.random.default_rng(2)
    probabilities = draws.dirichlet(np.ones(4), size=400)
    labels = (draws.uniform(size=(400, 1)) > np.cumsum(probabilities, axis=1)).sum(axis=1)
    found = class_quality(class_answers(probabilities, labels), tuple("abcd"))
    assert found.measure("auc").value == pytest.approx(roc_auc_score(labels, probabilities, multi_class="ovr"))
    assert found.settings == {"positive": "d", "threshold": 0.5}


def test_the_sentence_says_how_good_compared_with_what():
    found = class_quality(two_classes(3, count=182), ("no", "yes")).sentence
    assert found.startswith("Of 182 records the model is right on ")
    assert found.endswith("so the model is clearly better.")
    draws = np.random.default_rng(0)
    useless = class_answers(draws.dirichlet([5, 5], size=200), (draws.uniform(size=200) < 0.1).astype(int))
    assert class_quality(useless, ("no", "yes")).sentence.endswith("so the model is clearly worse.")
    constant = class_answers(np.tile([0.9, 0.1], (50, 1)), np.asarray([0] * 45 + [1] * 5))
    assert class_quality(constant, ("no", "yes")).sentence == (
        "Of 50 records the model is right on 45 (90.0 %, 95 % interval 78.6 to 95.7 %); "
        "always saying 'no' would be right on 90.0 %, so the model is no better."
    )


def test_ece_is_compared_with_that_of_a_calibrated_model():
    right = class_quality(two_classes(5, count=500), ("no", "yes")).measure("ece")
    wrong = class_quality(two_classes(5, count=500, sharpness=3.0), ("no", "yes")).measure("ece")
    assert right.interval[0] < right.baseline
    assert right.value < 2 * right.baseline
    assert wrong.interval[0] > wrong.baseline  # the negative control


def test_the_interval_of_the_ece_is_around_it():
    """Resamples of few records have a larger ECE than the records: without the correction, most of an interval is
    above the value, and in some draws all of it.
    """
    outside, above = 0, []
    for seed in range(30):
        found = _Forecasts(two_classes(seed, count=60), ("no", "yes"))
        value, (low, high) = _ece(found), _bootstrap(found, 200)["ece"]
        outside += not low <= value <= high
        above.append((high - value) / (high - low))
    assert outside == 0
    assert 0.4 < np.mean(above) < 0.65  # half, and a little more, as the lower end is at least 0


def test_intervals_of_the_bootstrap_hold_the_truth_as_often_as_they_say():
    """NLL and AUC of 100 draws of 100 records, the truth from many. With 95 % the number that hold it has a deviation
    of 2.2; the bootstrap of so few records is a little short of 95 %. The negative control is half as wide.
    """
    answers = two_classes(999, count=200_000)
    labels, chance = answers.y.argmax(axis=1), answers.mean[:, 1]
    truth = {"nll": log_loss(labels, chance), "auc": roc_auc_score(labels, chance)}
    held, half_as_wide = dict.fromkeys(truth, 0), dict.fromkeys(truth, 0)
    for seed in range(100):
        found = _bootstrap(_Forecasts(two_classes(seed, count=100), ("no", "yes")), 200)
        for name, true in truth.items():
            low, high = found[name]
            middle, reach = (low + high) / 2, (high - low) / 2
            held[name] += abs(true - middle) <= reach
            half_as_wide[name] += abs(true - middle) <= reach / 2
    assert min(held.values()) >= 88
    assert max(half_as_wide.values()) < 85


@pytest.mark.parametrize("labels", [[1, 1, 1], [1]])
def test_records_of_one_class_leave_out_what_they_cannot_tell(labels):
    probabilities = np.tile([0.2, 0.8], (len(labels), 1))
    found = class_quality(class_answers(probabilities, np.asarray(labels)), ("no", "yes"))
    assert found.measure("auc") is None
    assert found.measure("specificity") is None
    assert found.measure("sensitivity").value == 1
    assert "No record is of class no" in found.notes[-1]


def test_positive_class_and_threshold_are_checked():
    answers = two_classes(0, count=20)
    with pytest.raises(CoreshotError, match="give one of no, yes"):
        class_quality(answers, ("no", "yes"), positive="maybe")
    with pytest.raises(CoreshotError, match="between 0 and 1"):
        class_quality(answers, ("no", "yes"), threshold=50)


def quantity_answers(seed, count=400, too_sure=1.0):
    """On the scale of -1 to 1, which stands for 0 to 40: a deviation of 0.1 is one of 2."""
    draws = np.random.default_rng(seed)
    mean, deviation = draws.uniform(-0.8, 0.8, (count, 1)), np.full((count, 1), 0.1)
    y = mean + too_sure * deviation * draws.normal(size=(count, 1))
    log_prob = -0.5 * (np.log(2 * np.pi * deviation**2) + ((y - mean) / deviation) ** 2)[:, 0]
    return Answers(mean, deviation, log_prob, y)


def test_a_quantity_is_measured_in_its_units():
    answers, target = quantity_answers(0), Quantity(name="days", range=(0.0, 40.0))
    found = quantity_quality(answers, target)
    y, said = (answers.y[:, 0] + 1) * 20, (answers.mean[:, 0] + 1) * 20
    assert found.measure("rmse").value == pytest.approx(np.sqrt(np.mean((y - said) ** 2)))
    assert found.measure("rmse").baseline == pytest.approx(np.std(y))
    assert found.measure("mae").value == pytest.approx(np.mean(np.abs(y - said)))
    assert found.measure("mae").baseline == pytest.approx(np.mean(np.abs(y - y.mean())))
    density = 0.5 * np.log(2 * np.pi * 2.0**2) + ((y - said) / 2.0) ** 2 / 2
    assert found.measure("nll").value == pytest.approx(np.mean(density))
    assert found.measure("nll").value < found.measure("nll").baseline
    low, high = found.measure("coverage_90").interval
    assert low < 0.9 < high
    assert "clearly better" in found.sentence
    assert f"always saying their mean would have {np.std(y):.4g}" in found.sentence


def test_one_record_is_not_shown_and_proves_nothing():
    """The mean of one record is its target, a cell of somebody's file."""
    answers = quantity_answers(1, count=1)
    found = quantity_quality(answers, Quantity(name="days", range=(0.0, 40.0)))
    assert "one record does not tell how good the model is" in found.sentence
    cell = f"{(answers.y[0, 0] + 1) * 20:.3g}"
    assert cell not in found.sentence + "".join(one.compared for one in found.measures)


def test_negative_control_intervals_that_are_too_narrow():
    found = quantity_quality(quantity_answers(0, too_sure=2.0), Quantity(name="days", range=(0.0, 40.0)))
    assert found.measure("coverage_90").interval[1] < 0.9
