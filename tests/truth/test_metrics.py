"""Accuracy, NLL, Brier, ECE and RMSE: against hand values, against scikit-learn, and against forecasters whose
calibration is known.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from coreshot.fitted.metrics import Sums, class_sums, metrics, sums
from coreshot.inference.posterior import SamplePosterior
from coreshot.models import Model
from coreshot.models.networks import Mlp
from coreshot.types import Points, make_points

NUM_FORECASTS = 40_000


@pytest.fixture(scope="module")
def classes():
    """Logits are theta: a Dense layer on one input that is always 0 leaves its bias."""
    return Model(Mlp(hidden=(), activation="relu"), "classification", (1,), 3, 1.0, 1.0)


@pytest.fixture(scope="module")
def line():
    return Model(Mlp(hidden=(), activation="relu"), "regression", (1,), 1, 1.0, 0.5)


def constant_posterior(model, biases):
    """Samples that predict their bias whatever the input."""
    biases = jnp.asarray(biases, jnp.float32)
    kernel = jnp.zeros((len(biases), 1, model.num_outputs))
    return SamplePosterior(model, {"Dense_0": {"kernel": kernel, "bias": biases}})


def of_forecasts(model, probabilities, one_hot):
    log_prob = float(np.sum(np.log(np.sum(probabilities * one_hot, axis=1))))
    return metrics(model, class_sums(probabilities, one_hot, log_prob))


def test_hand_values(classes):
    """Three points; probabilities and labels chosen so that each figure can be done in the head."""
    probabilities = np.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])
    one_hot = np.eye(3)[[0, 1, 2]]
    found = of_forecasts(classes, probabilities, one_hot)
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.nll == pytest.approx(-(np.log(0.5) + np.log(0.25) + np.log(0.8)) / 3)
    # Summed over classes: 0.25 + 0.0625 + 0.0625, then 0.25 + 0.5625 + 0.0625, then 0.01 + 0.01 + 0.04.
    assert found.brier == pytest.approx((0.375 + 0.875 + 0.06) / 3)
    # Two points of confidence 0.5, one of them right: no gap; one of 0.8, right: a gap of 0.2 with a third of the
    # weight.
    assert found.ece == pytest.approx(0.2 / 3)
    assert found.rmse is None


def test_against_scikit_learn(classes):
    draws = np.random.default_rng(0)
    probabilities = draws.dirichlet(np.ones(3), size=500)
    label = draws.integers(3, size=500)
    found = of_forecasts(classes, probabilities, np.eye(3)[label])
    assert found.accuracy == pytest.approx(accuracy_score(label, probabilities.argmax(axis=1)))
    assert found.nll == pytest.approx(log_loss(label, probabilities, labels=[0, 1, 2]))


def test_brier_of_two_classes_is_twice_scikit_learns():
    """Ours sums over both classes, theirs is the squared error of one of them."""
    draws = np.random.default_rng(1)
    chance, label = draws.uniform(size=300), draws.integers(2, size=300)
    model = Model(Mlp(hidden=(), activation="relu"), "classification", (1,), 2, 1.0, 1.0)
    found = of_forecasts(model, np.stack([1 - chance, chance], axis=1), np.eye(2)[label])
    assert found.brier == pytest.approx(2 * brier_score_loss(label, chance))


def test_a_posterior_of_known_probabilities(classes):
    """Through sums: two samples whose probabilities average to (0.5, 0.3, 0.2), seen by three points."""
    each = np.array([[0.8, 0.1, 0.1], [0.2, 0.5, 0.3]])
    posterior = constant_posterior(classes, np.log(each))
    test = make_points(np.zeros((3, 1)), np.eye(3)[[0, 0, 1]])
    found = metrics(classes, sums(classes, posterior, test))
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.nll == pytest.approx(-(2 * np.log(0.5) + np.log(0.3)) / 3, rel=1e-5)
    assert found.brier == pytest.approx((2 * (0.25 + 0.09 + 0.04) + (0.25 + 0.49 + 0.04)) / 3, rel=1e-5)
    assert found.ece == pytest.approx(abs(0.5 - 2 / 3), rel=1e-5)
    predictive = posterior.predict(test.x)
    np.testing.assert_allclose(predictive.mean[0], [0.5, 0.3, 0.2], rtol=1e-5)
    np.testing.assert_allclose(predictive.epistemic[0], [0.3, 0.2, 0.1], rtol=1e-5)
    np.testing.assert_allclose(
        predictive.aleatoric[0] ** 2, [(0.16 + 0.16) / 2, (0.09 + 0.25) / 2, (0.09 + 0.21) / 2], rtol=1e-5
    )


@pytest.fixture(scope="module")
def forecasts():
    """Probabilities of three classes, and labels drawn from exactly them."""
    draws = np.random.default_rng(2)
    probabilities = draws.dirichlet(np.ones(3), size=NUM_FORECASTS)
    label = (draws.uniform(size=(NUM_FORECASTS, 1)) > np.cumsum(probabilities, axis=1)).sum(axis=1)
    return probabilities, np.eye(3)[label]


# A calibrated forecaster's ECE is not 0 but noise: each of at most 15 bins is off by about sqrt(0.25 / n_b), which
# weighted by n_b / n
# adds to at most 0.5 sqrt(15 / n). Three times that is the limit.
MAX_ECE = 3 * 0.5 * np.sqrt(15 / NUM_FORECASTS)


def test_ece_of_a_calibrated_forecaster_goes_to_zero(classes, forecasts):
    assert of_forecasts(classes, *forecasts).ece < MAX_ECE


def test_ece_of_an_over_confident_forecaster_does_not(classes, forecasts):
    probabilities, one_hot = forecasts
    sharp = probabilities**2 / np.sum(probabilities**2, axis=1, keepdims=True)
    found = of_forecasts(classes, sharp, one_hot)
    assert found.ece > MAX_ECE
    assert found.ece > 0.1
    assert found.nll > of_forecasts(classes, probabilities, one_hot).nll  # and the proper score says so too


def test_ece_cannot_be_averaged_over_batches(classes):
    """Two batches that each look wrong in opposite ways are calibrated together: bins are merged before the gap
    is taken.
    """
    probabilities = np.tile([0.5, 0.3, 0.2], (4, 1))
    right, wrong = (class_sums(probabilities[:2], np.eye(3)[[label, label]], 0.0) for label in (0, 1))
    assert metrics(classes, right).ece == pytest.approx(0.5)
    assert metrics(classes, wrong).ece == pytest.approx(0.5)
    assert metrics(classes, right + wrong).ece == pytest.approx(0.0)


def test_full_confidence_falls_in_the_last_bin(classes):
    found = class_sums(np.eye(3), np.eye(3), 0.0)
    assert found.bin_count.tolist() == [0] * 14 + [3]
    edge = class_sums(np.array([[0.4, 0.4, 0.2]]), np.eye(3)[:1], 0.0)  # 6/15: the right end of the sixth bin
    assert edge.bin_count.tolist() == [0] * 5 + [1] + [0] * 9


def split(points, at):
    return [jax.tree.map(lambda array, part=part: array[part], points) for part in (slice(None, at), slice(at, None))]


def as_values(total):
    return {name: np.asarray(getattr(total, name), np.float64) for name in Sums.__dataclass_fields__}


def test_sums_of_two_batches_add_to_those_of_all_classification(classes):
    draws = np.random.default_rng(3)
    posterior = SamplePosterior(
        classes,
        {
            "Dense_0": {
                "kernel": jnp.asarray(draws.normal(size=(5, 1, 3)), jnp.float32),
                "bias": jnp.asarray(draws.normal(size=(5, 3)), jnp.float32),
            }
        },
    )
    test = make_points(draws.normal(size=(50, 1)), np.eye(3)[draws.integers(3, size=50)])
    one, two = split(test, 17)
    merged = as_values(Sums() + sums(classes, posterior, one) + sums(classes, posterior, two))
    whole = as_values(sums(classes, posterior, test))
    for name, value in whole.items():
        np.testing.assert_allclose(
            merged[name], value, rtol=1e-6, err_msg=name
        )  # float32 predictions, summed in float64
    assert not np.allclose(as_values(sums(classes, posterior, one))["log_prob"], whole["log_prob"])


def test_sums_of_two_batches_add_to_those_of_all_regression(line):
    draws = np.random.default_rng(4)
    posterior = constant_posterior(line, draws.normal(size=(4, 1)))
    test = make_points(draws.normal(size=(20, 1)), draws.normal(size=(20, 1)))
    one, two = split(test, 6)
    merged = metrics(line, sums(line, posterior, one) + sums(line, posterior, two))
    whole = metrics(line, sums(line, posterior, test))
    assert merged.nll == pytest.approx(whole.nll, rel=1e-6)
    assert merged.rmse == pytest.approx(whole.rmse, rel=1e-6)
    assert (merged.accuracy, merged.brier, merged.ece) == (None, None, None)


def test_regression_nll_is_the_density_of_the_mixture(line):
    """Samples at 0 and 1, a target at 0, noise 0.5: the mixture's density is the mean of the two, not of their logs."""
    posterior = constant_posterior(line, [[0.0], [1.0]])
    found = metrics(line, sums(line, posterior, make_points([[0.0]], [[0.0]])))
    at_0 = 1 / (0.5 * np.sqrt(2 * np.pi))
    at_1 = at_0 * np.exp(-0.5 * (1 / 0.5) ** 2)
    assert found.nll == pytest.approx(-np.log((at_0 + at_1) / 2), rel=1e-5)
    assert found.nll != pytest.approx(-(np.log(at_0) + np.log(at_1)) / 2, rel=1e-2)
    assert found.rmse == pytest.approx(0.5)  # the mean of the function is 0.5


def test_rmse_is_taken_against_the_truth_where_it_is_known(line):
    posterior = constant_posterior(line, [[1.0]])
    test, truth = make_points([[0.0], [0.0]], [[3.0], [-1.0]]), make_points([[0.0], [0.0]], [[1.0], [2.0]])
    assert metrics(line, sums(line, posterior, test)).rmse == pytest.approx(2.0)
    known = metrics(line, sums(line, posterior, test, truth))
    assert known.rmse == pytest.approx(np.sqrt(0.5))
    assert known.nll == pytest.approx(
        metrics(line, sums(line, posterior, test)).nll
    )  # the noise belongs to the likelihood


def test_regression_uncertainty_splits_into_function_and_noise(line):
    found = constant_posterior(line, [[0.0], [1.0]]).predict(jnp.zeros((2, 1)))
    np.testing.assert_allclose(found.mean, 0.5)
    np.testing.assert_allclose(found.epistemic, 0.5)
    np.testing.assert_allclose(found.aleatoric, 0.5)


def test_log_prob_of_soft_labels_is_the_cross_entropy(classes):
    params = {"Dense_0": {"kernel": jnp.zeros((1, 3)), "bias": jnp.log(jnp.array([0.5, 0.25, 0.25]))}}
    soft = Points(jnp.zeros((1, 1)), jnp.array([[0.5, 0.5, 0.0]]), jnp.array([2.0]))
    assert float(classes.log_prob(params, soft)) == pytest.approx(
        2 * (0.5 * np.log(0.5) + 0.5 * np.log(0.25)), rel=1e-6
    )
