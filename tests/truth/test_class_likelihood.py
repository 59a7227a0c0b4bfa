"""The likelihood of Gaussian classes against exact gradients, and its mode against pooled logistic regression."""

import numpy as np
import pytest
import scipy.special

from coreshot.glm.class_likelihood import SiteClasses, pool, stack
from coreshot.glm.logistic import INTERCEPT_PRECISION, balance, find_mode
from coreshot.glm.summary import collect_class_moments, collect_moments


def draw(num_classes, count=400, skewed=True):
    """Features with the constant first; skewed ones are far from Gaussian."""
    rng = np.random.default_rng(0)
    y = rng.integers(num_classes, size=count)
    noise = rng.gamma(0.5, size=(count, 3)) if skewed else rng.normal(size=(count, 3))
    features = np.concatenate([np.ones((count, 1)), noise + 0.5 * np.eye(num_classes, 3)[y]], axis=1)
    return features, y


def exact_gradient(features, y, weights):
    num_logits = weights.shape[1]
    scores = features @ weights
    p = scipy.special.expit(scores) if num_logits == 1 else scipy.special.softmax(scores, axis=1)
    return features.T @ (np.eye(max(num_logits, 2))[y][:, -num_logits:] - p)


def some_weights(num_classes):
    return np.random.default_rng(1).normal(size=(4, 1 if num_classes == 2 else num_classes))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_gradient_is_exact_at_zero_and_at_the_site_s_fit(num_classes):
    features, y = draw(num_classes)
    labels, weights = np.eye(num_classes)[y], some_weights(num_classes)
    plain = SiteClasses.from_class_moments(collect_class_moments(features, labels))
    pooled = SiteClasses.from_moments(collect_moments(features, labels), num_classes)
    for site in (plain, pooled):
        zero = 0 * weights
        np.testing.assert_allclose(stack([site]).at(zero).gradient, exact_gradient(features, y, zero), atol=1e-8)
        truth = exact_gradient(features, y, weights)
        assert np.max(np.abs(stack([site]).at(weights).gradient - truth)) > 1, "negative control: not by itself"
        np.testing.assert_allclose(stack([site.corrected(weights, truth)]).at(weights).gradient, truth, atol=1e-8)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_gaussian_features_need_no_correction(num_classes):
    count = 100_000
    features, y = draw(num_classes, count, skewed=False)
    weights = some_weights(num_classes)
    site = SiteClasses.from_class_moments(collect_class_moments(features, np.eye(num_classes)[y]))
    wrong = np.abs(stack([site]).at(weights).gradient - exact_gradient(features, y, weights)) / count
    assert np.max(wrong) < (0.003 if num_classes == 2 else 0.02)  # three classes: draws
    skewed, y = draw(num_classes, count)
    site = SiteClasses.from_class_moments(collect_class_moments(skewed, np.eye(num_classes)[y]))
    more = np.abs(stack([site]).at(weights).gradient - exact_gradient(skewed, y, weights)) / count
    assert np.max(more) > 2 * np.max(wrong), "negative control: skewed features do"


@pytest.mark.parametrize("num_classes", [2, 3])
def test_a_basis_changes_nothing_but_coordinates(num_classes):
    features, y = draw(num_classes)
    basis = np.random.default_rng(2).normal(size=(4, 4))
    basis[:, 0] = [1, 0, 0, 0]  # the constant stays
    site, moved = (
        SiteClasses.from_class_moments(collect_class_moments(one, np.eye(num_classes)[y]))
        for one in (features, features @ basis)
    )
    weights = some_weights(num_classes)
    np.testing.assert_allclose(
        stack([site.in_basis(basis)]).at(weights).gradient, stack([moved]).at(weights).gradient, atol=1e-7
    )


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_mode_has_no_slope_and_the_balance_has_the_base_rates(num_classes):
    features, y = draw(num_classes)
    likelihood = stack([SiteClasses.from_class_moments(collect_class_moments(features, np.eye(num_classes)[y]))])
    start = 5 * some_weights(num_classes)  # a full Newton step from here would go too far
    mode = find_mode(likelihood, np.full(3, 2.0), start)
    prior = np.append(INTERCEPT_PRECISION, np.full(3, 2.0))[:, None]
    assert np.max(np.abs(likelihood.at(mode.weights).gradient - prior * mode.weights)) < 0.1
    assert np.max(np.abs(likelihood.at(start).gradient - prior * start)) > 10, "negative control"
    weights = mode.weights.copy()
    weights[0] = balance(likelihood, 0.5 * mode.weights)
    weights[1:] *= 0.5
    expected = likelihood.sizes @ likelihood.at(weights).probabilities / len(y)
    np.testing.assert_allclose(expected, np.bincount(y)[-expected.size :] / len(y), atol=1e-4)


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("is_common", [False, True])
def test_pooled_sites_are_their_records_together(num_classes, is_common):
    features, y = draw(num_classes)
    labels = np.eye(num_classes)[y]

    def site(part):
        if is_common:
            return SiteClasses.from_moments(collect_moments(features[part], labels[part]), num_classes)
        return SiteClasses.from_class_moments(collect_class_moments(features[part], labels[part]))

    order = np.argsort(y, kind="stable")  # the first part has one class only
    parts = np.split(order, [50, 170, 300])
    pooled = site(parts[0])
    for part in parts[1:]:
        pooled = pool(pooled, site(part))
    whole = site(slice(None))
    for name in ("sizes", "means", "covariances"):
        np.testing.assert_allclose(getattr(pooled, name), getattr(whole, name), atol=1e-9)
    assert np.max(np.abs(whole.means - site(parts[1]).means)) > 0.01, "negative control"
    weights = some_weights(num_classes)
    one, other = (site(part).corrected(weights, 0 * weights) for part in parts[2:])
    np.testing.assert_allclose(pool(one, other).correction, one.correction + other.correction)
