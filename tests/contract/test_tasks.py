"""Every task of the registry keeps its contract, and the two synthetic ones are the data that the paper describes."""

import re

import jax
import numpy as np
import pytest

from coreshot.config import decode_named
from coreshot.data import TASKS
from coreshot.data.convert import add_data_set
from coreshot.data.digits import Digits
from coreshot.data.handwriting.tasks import Emnist62
from coreshot.data.synthetic import BETWEEN, INTERVALS, true_function
from coreshot.errors import CoreshotError

SETTINGS = {
    "regression": {"num_clients": 5, "points_per_client": 40, "noise_scale": 0.3, "num_test": 4000},
    "moons": {"num_clients": 5, "points_per_client": 30, "noise_scale": 0.14, "num_test": 500},
    "digits": {"num_clients": 5, "alpha": 0.5},
    "emnist62": {"num_clients": 5, "train_fraction": 0.8, "num_test": 20},
    "unipen62": {"num_clients": 5, "train_fraction": 0.8, "num_test": 20},
    "federated": {"data": "colour", "num_clients": 5, "train_fraction": 0.8, "num_test": 20},
}
DEALT = {"digits"}  # one set is dealt out to all clients, so what one gets depends on how many there are


@pytest.fixture(scope="module", autouse=True)
def store_home(tmp_path_factory, draw_handwriting):
    """A store with a small set for each stored task: seven clients, and 30 test images that none of them holds."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORESHOT_DATA", str(folder / "home"))
        for seed, name in enumerate(("emnist62", "unipen62")):
            images, labels = draw_handwriting(seed, 100)
            clients = np.append(np.arange(70) % 7, np.full(30, 65535)).astype(np.uint16)
            np.savez(folder / f"{name}.npz", images=images, labels=labels, clients=clients)
            add_data_set(name, folder / f"{name}.npz")
        draws = np.random.default_rng(2)
        images, labels = draws.integers(0, 256, (100, 6, 5, 3), np.uint8), np.array(["car", "cat", "dog"])[clients % 3]
        np.savez(folder / "colour.npz", images=images, labels=labels, clients=clients)
        add_data_set("colour", folder / "colour.npz")
        yield folder


@pytest.mark.parametrize("registered", sorted(TASKS))
def test_every_task_is_tested(registered):
    assert registered in SETTINGS, f"add a tiny example of {registered!r} to SETTINGS in {__file__}"
    assert SETTINGS.keys() == TASKS.keys()


@pytest.fixture(scope="module", params=SETTINGS)
def name(request):
    return request.param


def make_task(name, **changes):
    return decode_named(TASKS, {"name": name, **SETTINGS[name], **changes}, "test", "task")


def make(name, seed=0, **changes):
    return make_task(name, **changes).make(seed)


def test_shapes_and_finite_values(name):
    task, data = make_task(name), make(name)
    assert data.kind == task.kind
    assert len(data.clients) == 5
    assert all(re.fullmatch("[A-Za-z0-9_-][A-Za-z0-9._-]*", client) for client in data.clients)  # names of files
    for points in (*data.clients.values(), data.test):
        assert points.x.shape == (points.num_points, *task.input_shape)
        assert points.y.shape == (points.num_points, task.num_outputs)
        assert points.num_points > 0
        assert np.all(np.asarray(points.weight) == 1)
        assert all(
            np.all(np.isfinite(np.asarray(leaf))) and leaf.dtype == np.float32 for leaf in jax.tree.leaves(points)
        )


@pytest.mark.parametrize("name", ["regression", "moons"])
def test_synthetic_sizes_are_as_stated(name):
    data = make(name)
    assert list(data.clients) == [f"client-{index}" for index in range(5)]
    assert {points.num_points for points in data.clients.values()} == {SETTINGS[name]["points_per_client"]}
    assert data.test.num_points == SETTINGS[name]["num_test"]


def parts(data):
    return data.clients, data.test


def test_same_seed_same_data_and_another_seed_other_data(name, same):
    assert same(parts(make(name)), parts(make(name)))
    assert not same(make(name).clients["client-0"], make(name, seed=1).clients["client-0"])
    assert not same(make(name).test, make(name, seed=1).test)


@pytest.mark.parametrize("name", sorted(SETTINGS.keys() - DEALT))
def test_a_client_does_not_depend_on_how_many_there_are(name, same):
    few, many = make(name, num_clients=2), make(name)
    assert same(few.clients, {client: many.clients[client] for client in few.clients})
    assert same(few.test, many.test)


def rows(points):
    """Inputs with their targets: among 4,000 float32 inputs alone two may meet by chance."""
    return {
        row.tobytes()
        for row in np.concatenate([np.asarray(points.x).reshape(points.num_points, -1), np.asarray(points.y)], axis=1)
    }


def test_no_point_is_shared(name):
    data = make(name)
    groups = [rows(points) for points in (*data.clients.values(), data.test)]
    total = sum(points.num_points for points in (*data.clients.values(), data.test))
    assert sum(map(len, groups)) == len(set().union(*groups)) == total


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
    """Chi-square of the table of counts: 8 degrees of freedom, so 40 is beyond chance; equal shares stay below it."""

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
    # By hand: sin(0) = 0 and cos(0) = 1; at 1/2, sin(0.2 pi) = 0.587785 and cos(pi) = -1; the sine is odd.
    np.testing.assert_allclose(
        true_function(np.array([0.0, 0.5, -0.5])), [1.5, 1.5 * 0.5877853 - 1.5, -1.5 * 0.5877853 - 1.5], atol=1e-6
    )


def test_regression_without_noise_is_the_function():
    data = make("regression", noise_scale=0.0, num_test=10)
    np.testing.assert_array_equal(data.test.y, data.truth.y)


def distance_to_moons(points):
    """From each point to the half circle of its label."""
    angle = np.linspace(0, np.pi, 400)
    moons = [
        np.stack([np.cos(angle), np.sin(angle)], axis=1),
        np.stack([1 - np.cos(angle), 0.5 - np.sin(angle)], axis=1),
    ]
    x, label = np.asarray(points.x, np.float64), np.asarray(points.y).argmax(axis=1)
    return np.array([np.min(np.linalg.norm(moons[one] - row, axis=1)) for row, one in zip(x, label, strict=True)])


def test_moons_lie_on_their_half_circles():
    """The distance from a smooth curve is the normal part of the noise: its rms is noise_scale within 4 / sqrt(2 n)."""
    test = make("moons").test
    rms = np.sqrt(np.mean(distance_to_moons(test) ** 2))
    assert rms == pytest.approx(0.14, rel=4 / np.sqrt(2 * test.num_points))
    swapped = type(test)(test.x, 1 - test.y, test.weight)
    assert np.sqrt(np.mean(distance_to_moons(swapped) ** 2)) > 0.3  # with the labels swapped they do not


def test_moons_clients_differ_in_their_class_counts():
    counts = {float(points.y[:, 0].sum()) for points in make("moons").clients.values()}
    assert len(counts) > 1
    assert set(np.unique(make("moons").test.y)) == {0.0, 1.0}


def labels_of(points):
    return np.asarray(points.y).argmax(axis=1)


@pytest.mark.parametrize("name", ["emnist62", "unipen62", "digits"])
def test_images_are_shares_of_ink(name):
    for points in (*make(name).clients.values(), make(name).test):
        images = np.asarray(points.x)
        assert images.min() == 0
        assert 0.9 < images.max() <= 1
        np.testing.assert_array_equal(np.asarray(points.y).sum(axis=1), 1)


def test_digits_are_scikit_learns_and_every_image_is_dealt_once():
    from sklearn.datasets import load_digits

    data, bunch = make("digits"), load_digits()
    known = {
        (image / 16).astype(np.float32).tobytes(): label
        for image, label in zip(bunch.images, bunch.target, strict=True)
    }
    groups = (*data.clients.values(), data.test)
    assert sum(points.num_points for points in groups) == len(bunch.target) == 1797
    assert data.test.num_points == round(0.2 * 1797)
    for points in groups:
        assert [known[image.tobytes()] for image in np.asarray(points.x)] == labels_of(points).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_every_client_of_digits_can_learn(seed):
    data = make("digits", seed=seed, num_clients=10, alpha=0.1, min_partition_size=20)
    assert min(points.num_points for points in data.clients.values()) >= 20
    assert min(len(np.unique(labels_of(points))) for points in data.clients.values()) >= 2


def test_digits_that_cannot_be_dealt_out_are_refused():
    with pytest.raises(
        CoreshotError,
        match=r"in 1000 draws .* raise alpha \(now 0.001\), or lower min_partition_size or num_partitions",
    ):
        Digits(num_clients=40, alpha=0.001).make(0)


def test_a_client_trains_with_its_share_of_its_images():
    whole, part = make("emnist62", train_fraction=1.0), make("emnist62")
    assert [points.num_points for points in whole.clients.values()] == [10] * 5
    assert [points.num_points for points in part.clients.values()] == [8] * 5
    for client, points in part.clients.items():
        assert rows(points) < rows(whole.clients[client])
    tiny = make("emnist62", train_fraction=0.001)
    assert [points.num_points for points in tiny.clients.values()] == [1] * 5


def test_only_the_split_depends_on_the_seed():
    changes = {"train_fraction": 1.0, "num_test": None}
    assert [
        rows(points) for points in (*make("emnist62", **changes).clients.values(), make("emnist62", **changes).test)
    ] == [
        rows(points)
        for points in (*make("emnist62", seed=1, **changes).clients.values(), make("emnist62", seed=1, **changes).test)
    ]


def test_without_test_images_the_last_clients_test_and_never_train(store_home, draw_handwriting):
    images, labels = draw_handwriting(3, 60)
    np.savez(store_home / "writers.npz", images=images, labels=labels, writers=np.arange(60) % 6)
    add_data_set("writers", store_home / "writers.npz", preparation="handwriting")
    task = Emnist62(num_clients=4, train_fraction=1.0, source="writers", num_test_clients=2)
    data = task.make(0)
    assert list(data.clients) == [f"writer-{index}" for index in range(4)]
    np.testing.assert_array_equal(labels_of(data.test), np.concatenate([labels[4::6], labels[5::6]]))
    with pytest.raises(
        CoreshotError,
        match=r"num_clients = 5, but data set 'writers' has 6 clients, of which the last num_test_clients = 2 are kept",
    ):
        Emnist62(num_clients=5, train_fraction=1.0, source="writers", num_test_clients=2).make(0)


def test_extra_clients_come_after_the_others(store_home, draw_handwriting):
    images, labels = draw_handwriting(4, 40)
    split = np.repeat([2, 0, 1, 0], 10).astype(np.uint8)
    np.savez(store_home / "split.npz", images=images, labels=labels, writers=np.repeat(np.arange(4), 10), split=split)
    add_data_set("split", store_home / "split.npz", preparation="handwriting")
    data = Emnist62(num_clients=3, train_fraction=1.0, source="split").make(0)
    assert list(data.clients) == ["writer-1", "writer-3", "writer-0"]
    np.testing.assert_array_equal(labels_of(data.test), labels[20:30])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"num_clients": 8}, r"task emnist62: num_clients = 8, but data set 'emnist62' has 7 clients; lower it"),
        ({"num_test": 31}, r"task emnist62: num_test = 31, but there are 30 test records; lower it"),
        ({"train_fraction": 1.5}, r"test: train_fraction = 1.5: should be less than or equal to 1; change it"),
    ],
)
def test_more_than_there_is_is_refused(changes, complaint):
    with pytest.raises(CoreshotError, match=complaint):
        make("emnist62", **changes)


@pytest.mark.parametrize(("name", "what"), [("emnist62", "flwrlabs/femnist"), ("unipen62", "UNIPEN train_r01_v07")])
def test_a_machine_without_the_data_is_told_what_to_get(name, what, tmp_path, monkeypatch):
    monkeypatch.setenv("CORESHOT_DATA", str(tmp_path / "none"))
    with pytest.raises(CoreshotError) as error:
        make(name)
    assert what in str(error.value)
    assert f"`coreshot data add {name} --from PATH --as handwriting`" in str(error.value)
    assert not (tmp_path / "none").exists()
