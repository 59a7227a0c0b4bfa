"""Every task of the registry keeps its contract, and the two synthetic ones are the data that the paper describes."""

import jax
import numpy as np
import pytest

from coreshot.config import decode_named
from coreshot.data import TASKS
from coreshot.data.synthetic import BETWEEN, INTERVALS, true_function

SETTINGS = {
    "regression": {"num_clients": 5, "points_per_client": 40, "noise_scale": 0.3, "num_test": 4000},
    "moons": {"num_clients": 5, "points_per_client": 30, "noise_scale": 0.14, "num_test": 500},
}


def test_every_task_is_tested():
    assert SETTINGS.keys() == TASKS.keys()


@pytest.fixture(scope="module", params=SETTINGS)
def name(request):
    return request.param


def make(name, seed=0, **changes):
    return decode_named(TASKS, {"name": name, **SETTINGS[name], **changes}, "test", "task").make(seed)


def test_shapes_and_finite_values(name):
    task, data = TASKS[name], make(name)
    assert data.kind == task.kind
    assert list(data.clients) == [f"client-{index}" for index in range(5)]
    for points, size in [
        *((points, SETTINGS[name]["points_per_client"]) for points in data.clients.values()),
        (data.test, SETTINGS[name]["num_test"]),
    ]:
        assert points.x.shape == (size, *task.input_shape)
        assert points.y.shape == (size, task.num_outputs)
        assert np.all(points.weight == 1)
        assert all(np.all(np.isfinite(leaf)) and leaf.dtype == np.float32 for leaf in jax.tree.leaves(points))


def parts(data):
    return data.clients, data.test


def test_same_seed_same_data_and_another_seed_other_data(name, same):
    assert same(parts(make(name)), parts(make(name)))
    assert not same(make(name).clients["client-0"], make(name, seed=1).clients["client-0"])
    assert not same(make(name).test, make(name, seed=1).test)


def test_a_client_does_not_depend_on_how_many_there_are(name, same):
    few, many = make(name, num_clients=2), make(name)
    assert same(few.clients, {client: many.clients[client] for client in few.clients})
    assert same(few.test, many.test)


def rows(points):
    """Inputs with their targets: among 4,000 float32 inputs alone two may meet by chance."""
    return {row.tobytes() for row in np.concatenate([points.x, points.y], axis=1)}


def test_no_point_is_shared(name):
    data = make(name)
    groups = [rows(points) for points in (*data.clients.values(), data.test)]
    assert sum(map(len, groups)) == len(set().union(*groups)) == 5 * SETTINGS[name]["points_per_client"] + SETTINGS[name]["num_test"]


def interval_counts(points):
    x = np.asarray(points.x, np.float64)
    slack = 1e-6  # of float32
    return np.array([np.sum((x >= low - slack) & (x <= high + slack)) for low, high in INTERVALS])


def test_regression_points_lie_on_the_three_intervals():
    data = make("regression")
    for points in (*data.clients.values(), data.test):
        assert interval_counts(points).sum() == points.num_points
    assert all(np.all((between < INTERVALS[:, 0]) | (between > INTERVALS[:, 1])) for between in BETWEEN)


def test_regression_clients_are_not_identically_distributed():
    """Chi-square of the table of counts: 8 degrees of freedom, so 40 is beyond chance; clients with equal shares stay below it."""

    def chi_square(counts):
        expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
        return np.sum((counts - expected) ** 2 / expected)

    assert chi_square(np.stack([interval_counts(points) for points in make("regression").clients.values()])) > 40
    test = np.asarray(make("regression").test.x[:200]).reshape(5, 40, 1)  # cut into five: the same shares for all
    same_shares = np.stack([[np.sum((part > low) & (part < high)) for low, high in INTERVALS] for part in test])
    assert chi_square(same_shares) < 40


def test_regression_noise_is_of_the_stated_deviation():
    """4,000 test points: the standard error of a deviation of 0.3 is 0.3 / sqrt(8000) = 0.0034."""
    data = make("regression")
    noise = np.asarray(data.test.y - data.truth.y, np.float64)
    error = 0.3 / np.sqrt(2 * len(noise))
    assert abs(noise.std() - 0.3) < 4 * error
    assert abs(noise.mean()) < 4 * 0.3 / np.sqrt(len(noise))
    assert abs(noise.std() - np.sqrt(0.3)) > 4 * error  # 0.3 is the deviation, not the variance
    np.testing.assert_array_equal(data.test.x, data.truth.x)


def test_regression_truth_is_the_papers_function():
    data = make("regression", num_test=10)
    np.testing.assert_allclose(data.truth.y, true_function(np.asarray(data.truth.x, np.float64)), atol=1e-5)
    # By hand: sin(0) = 0 and cos(0) = 1; at 1/2, sin(0.2 pi) = 0.587785 and cos(pi) = -1; the slope of the sine has the sign of x.
    np.testing.assert_allclose(true_function(np.array([0.0, 0.5, -0.5])), [1.5, 1.5 * 0.5877853 - 1.5, -1.5 * 0.5877853 - 1.5], atol=1e-6)


def test_regression_without_noise_is_the_function():
    data = make("regression", noise_scale=0.0, num_test=10)
    np.testing.assert_array_equal(data.test.y, data.truth.y)


def distance_to_moons(points):
    """From each point to the half circle of its label."""
    angle = np.linspace(0, np.pi, 400)
    moons = [np.stack([np.cos(angle), np.sin(angle)], axis=1), np.stack([1 - np.cos(angle), 0.5 - np.sin(angle)], axis=1)]
    x, label = np.asarray(points.x, np.float64), np.asarray(points.y).argmax(axis=1)
    return np.array([np.min(np.linalg.norm(moons[one] - row, axis=1)) for row, one in zip(x, label, strict=True)])


def test_moons_lie_on_their_half_circles():
    """The distance from a smooth curve is the normal part of the noise: its root mean square is noise_scale, to within 4 / sqrt(2 n)."""
    test = make("moons").test
    rms = np.sqrt(np.mean(distance_to_moons(test) ** 2))
    assert rms == pytest.approx(0.14, rel=4 / np.sqrt(2 * test.num_points))
    swapped = type(test)(test.x, 1 - test.y, test.weight)
    assert np.sqrt(np.mean(distance_to_moons(swapped) ** 2)) > 0.3  # with the labels swapped they do not


def test_moons_clients_differ_in_their_class_counts():
    counts = {float(points.y[:, 0].sum()) for points in make("moons").clients.values()}
    assert len(counts) > 1
    assert set(np.unique(make("moons").test.y)) == {0.0, 1.0}
