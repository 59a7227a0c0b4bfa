"""Each release's difference stays within its declared sensitivity; the noise is what the accountant was told; nothing
else gets at the records.
"""

import ast
import math
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import coreshot
from coreshot.errors import CoreshotError
from coreshot.privacy.accounting import Privacy, compute_epsilon, noise_multiplier
from coreshot.privacy.gaussian_moments import (
    LABEL_UNIT,
    UNIT,
    deviations,
    exact_moments,
    noisy_moments,
    symmetric,
    whole,
)
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.noise import rounded_gaussian, standard_normal
from coreshot.privacy.releases import Release
from coreshot.spectral.features import BIAS, RandomConv, RandomVector, unit_map
from coreshot.types import make_points

SHARE = 0.8
GAUSSIAN = Release("statistics", "test", "gaussian", 1.0, 0.6, delta=1e-5)


def analytic_epsilon(multiplier, delta):
    """Balle and Wang 2018, Theorem 8: the exact epsilon of a Gaussian mechanism, by bisection on its delta."""

    def delta_of(epsilon):
        a, b = 1 / (2 * multiplier) - epsilon * multiplier, -1 / (2 * multiplier) - epsilon * multiplier
        return scipy.stats.norm.cdf(a) - math.exp(epsilon) * scipy.stats.norm.cdf(b)

    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
    return high


@given(
    seed=st.integers(0, 2**32 - 1),
    num=st.integers(1, 12),
    size=st.integers(1, 9),
    outputs=st.integers(1, 4),
    scale=st.floats(1e-3, 1e3),
    odd=st.sampled_from([0.0, math.nan, math.inf, -math.inf, 3e38, 1e200, 1e-300]),
)
@settings(max_examples=300, deadline=None)
def test_one_record_moves_the_moments_by_at_most_one(seed, num, size, outputs, scale, odd):
    """Of any rows, long, short or absurd: the released vector, in the mechanism's own weighting, in whole
    numbers, so without any tolerance.
    """
    draws = np.random.default_rng(seed)
    rows, labels = scale * draws.normal(size=(num, size)), scale * draws.normal(size=(num, outputs))
    rows[0, 0] = odd if odd else rows[0, 0]
    labels[-1, -1] = odd if odd else labels[-1, -1]
    with_it, without_it = exact_moments(rows, labels), exact_moments(rows[1:], labels[1:])
    gram, cross = (
        int_difference.astype(object) for int_difference in (with_it[0] - without_it[0], with_it[1] - without_it[1])
    )
    of_gram = int(np.sum(gram**2)) / UNIT**4
    of_cross = int(np.sum(cross**2)) / (UNIT * LABEL_UNIT) ** 2
    assert of_gram <= 1
    assert of_cross <= 1
    assert (1 - SHARE) * of_gram + SHARE * of_cross <= 1


def test_a_record_of_norm_one_moves_them_by_nearly_that_much():
    """The bound is not met by shrinking everything."""
    row, label = np.full((1, 16), 0.25), np.array([[0.0, 1.0]])
    gram, cross = exact_moments(row, label)
    assert np.sum((gram / UNIT**2) ** 2) == pytest.approx(1, abs=1e-3)
    assert np.sum((cross / UNIT / LABEL_UNIT) ** 2) == pytest.approx(1, abs=1e-3)


def test_without_clipping_the_same_check_fails(monkeypatch):
    """The negative control of the property above."""
    monkeypatch.setattr("coreshot.privacy.gaussian_moments.whole", lambda rows, unit: np.trunc(unit * rows))
    gram, _ = exact_moments(np.full((1, 4), 2.0), np.ones((1, 1)))
    assert np.sum((gram / UNIT**2) ** 2) > 1


def test_whole_rows_are_never_longer_than_the_unit():
    draws = np.random.default_rng(0)
    rows = whole(draws.normal(size=(1000, 300)) * 10.0 ** draws.uniform(-3, 3, size=(1000, 1)), UNIT)
    assert np.all(rows == np.trunc(rows))
    assert max(int(np.sum(row.astype(np.int64).astype(object) ** 2)) for row in rows) <= UNIT**2


@pytest.mark.parametrize(("kind", "shape"), [("conv", (12, 12, 1)), ("vector", (5,))])
def test_rows_of_the_map_have_norm_one_and_do_not_depend_on_neighbours(kind, shape):
    features = RandomConv(dimension=40, num_filters=8, size=3, grid=2) if kind == "conv" else RandomVector(dimension=40)
    drawn = unit_map(features, jax.random.key(0), shape)
    x = np.random.default_rng(1).normal(size=(150, *shape)).astype(np.float32)
    rows = drawn(x)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert np.all(rows[:, -1] == BIAS)
    order = np.random.default_rng(2).permutation(150)
    for chosen in (order, order[:7], order[:1], order[:64], order[:65]):
        assert np.array_equal(drawn(x[chosen]), rows[chosen]), "a record's row must not depend on who stands beside it"


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 8.0])
def test_calibrated_noise_keeps_the_promise_and_wastes_little(epsilon):
    """By dp-accounting's answer and by the closed form, which knows nothing of it."""
    privacy = Privacy(epsilon=epsilon, delta=1e-5)
    multiplier = noise_multiplier(privacy)
    assert compute_epsilon((Release("a", "b", "gaussian", 1.0, multiplier),), 1e-5) <= epsilon
    assert analytic_epsilon(multiplier, 1e-5) == pytest.approx(epsilon, rel=2e-3)
    assert analytic_epsilon(multiplier / 2, 1e-5) > 1.5 * epsilon


def test_releases_compose_and_an_exact_one_spoils_everything():
    noisy = Release("a", "b", "gaussian", 1.0, 2.0)
    assert compute_epsilon((noisy, noisy), 1e-5) == pytest.approx(analytic_epsilon(2 / math.sqrt(2), 1e-5), rel=2e-3)
    assert compute_epsilon((noisy, Release("c", "d")), 1e-5) == math.inf


def test_sampled_steps_cost_less_than_whole_ones():
    privacy = Privacy(epsilon=3.0, delta=1e-5)
    assert noise_multiplier(privacy, 100, 0.1) < noise_multiplier(privacy, 100) / 3
    release = Release("experts", "test", "dp_sgd", 1.0, noise_multiplier(privacy, 100, 0.1), 100, 0.1, 1e-5)
    assert compute_epsilon((release,), 1e-5) <= 3.0


def test_the_sampler_is_normal_to_the_tails():
    draws = standard_normal((1_000_000,))
    assert scipy.stats.kstest(draws, "norm").pvalue > 1e-4
    assert np.mean(draws > 0) == pytest.approx(0.5, abs=0.003)
    for far in (2.0, 3.0, 4.0):
        expected = 2 * scipy.stats.norm.sf(far) * draws.size
        assert abs(np.sum(np.abs(draws) > far) - expected) < 6 * math.sqrt(expected)
    assert np.max(np.abs(draws)) > 4


def test_a_wrong_sampler_fails_the_same_test():
    draws = np.random.default_rng(0).laplace(scale=math.sqrt(0.5), size=1_000_000)  # of variance one
    assert scipy.stats.kstest(draws, "norm").pvalue < 1e-4


def test_noise_is_whole_and_of_the_deviation_asked_for():
    draws = rounded_gaussian(1000.0, (300_000,))
    assert draws.dtype == np.int64
    assert np.std(draws) == pytest.approx(1000, rel=0.01)
    assert not np.array_equal(draws, rounded_gaussian(1000.0, (300_000,)))


@pytest.mark.parametrize("num_sharers", [1, 100])
def test_what_is_released_has_the_noise_that_the_accountant_was_told(num_sharers):
    release = Release("statistics", "test", "gaussian", 1.0, 0.6, delta=1e-5, num_sharers=num_sharers)
    draws = np.random.default_rng(0)
    size, rows, labels = 60, draws.normal(size=(9, 60)), np.eye(40)[draws.integers(40, size=9)]
    points = make_points(np.zeros((9, 1)), np.zeros((9, 1)))
    exact = exact_moments(rows, labels)
    noisy = [
        noisy_moments(Records(points, [release]), "statistics", lambda _: (rows, labels), SHARE) for _ in range(20)
    ]
    upper = np.triu_indices(size)
    on = upper[0] == upper[1]
    gram = np.stack([one.gram - exact[0][upper] for one in noisy]) / UNIT**2
    cross = np.stack([one.cross - exact[1] for one in noisy]) / (UNIT * LABEL_UNIT)
    enough = max(num_sharers - 1, 1)  # without any one of the sharers, who knows its own part
    expected = deviations(0.6, SHARE, 1 / enough)
    assert expected.diagonal == pytest.approx(0.6 / math.sqrt((1 - SHARE) * enough))
    assert expected.cross == pytest.approx(0.6 / math.sqrt(SHARE * enough))
    assert np.std(gram[:, on]) == pytest.approx(expected.diagonal, rel=0.1)
    assert np.std(gram[:, ~on]) == pytest.approx(expected.diagonal / math.sqrt(2), rel=0.02)
    assert np.std(cross) == pytest.approx(expected.cross, rel=0.02)


def test_triangle_and_matrix():
    matrix = np.arange(9.0).reshape(3, 3)
    matrix = matrix + matrix.T
    assert np.array_equal(symmetric(matrix[np.triu_indices(3)], 3), matrix)


def test_records_open_for_declared_releases_only():
    points = make_points([[1.0]], [[1.0]])
    records = Records(points, [Release("start", "the mean"), GAUSSIAN])
    assert records.exact("start") is points
    with pytest.raises(CoreshotError, match="declares start, statistics; declare it"):
        records.exact("experts")
    with pytest.raises(CoreshotError, match="declared as gaussian, so its records are not given out"):
        records.exact("statistics")
    with pytest.raises(CoreshotError, match="declared as exact, so gaussian may not make it"):
        records.for_mechanism("start", "gaussian")
    with pytest.raises(CoreshotError, match="declared as gaussian, so dp_sgd may not make it"):
        records.for_mechanism("statistics", "dp_sgd")
    assert records.used == {"start", "statistics"}


def test_a_release_is_made_once():
    """A second draw of noise on the same records would be a second release, which nobody has accounted for."""
    records = Records(make_points([[1.0]], [[1.0]]), [GAUSSIAN])
    rows = np.ones((1, 2)), np.ones((1, 1))
    noisy_moments(records, "statistics", lambda _: rows, SHARE)
    with pytest.raises(CoreshotError, match="accounted for 1 steps, of which 0 are left, not 1"):
        noisy_moments(records, "statistics", lambda _: rows, SHARE)


def test_noise_for_another_sensitivity_is_not_taken_for_ours():
    records = Records(make_points([[1.0]], [[1.0]]), [replace(GAUSSIAN, sensitivity=10.0)])
    with pytest.raises(CoreshotError, match=r"declares a sensitivity of 10\.0, not 1"):
        noisy_moments(records, "statistics", lambda _: (np.ones((1, 2)), np.ones((1, 1))), SHARE)


def users_of(name):
    """Modules of ours in which this attribute is read."""
    folder = Path(coreshot.__file__).parent
    trees = {path.relative_to(folder).as_posix(): ast.parse(path.read_text()) for path in folder.rglob("*.py")}
    return {
        path
        for path, tree in trees.items()
        if any(isinstance(node, ast.Attribute) and node.attr == name for node in ast.walk(tree))
    }


def test_only_mechanisms_get_at_records_without_a_declared_exact_release():
    assert users_of("for_mechanism") == {"privacy/gaussian_moments.py", "dp_sgd.py"}
    assert users_of("_points") == {"privacy/records.py"}
