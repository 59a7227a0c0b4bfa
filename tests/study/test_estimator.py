"""scikit-learn's own checks, and what sites change: nothing, where every row is sent."""

from unittest import SkipTest

import numpy as np
import pytest
import sklearn
import skops.io
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from coreshot.estimator import SpectralClassifier, SpectralRegressor

ESTIMATORS = (SpectralClassifier(num_features=8), SpectralRegressor(num_features=8))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=["classifier", "regressor"])
def test_scikit_learns_own_checks_after_skops_has_written_and_read_it(estimator):
    name = f"coreshot.estimator.{type(estimator).__name__}"
    again = skops.io.loads(skops.io.dumps(estimator), trusted=[name])
    failed = []
    for one, check in estimator_checks_generator(clone(again)):
        try:
            check(one)
        except SkipTest:  # pandas or the array API is not there
            continue
        except Exception as error:
            failed.append(f"{check.func.__name__}: {type(error).__name__}: {str(error)[:200]}")
    assert failed == []


def test_sites_hardly_change_the_predictions():
    """Sums over sites are the pooled sums; only the sites' own fits differ."""
    x, y = make_classification(300, 6, random_state=0)
    together = SpectralClassifier(num_features=10).fit(x, y)
    apart = SpectralClassifier(num_features=10).fit(x, y, sites=np.arange(300) % 3)
    assert len(apart.messages_) == 3
    assert np.mean(np.abs(apart.predict_proba(x) - together.predict_proba(x))) < 0.03
    assert np.mean(apart.predict(x) == together.predict(x)) > 0.95
    assert apart.score(x, y) > 0.8


def test_labels_of_any_kind_and_probabilities():
    x, y = make_classification(200, 5, n_classes=3, n_informative=4, n_redundant=0, random_state=1)
    names = np.asarray(["ant", "bee", "cat"])[y]
    model = SpectralClassifier(num_features=20, max_bytes=4000).fit(x, names)
    assert set(model.predict(x)) <= set(names)
    assert np.allclose(model.predict_proba(x).sum(axis=1), 1)
    assert model.score(x, names) > 0.6


def test_regression_intervals_cover():
    x, y = make_regression(2300, 4, noise=10.0, random_state=0)
    model = SpectralRegressor(num_features=16).fit(x[:300], y[:300], sites=np.arange(300) % 4)
    mean, deviation = model.predict(x[300:], return_std=True)
    assert np.mean(np.abs(mean - y[300:]) < 1.645 * deviation) == pytest.approx(0.9, abs=0.03)
    assert model.score(x[300:], y[300:]) > 0.9


def test_ranges_are_checked():
    x, y = make_classification(50, 5, random_state=0)
    with pytest.raises(ValueError, match="for each of the 5 inputs"):
        SpectralClassifier(ranges=[(0, 1)]).fit(x, y)
    with pytest.raises(ValueError, match="give one for each"):
        SpectralClassifier().fit(x, y, sites=[1, 2])


def test_no_random_features_is_a_linear_model():
    x, y = make_regression(300, 4, noise=1.0, random_state=0)
    model = SpectralRegressor(num_features=0).fit(x, y, sites=np.arange(300) % 3)
    linear = LinearRegression().fit(x, y)
    np.testing.assert_allclose(model.predict(x), linear.predict(x), atol=0.02 * np.std(y))
    labels = (y > 0).astype(int)
    assert SpectralClassifier(num_features=0).fit(x, labels).score(x, labels) > 0.9
    with pytest.raises(ValueError, match="num_features is -1"):
        SpectralClassifier(num_features=-1).fit(x, labels)


def test_missing_values_are_accepted_and_that_they_are_missing_is_learned():
    draws = np.random.default_rng(0)
    x = draws.normal(size=(400, 3))
    y = draws.integers(2, size=400)
    x[(y == 1) & (draws.uniform(size=400) < 0.8), 1] = np.nan  # the value says nothing, that it is missing does
    x[:, 2] = np.nan  # of nobody
    sites = np.arange(400) % 2
    model = SpectralClassifier(num_features=4).fit(x, y, sites=sites)
    assert model.score(x, y) > 0.8
    hidden = np.where(np.isnan(x), 0.0, x)  # the negative control: the same numbers, without the information
    assert SpectralClassifier(num_features=4).fit(hidden, y, sites=sites).score(hidden, y) < model.score(x, y) - 0.05
    new = np.asarray([[np.nan, 0.0, 1.0], [0.0, np.nan, np.nan]])  # the first input was never missing before
    probability = model.predict_proba(new)[:, 1]
    assert np.all(np.isfinite(probability))
    assert probability[1] > 0.9 > probability[0]
    with pytest.raises(ValueError, match="infinity"):
        model.predict([[np.inf, 0.0, 0.0]])
    amount = SpectralRegressor(num_features=4).fit(x, y + 0.1 * draws.normal(size=400))
    assert amount.score(x, y) > 0.3


def test_a_short_repr():
    assert repr(SpectralClassifier()) == "SpectralClassifier()"
    ranges = np.tile([0.0, 1.0], (30, 1))
    model = SpectralClassifier(num_features=0, ranges=ranges, seed=3)
    assert repr(model) == "SpectralClassifier(num_features=0, ranges=<30 ranges>, seed=3)"
    x, y = make_classification(60, 30, random_state=0)
    assert repr(model.fit(x, y)) == repr(model)


@pytest.fixture
def _routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("_routing")
def test_sites_reach_fit_through_a_pipeline_and_a_cross_validation():
    x, y = make_classification(180, 5, random_state=0)
    sites = np.asarray(["north", "south", "west"])[np.arange(180) % 3]
    steps = make_pipeline(StandardScaler(), SpectralClassifier(num_features=4).set_fit_request(sites=True))
    assert len(steps.fit(x, y, sites=sites)[-1].messages_) == 3
    folds = KFold(3, shuffle=True, random_state=0)
    assert np.mean(cross_val_score(steps, x, y, cv=folds, params={"sites": sites})) > 0.8
    found = cross_validate(steps, x, y, cv=folds, params={"sites": sites}, return_estimator=True)
    assert [len(one[-1].messages_) for one in found["estimator"]] == [3, 3, 3]


@pytest.mark.usefixtures("_routing")
def test_negative_control_sites_that_were_not_requested_are_refused():
    x, y = make_classification(60, 5, random_state=0)
    steps = make_pipeline(StandardScaler(), SpectralClassifier(num_features=4))
    with pytest.raises(ValueError, match="sites"):
        steps.fit(x, y, sites=np.arange(60) % 2)
