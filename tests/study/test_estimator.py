"""scikit-learn's own checks, and what sites change: nothing, where every row is sent."""

from unittest import SkipTest

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.utils.estimator_checks import estimator_checks_generator

from coreshot.estimator import SpectralClassifier, SpectralRegressor

ESTIMATORS = (SpectralClassifier(num_features=8), SpectralRegressor(num_features=8))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=["classifier", "regressor"])
def test_scikit_learns_own_checks(estimator):
    failed = []
    for one, check in estimator_checks_generator(clone(estimator)):
        try:
            check(one)
        except SkipTest:  # pandas or the array API is not there
            continue
        except Exception as error:
            failed.append(f"{check.func.__name__}: {type(error).__name__}: {str(error)[:200]}")
    assert failed == []


def test_sites_do_not_change_the_posterior_mean():
    """Sums of sites' moments are the pooled moments: the head is the same; only the link, which leaves sites out,
    may differ.
    """
    x, y = make_classification(300, 6, random_state=0)
    together = SpectralClassifier(num_features=10).fit(x, y)
    apart = SpectralClassifier(num_features=10).fit(x, y, sites=np.arange(300) % 3)
    assert len(apart.messages_) == 3
    np.testing.assert_allclose(apart.model_.posterior.mean, together.model_.posterior.mean, rtol=1e-3, atol=1e-5)
    assert np.mean(apart.predict(x) == together.predict(x)) > 0.98
    assert apart.score(x, y) > 0.8


def test_labels_of_any_kind_and_probabilities():
    x, y = make_classification(200, 5, n_classes=3, n_informative=4, n_redundant=0, random_state=1)
    names = np.asarray(["ant", "bee", "cat"])[y]
    model = SpectralClassifier(num_features=20, max_bytes=4000).fit(x, names)
    assert set(model.predict(x)) <= set(names)
    assert np.allclose(model.predict_proba(x).sum(axis=1), 1)
    assert model.score(x, names) > 0.6


def test_regression_intervals_cover():
    x, y = make_regression(400, 4, noise=10.0, random_state=0)
    model = SpectralRegressor(num_features=16).fit(x[:300], y[:300], sites=np.arange(300) % 4)
    mean, deviation = model.predict(x[300:], return_std=True)
    assert np.mean(np.abs(mean - y[300:]) < 1.645 * deviation) == pytest.approx(0.9, abs=0.08)
    assert model.score(x[300:], y[300:]) > 0.9


def test_ranges_are_checked():
    x, y = make_classification(50, 5, random_state=0)
    with pytest.raises(ValueError, match="for each of the 5 inputs"):
        SpectralClassifier(ranges=[(0, 1)]).fit(x, y)
    with pytest.raises(ValueError, match="give one for each"):
        SpectralClassifier().fit(x, y, sites=[1, 2])
