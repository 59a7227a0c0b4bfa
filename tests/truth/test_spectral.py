"""The spectral coreset is exact: the same posterior as the pooled data, whatever the order; and its errors obey their
bounds where it is cut.
"""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
import scipy.linalg
import scipy.special
import scipy.stats

from coreshot.data.digits import Digits
from coreshot.data.synthetic import Moons, Regression
from coreshot.spectral.calibration import DISCRIMINANT, ClassMeans, Link, class_sums, fit_link, score_held_out
from coreshot.spectral.coreset import Moments, spectral_rows
from coreshot.spectral.evidence import maximize_evidence, solve_ridge
from coreshot.spectral.features import RandomConv, RandomVector, feature_map
from coreshot.spectral.posterior import fit_posterior

RIDGE = 0.7


def task(name):
    """Features and centred labels by client, float64."""
    if name == "digits":
        data, features = (
            Digits(num_clients=4, alpha=1.0).make(0),
            RandomConv(dimension=96, num_filters=16, size=3, grid=3),
        )
    elif name == "moons":
        data, features = (
            Moons(num_clients=3, points_per_client=60, noise_scale=0.1, num_test=10).make(0),
            RandomVector(dimension=40),
        )
    else:
        data, features = (
            Regression(num_clients=3, points_per_client=50, noise_scale=0.1, num_test=10).make(0),
            RandomVector(dimension=30, frequency=0.5),
        )
    drawn = feature_map(features, jax.random.key(7), next(iter(data.clients.values())).x.shape[1:])
    offset = 0.0 if data.kind == "regression" else 1 / next(iter(data.clients.values())).y.shape[1]
    return [
        (drawn(points.x).astype(np.float64), np.asarray(points.y, np.float64) - offset)
        for points in data.clients.values()
    ]


def moments_of_rows(rows, num_examples):
    return Moments.from_rows(rows.features, rows.labels, num_examples)


def total(parts):
    return sum(parts[1:], parts[0])


def pooled(clients):
    return Moments.from_rows(
        np.concatenate([x for x, _ in clients]),
        np.concatenate([y for _, y in clients]),
        sum(len(x) for x, _ in clients),
    )


def relative(found, wanted):
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


def covariance(solution):
    return solution.noise_variance * scipy.linalg.cho_solve((solution.factor, True), np.eye(len(solution.factor)))


@pytest.fixture(scope="module", params=["digits", "moons", "regression"])
def clients(request):
    return task(request.param)


def test_with_all_rows_the_posterior_is_that_of_the_pooled_data(clients):
    arrived = total([moments_of_rows(spectral_rows(x, y, None, 16.0), len(x)) for x, y in clients])
    found, wanted = solve_ridge(arrived, RIDGE), solve_ridge(pooled(clients), RIDGE)
    assert relative(found.mean, wanted.mean) < 1e-5
    assert relative(covariance(found), covariance(wanted)) < 1e-5
    assert found.log_evidence == pytest.approx(wanted.log_evidence, rel=1e-5)
    assert maximize_evidence(arrived).ridge == pytest.approx(maximize_evidence(pooled(clients)).ridge, rel=1e-3)


def test_no_more_rows_than_the_rank(clients):
    for x, y in clients:
        assert spectral_rows(x, y, None, 16.0).num_rows <= min(len(x), x.shape[1] + y.shape[1])


@pytest.mark.parametrize("wrong", ["scaled", "one left out", "labels of another"])
def test_wrong_statistics_fail_the_same_test(clients, wrong):
    coresets = [spectral_rows(x, y, None, 16.0) for x, y in clients]
    features, labels = [rows.features for rows in coresets], [rows.labels for rows in coresets]
    if wrong == "scaled":
        features[0] = 1.01 * features[0]
    elif wrong == "one left out":
        features[0] = features[0] * (np.arange(len(features[0])) > 0)[:, None]
    else:
        labels[0] = labels[0][::-1]
    arrived = total([Moments.from_rows(z, u, len(x)) for z, u, (x, _) in zip(features, labels, clients, strict=True)])
    assert relative(solve_ridge(arrived, RIDGE).mean, solve_ridge(pooled(clients), RIDGE).mean) > 1e-4


def test_a_client_that_is_forgotten_was_never_there(clients):
    parts = [moments_of_rows(spectral_rows(x, y, None, 16.0), len(x)) for x, y in clients]
    left, never = solve_ridge(total(parts) - parts[1], RIDGE), solve_ridge(total([parts[0], *parts[2:]]), RIDGE)
    assert relative(left.mean, never.mean) < 1e-5
    assert relative(left.mean, solve_ridge(total(parts), RIDGE).mean) > 1e-3


@pytest.mark.parametrize("num_rows", [2, 4, 6])
def test_the_truncation_is_the_best_and_obeys_its_bound(clients, num_rows):
    scale, whole = 16.0, solve_ridge(pooled(clients), RIDGE)
    parts, eigenvalues = [], 0.0
    for x, y in clients:
        rows = spectral_rows(x, y, num_rows, scale)
        joint, kept = np.c_[x, scale * y], np.c_[rows.features, scale * rows.labels]
        error = joint.T @ joint - kept.T @ kept
        singular = np.linalg.svd(joint, compute_uv=False)
        close = partial(pytest.approx, rel=1e-6, abs=1e-12 * singular[0] ** 2)
        assert np.linalg.norm(error, 2) == close(singular[num_rows] ** 2)
        assert rows.next_eigenvalue == close(singular[num_rows] ** 2)
        assert np.linalg.norm(error) == close(np.sqrt(np.sum(singular[num_rows:] ** 4)))
        eigenvalues += rows.next_eigenvalue
        parts.append(moments_of_rows(rows, len(x)))
    found = solve_ridge(total(parts), RIDGE)
    error = np.linalg.norm(found.mean - whole.mean, 2)
    assert num_rows > 2 or error > 1e-6  # there is something to bound
    bound = eigenvalues / RIDGE * (np.linalg.norm(whole.mean, 2) + 1 / scale)  # docs/spectral.md derives it
    assert error <= bound


def test_the_evidence_is_the_marginal_likelihood():
    """Against the density of all targets under their joint Gaussian, at the noise where it is largest."""
    draws = np.random.default_rng(0)
    x, y = draws.normal(size=(30, 5)), draws.normal(size=(30, 2))
    solution = solve_ridge(Moments.from_rows(x, y, 30), 2.0)
    covariance = solution.noise_variance * (np.eye(30) + x @ x.T / 2.0)
    wanted = sum(scipy.stats.multivariate_normal(np.zeros(30), covariance).logpdf(y[:, output]) for output in range(2))
    assert solution.log_evidence == pytest.approx(wanted, rel=1e-9)
    for factor in (0.8, 1.25):
        other = factor * covariance
        assert (
            sum(scipy.stats.multivariate_normal(np.zeros(30), other).logpdf(y[:, output]) for output in range(2))
            < wanted
        )


def test_the_evidence_finds_the_prior_and_the_noise():
    draws = np.random.default_rng(1)
    x = draws.normal(size=(4000, 50))
    weights = draws.normal(size=(50, 40)) * 0.5
    y = x @ weights + 0.3 * draws.normal(size=(4000, 40))
    found = maximize_evidence(Moments.from_rows(x, y, 4000))
    assert np.sqrt(found.noise_variance) == pytest.approx(0.3, rel=0.02)
    assert found.noise_variance / found.ridge == pytest.approx(0.25, rel=0.1)  # prior variance


def test_regression_intervals_hold_what_they_promise():
    draws = np.random.default_rng(2)
    drawn = feature_map(RandomVector(dimension=30, frequency=0.7), jax.random.key(3), (1,))
    weights = draws.normal(size=(31, 1)) * 0.4
    inside = []
    for _ in range(20):
        x, test = draws.uniform(-3, 3, size=(40, 1)), draws.uniform(-3, 3, size=(200, 1))
        y = drawn(x) @ weights + 0.2 * draws.normal(size=(40, 1))
        truth = drawn(test) @ weights
        predictive = fit_posterior(
            drawn, "regression", [Moments.from_rows(drawn(x), y, 40)], ridge=0.04 / 0.16
        ).predict(test)
        inside.append(np.mean(np.abs(truth - predictive.mean) < 1.96 * predictive.epistemic))
    assert np.mean(inside) == pytest.approx(0.95, abs=0.03)


@pytest.fixture(scope="module")
def digits():
    """Four groups, one client each; and the scores of single records, each under the head of the other clients."""
    clients = task("digits")
    groups = [Moments.from_rows(x, y, len(x)) for x, y in clients]
    scores = [
        x @ solve_ridge(total([*groups[:index], *groups[index + 1 :]]), RIDGE).mean
        for index, (x, _) in enumerate(clients)
    ]
    return groups, np.concatenate(scores), np.concatenate([y.argmax(axis=1) for _, y in clients])


def test_held_out_scores_are_known_from_moments(digits):
    """Class sizes, class means, covariance within classes and floor, against the scores of single records."""
    groups, scores, labels = digits
    seen = score_held_out(groups, RIDGE)
    means = np.stack([scores[labels == label].mean(axis=0) for label in range(10)])
    np.testing.assert_allclose(seen.sizes, np.bincount(labels, minlength=10), rtol=1e-6)
    np.testing.assert_allclose(seen.means, means, atol=1e-8)
    deviations = scores - means[labels]
    np.testing.assert_allclose(seen.within, deviations.T @ deviations / len(scores), atol=1e-8)
    own = np.sum(np.bincount(labels, minlength=10) * np.diag(means) ** 2)
    assert seen.floor == pytest.approx(np.sqrt((np.sum(scores**2) - own) / len(scores) / 9), rel=1e-6)
    assert seen.floor != pytest.approx(np.sqrt(np.mean(scores**2)), rel=0.1)  # own scores would count


def test_the_variance_at_unseen_clients_is_known_from_moments(digits):
    """The mean over single records of the variance that the head of the other clients has there; the variance that
    the head has at records it was fitted to is smaller.
    """
    groups, clients = digits[0], task("digits")
    others = [solve_ridge(total([*groups[:index], *groups[index + 1 :]]), RIDGE) for index in range(len(groups))]
    everyone = solve_ridge(total(groups), RIDGE)

    def variances(solution, features):
        rooted = scipy.linalg.solve_triangular(solution.factor, features.T, lower=True)
        return solution.noise_variance * np.sum(rooted**2, axis=0)

    unseen = np.concatenate([variances(one, x) for one, (x, _) in zip(others, clients, strict=True)])
    seen = np.concatenate([variances(everyone, x) for x, _ in clients])
    found = score_held_out(groups, RIDGE).variance
    assert found == pytest.approx(np.mean(unseen), rel=0.15)
    assert np.mean(seen) < 0.8 * found, "negative control"


def coarse(features, labels, num_levels):
    """Moments of a client's rows when so many levels are left of their entries, as where bytes are few."""
    rows = spectral_rows(features, labels, None, 16.0)
    joint = np.concatenate([rows.features, 16.0 * rows.labels], axis=1)
    step = np.max(np.abs(joint)) / num_levels
    rounded = step * np.round(joint / step)
    return Moments.from_rows(rounded[:, : features.shape[1]], rounded[:, features.shape[1] :] / 16.0, len(features))


@pytest.mark.parametrize("num_levels", [6, 16, 50])
def test_where_rows_are_coarse_the_covariance_within_classes_stays_one_and_the_link_works(num_levels):
    """Sums over sizes, which need every bit, can leave negative variances; the head still tells digits apart, and
    so must the probabilities.
    """
    clients = task("digits")
    groups = [coarse(x, y, num_levels) for x, y in clients]
    seen = score_held_out(groups, RIDGE)
    assert np.linalg.eigvalsh(seen.within)[0] > -1e-12
    if num_levels == 6:  # the negative control: the formula that was here first
        sums = sum(class_sums(group).T @ seen.heads[index] for index, group in enumerate(groups))
        sizes = np.maximum(sum(class_sums(group)[-1] for group in groups), 0.5)
        explained = (sums / sizes[:, None]).T @ sums / sum(len(x) for x, _ in clients)
        assert np.linalg.eigvalsh(seen.second - explained)[0] < -1e-6
        return  # of so few levels the head itself makes 0.49
    scores = np.concatenate([x for x, _ in clients]) @ solve_ridge(total(groups), RIDGE).mean
    labels = np.concatenate([y.argmax(axis=1) for _, y in clients])
    link = fit_link(groups, [(index, ClassMeans.from_moments(group)) for index, group in enumerate(groups)], RIDGE)
    of_head, of_link = (
        np.mean(found.argmax(axis=1) == labels) for found in (scores, link.logits(scores, np.zeros(len(scores))))
    )
    assert of_link > of_head - 0.02


def test_discriminants_are_in_units_of_their_deviation(digits):
    groups, scores, _ = digits
    link = fit_link(groups, [], RIDGE)
    parts = scores @ link.directions + link.offsets
    assert np.sqrt(np.mean((parts - parts.mean(axis=1, keepdims=True)) ** 2)) == pytest.approx(DISCRIMINANT, rel=1e-6)
    assert link.scale == 1.0  # nobody said how sure to be


def nll(logits, labels):
    return -np.mean(scipy.special.log_softmax(logits, axis=1)[np.arange(len(labels)), labels])


def test_class_means_say_how_sure_to_be(digits):
    """The scale that they find is near the best for single held-out records; the same scale with labels at random
    is far from it.
    """
    groups, scores, labels = digits
    clients = task("digits")
    speakers = [
        (index, ClassMeans.from_moments(Moments.from_rows(x, y, len(x)))) for index, (x, y) in enumerate(clients)
    ]
    link = fit_link(groups, speakers, RIDGE)
    variance = score_held_out(groups, RIDGE).variance
    parts = replace(link, scale=1.0).logits(scores, np.full(len(scores), variance))
    best = min(nll(scale * parts, labels) for scale in np.geomspace(0.1, 20, 60))
    found = nll(link.scale * parts, labels)
    assert found < best + 0.1
    shuffled = [
        (group, replace(one, labels=np.random.default_rng(0).permutation(one.labels))) for group, one in speakers
    ]
    assert fit_link(groups, shuffled, RIDGE).scale < 0.3 * link.scale


def test_discriminants_help(digits):
    groups, scores, labels = digits
    link = fit_link(groups, [], RIDGE)
    without = replace(link, directions=0 * link.directions, offsets=0 * link.offsets)

    def best(link):
        parts = link.logits(scores, np.zeros(len(scores)))
        return min(nll(scale * parts, labels) for scale in np.geomspace(0.1, 20, 60))

    assert best(link) < best(without)


def test_a_class_that_nobody_has_is_unlikely():
    clients = [(x[y.argmax(1) != 3], y[y.argmax(1) != 3]) for x, y in task("digits")]
    groups = [Moments.from_rows(x, y, len(x)) for x, y in clients]
    link = fit_link(groups, [(index, ClassMeans.from_moments(group)) for index, group in enumerate(groups)], RIDGE)
    scores = np.concatenate([x for x, _ in clients]) @ solve_ridge(total(groups), RIDGE).mean
    probabilities = scipy.special.softmax(link.logits(scores, np.zeros(len(scores))), axis=1)
    assert np.mean(probabilities[:, 3]) < 0.02
    assert np.mean(probabilities.argmax(axis=1) == 3) < 0.01


def test_a_far_input_is_less_certain():
    link = Link(2.0, 0.05, np.eye(3), np.zeros(3))
    scores = np.asarray([[0.8, 0.0, 0.0]])
    near, far = (np.exp(link.logits(scores, np.asarray([variance]))) for variance in (0.0, 1.0))
    assert (near / near.sum()).max() > 0.9
    assert (far / far.sum()).max() < 0.7


def test_slopes_are_the_derivatives_of_the_logits():
    draws = np.random.default_rng(0)
    link = Link(1.7, 0.05, draws.normal(size=(3, 3)), draws.normal(size=3))
    scores, variance = draws.normal(size=(1, 3)), np.asarray([0.01])
    slopes = link.slopes(scores, variance)[0]
    for index in range(3):
        step = 1e-6 * np.eye(3)[index]
        difference = (link.logits(scores + step, variance) - link.logits(scores - step, variance))[0] / 2e-6
        np.testing.assert_allclose(slopes[:, index], difference, rtol=1e-5)
