"""The likelihood of Gaussian classes against exact gradients, and its mode against pooled logistic regression."""

import numpy as np
import pytest
import scipy.special

from coreshot.glm.class_likelihood import SiteClasses, pool, stack
from coreshot.glm.logistic import INTERCEPT_PRECISION, balance, find_mode
from coreshot.glm.score_groups import MAX_GROUPS, MIN_RECORDS, group_by_score, join_groups, num_groups_of
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


def class_moments(features, y, num_classes, groups=None):
    groups = np.zeros(len(y), int) if groups is None else groups
    return collect_class_moments(features, y, groups, num_groups_of(groups, y, num_classes))


def make_site(features, y, num_classes, groups=None):
    return SiteClasses.from_class_moments(class_moments(features, y, num_classes, groups), features.shape[1])


def some_weights(num_classes):
    return np.random.default_rng(1).normal(size=(4, 1 if num_classes == 2 else num_classes))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_gradient_is_exact_at_zero_and_at_the_site_s_fit(num_classes):
    features, y = draw(num_classes)
    labels, weights = np.eye(num_classes)[y], some_weights(num_classes)
    plain = make_site(features, y, num_classes)
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
    site = make_site(features, y, num_classes)
    wrong = np.abs(stack([site]).at(weights).gradient - exact_gradient(features, y, weights)) / count
    assert np.max(wrong) < (0.003 if num_classes == 2 else 0.02)  # three classes: draws
    skewed, y = draw(num_classes, count)
    site = make_site(skewed, y, num_classes)
    more = np.abs(stack([site]).at(weights).gradient - exact_gradient(skewed, y, weights)) / count
    assert np.max(more) > 2 * np.max(wrong), "negative control: skewed features do"


@pytest.mark.parametrize("num_classes", [2, 3])
def test_a_basis_changes_nothing_but_coordinates(num_classes):
    features, y = draw(num_classes)
    basis = np.random.default_rng(2).normal(size=(4, 4))
    basis[:, 0] = [1, 0, 0, 0]  # the constant stays
    site, moved = (make_site(one, y, num_classes) for one in (features, features @ basis))
    weights = some_weights(num_classes)
    np.testing.assert_allclose(
        stack([site.in_basis(basis)]).at(weights).gradient, stack([moved]).at(weights).gradient, atol=1e-7
    )


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_mode_has_no_slope_and_the_balance_has_the_base_rates(num_classes):
    features, y = draw(num_classes)
    likelihood = stack([make_site(features, y, num_classes)])
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
        return make_site(features[part], y[part], num_classes)

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


def test_groups_hold_enough_records_of_one_class_in_the_order_of_scores():
    features, y = draw(2, 400)
    scores = features @ np.asarray([0.0, 1.0, -1.0, 0.5])
    few = np.flatnonzero(y == 1)[: 3 * MIN_RECORDS + 4]  # not enough for all groups
    kept = np.concatenate([np.flatnonzero(y == 0), few])
    groups, labels = group_by_score(scores[kept], y[kept], 2), y[kept]
    assert num_groups_of(groups, labels, 2) == [MAX_GROUPS if np.sum(y == 0) >= 160 else np.sum(y == 0) // 10, 3]
    for label in range(2):
        sizes = np.bincount(groups[labels == label])
        assert np.min(sizes) >= MIN_RECORDS
        assert np.ptp(sizes) <= 1
        by_score = groups[labels == label][np.argsort(scores[kept][labels == label])]
        assert np.all(np.diff(by_score) >= 0)


def test_moments_with_groups_are_those_without_when_joined():
    features, y = draw(2)
    groups = group_by_score(features[:, 1], y, 2)
    plain, grouped = class_moments(features, y, 2), class_moments(features, y, 2, groups)
    assert [len(one) for one in grouped] > [len(one) for one in plain]
    for one, other in zip(plain, grouped, strict=True):
        np.testing.assert_allclose(join_groups(other, 4), one, atol=1e-9)


def test_groups_bring_mean_probabilities_of_skewed_features_near_the_exact_ones():
    """Also away from the weights whose scores they are groups of. The first entry of the gradient is the sum of
    labels less probabilities."""
    features, y = draw(2, 20_000)
    weights = some_weights(2)
    groups = group_by_score((features @ weights)[:, 0], y, 2)
    wrong = {"whole": [], "groups": []}
    for share in (0.2, 0.5, 0.8, 1.2):
        moved = share * weights + 0.2 * np.random.default_rng(3).normal(size=weights.shape)
        truth = exact_gradient(features, y, moved)[0, 0]
        for name, of in (("whole", None), ("groups", groups)):
            site = make_site(features, y, 2, of).corrected(weights, exact_gradient(features, y, weights))
            wrong[name].append(abs(stack([site]).at(moved).gradient[0, 0] - truth) / len(y))
    assert max(wrong["groups"]) < 0.5 * max(wrong["whole"])


def test_pooled_sites_with_groups_are_their_groups_together():
    features, y = draw(2)
    groups = group_by_score(features[:, 1], y, 2)
    halves = np.arange(len(y)) % 2 == 0
    whole = make_site(features, y, 2, groups)
    pooled = pool(*(make_site(features[part], y[part], 2, groups[part]) for part in (halves, ~halves)))
    for name in ("labels", "sizes", "means", "covariances"):
        np.testing.assert_allclose(getattr(pooled, name), getattr(whole, name), atol=1e-9)


def test_a_site_with_few_groups_is_pooled_with_one_of_many():
    """Sizes, and the moments of each class, are those of all records."""
    features, y = draw(2)
    few = np.arange(len(y)) < 45
    sites = []
    for part in (few, ~few):
        groups = group_by_score(features[part, 1], y[part], 2)
        sites.append(make_site(features[part], y[part], 2, groups))
    pooled = pool(*sites)
    for label in range(2):
        own = pooled.labels == label
        total = np.sum(pooled.sizes[own])
        mean = pooled.sizes[own] @ pooled.means[own] / total
        spread = pooled.covariances[label] + (pooled.means[own].T * pooled.sizes[own] / total) @ pooled.means[own]
        truth = features[y == label]
        np.testing.assert_allclose(mean, np.mean(truth, axis=0), atol=1e-9)
        np.testing.assert_allclose(spread, truth.T @ truth / len(truth), atol=1e-9)
