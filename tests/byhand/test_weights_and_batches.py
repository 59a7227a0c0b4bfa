"""Server weights, batches, first labels and class means on numbers small enough to do on paper."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.learners import ClassMean, Noise, RandomSubset
from coreshot.learners.starts import first_labels, label_cycle, weighted_mean
from coreshot.methods.one_shot import point_weights, pool_coresets
from coreshot.models.augmentation import shift_points
from coreshot.models.training import draw_batch
from coreshot.privacy.guarded_records import Records
from coreshot.types import Coreset, Points, make_points, pad_points

# Three clients with 10, 20 and 30 records send 5, 4 and 10 points: N = 60, mean n = 20.
BY_HAND = {
    "mass": [2.0, 5.0, 3.0],
    "paper": [1 / 6, 1 / 3, 1 / 2],
    "size": [0.5, 1.0, 1.5],
    "none": [1.0, 1.0, 1.0],
}


def init(learner, keys, model, points):
    return learner.init(keys, model, Records(points, learner.releases(model)), jax.random.key(0))


@pytest.mark.parametrize("weighting", BY_HAND)
def test_point_weights(weighting):
    found = point_weights(weighting, jnp.array([10.0, 20.0, 30.0]), jnp.array([5.0, 4.0, 10.0]))
    np.testing.assert_allclose(found, BY_HAND[weighting], rtol=1e-6)


def coreset(num_points, num_examples, value, weight=1.0):
    return Coreset(
        Points(jnp.full((num_points, 2), value), jnp.ones((num_points, 1)), jnp.full(num_points, weight)),
        jnp.asarray(num_examples),
    )


@pytest.mark.parametrize(
    ("weighting", "total"),
    [("mass", 30.0), ("paper", 2 * 1 / 3 + 4 * 2 / 3), ("size", 2 * 10 / 15 + 4 * 20 / 15), ("none", 6.0)],
)
def test_pooled_weights_and_their_order(weighting, total):
    """Clients with 10 and 20 records send 2 and 4 points. Sorted by name, whatever the order of arrival."""
    pooled = pool_coresets({"z": coreset(4, 20.0, 1.0), "a": coreset(2, 10.0, 0.0)}, weighting)
    assert pooled.x[:, 0].tolist() == [0, 0, 1, 1, 1, 1]
    assert float(pooled.weight.sum()) == pytest.approx(total, rel=1e-6)


def test_a_coresets_own_weights_share_out_what_its_client_gets():
    one = coreset(2, 10.0, 0.0)
    uneven = Coreset(one.points.reweighted(jnp.array([0.5, 1.5])), one.num_examples)
    assert pool_coresets({"a": uneven}, "mass").weight.tolist() == [2.5, 7.5]


def column(values):
    values = np.asarray(values, np.float32)
    return make_points(values[:, None], values[:, None])


@pytest.mark.parametrize("padded_to", [3, 10])
@pytest.mark.parametrize("batch_size", [3, 5])
def test_a_small_client_is_its_own_batch(batch_size, padded_to):
    """Three records and room for as many or more: all of them, each counting once, and nothing for the padding."""
    batch = draw_batch(jax.random.key(0), pad_points(column([1, 2, 3]), padded_to), batch_size)
    real = np.asarray(batch.weight) > 0
    assert np.asarray(batch.x)[real, 0].tolist() == [1, 2, 3]
    assert batch.weight[real].tolist() == [1, 1, 1]
    assert batch.num_points == min(batch_size, padded_to)


@pytest.fixture(scope="module")
def batches():
    """2,000 batches of 4 from 10 records, and from the same 10 padded to 25."""
    keys = jax.random.split(jax.random.key(0), 2000)
    draw = jax.jit(jax.vmap(lambda key, points: draw_batch(key, points, 4), in_axes=(0, None)))
    points = column(range(1, 11))
    return draw(keys, points), draw(keys, pad_points(points, 25))


def test_a_batch_stands_for_all_records(batches):
    plain, _ = batches
    assert plain.x.shape == (2000, 4, 1)
    np.testing.assert_allclose(plain.weight, 2.5)  # 10 records by 4 points


def test_padding_is_never_drawn_and_changes_no_batch(batches, same):
    plain, padded = batches
    assert np.asarray(padded.x).min() == 1
    assert same(plain, padded)


def test_each_record_is_drawn_equally_often(batches):
    """8,000 draws of 10 records: 800 each, with a standard deviation of sqrt(8000 * 0.1 * 0.9) = 27; the worst of
    ten within 4 of those.
    """
    counts = np.bincount(np.asarray(batches[0].x, int).ravel(), minlength=11)[1:]
    assert np.max(np.abs(counts - 800)) < 4 * 27


def test_labels_cycle_by_descending_count():
    """Class 2 three times, class 0 twice, class 1 never, class 3 once: 2, 0, 3 and again."""
    points = make_points(np.zeros((6, 1)), np.eye(4)[[2, 0, 2, 3, 2, 0]])
    assert label_cycle(points, 7).tolist() == [2, 0, 3, 2, 0, 3, 2]
    assert label_cycle(pad_points(points, 9), 7).tolist() == [2, 0, 3, 2, 0, 3, 2]


def test_equal_counts_cycle_in_the_order_of_the_classes():
    assert label_cycle(make_points(np.zeros((4, 1)), np.eye(3)[[2, 1, 2, 1]]), 3).tolist() == [1, 2, 1]


def test_first_labels_of_a_regression_are_its_mean_target(make_model):
    points = make_points(np.zeros((3, 2)), [[1.0], [2.0], [6.0]])
    assert first_labels(make_model("regression"), pad_points(points, 5), 2).tolist() == [[3.0], [3.0]]


def test_first_labels_of_classes_are_one_hot(make_model):
    points = make_points(np.zeros((3, 2)), np.eye(2)[[1, 1, 0]])
    assert first_labels(make_model("classification"), points, 3).tolist() == [[0, 1], [1, 0], [0, 1]]


def test_weighted_mean():
    assert weighted_mean(jnp.array([[1.0, 0.0], [4.0, 3.0], [9.0, 9.0]]), jnp.array([2.0, 1.0, 0.0])).tolist() == [
        2.0,
        1.0,
    ]


def group(points):
    return jax.tree.map(lambda array: array[None], points), jax.random.split(jax.random.key(0), 1)


def test_class_mean_of_two_classes(make_model):
    """Class 1 has (0,0), (2,4), (4,2): mean (2,2); class 0 has (1,1), (3,5): mean (2,3). The larger class comes
    first.
    """
    points, keys = group(make_points([[0, 0], [1, 1], [2, 4], [3, 5], [4, 2]], np.eye(2)[[1, 0, 1, 0, 1]]))
    coreset = init(ClassMean(num_points=2), keys, make_model("classification"), points)
    np.testing.assert_allclose(coreset.points.x[0], [[2, 2], [2, 3]], rtol=1e-6)
    np.testing.assert_allclose(coreset.points.y[0], [[0, 1], [1, 0]])
    assert coreset.num_examples.tolist() == [5]


def test_class_mean_with_several_points_a_class_splits_it(make_model):
    """Four points, two a class: the two groups of a class of 2 are its two records; those of the class of 3 have
    2 and 1.
    """
    points, keys = group(make_points([[0, 0], [1, 1], [3, 0], [3, 5], [9, 0]], np.eye(2)[[1, 0, 1, 0, 1]]))
    x = np.asarray(init(ClassMean(num_points=4), keys, make_model("classification"), points).points.x[0])
    assert sorted(map(tuple, x[[1, 3]].tolist())) == [(1, 1), (3, 5)]
    pair, single = x[0, 0], x[2, 0]  # the first group is the larger
    assert {single} < {0.0, 3.0, 9.0}
    assert 2 * pair + single == pytest.approx(12)


def test_class_mean_with_more_points_than_records_repeats_the_class(make_model):
    points, keys = group(make_points([[0, 0], [1, 1], [2, 2]], np.eye(2)[[1, 1, 0]]))
    x = np.asarray(init(ClassMean(num_points=4), keys, make_model("classification"), points).points.x[0])
    assert x[[1, 3]].tolist() == [[2, 2], [2, 2]]


def test_class_mean_of_a_regression_is_the_mean_of_all(make_model):
    points, keys = group(make_points([[0, 0], [2, 4]], [[1.0], [5.0]]))
    coreset = init(ClassMean(num_points=1), keys, make_model("regression"), points)
    assert coreset.points.x[0].tolist() == [[1, 2]]
    assert coreset.points.y[0].tolist() == [[3]]


def test_random_subset_takes_different_records_and_no_padding(make_model):
    points, keys = group(pad_points(make_points([[1, 1], [2, 2], [3, 3], [4, 4]], [[1.0], [2.0], [3.0], [4.0]]), 12))
    coreset = init(RandomSubset(num_points=4), keys, make_model("regression"), points)
    assert sorted(coreset.points.x[0, :, 0].tolist()) == [1, 2, 3, 4]
    np.testing.assert_array_equal(coreset.points.x[0, :, :1], coreset.points.y[0])  # records stay whole


def test_noise_is_around_the_mean_with_the_stated_scale(make_model):
    """4,000 points around (1, 2) with deviation 0.5: mean within 4 * 0.5 / sqrt(4000), deviation within 4 * 0.5 /
    sqrt(8000).
    """
    points, keys = group(pad_points(make_points([[0, 0], [2, 4]], [[1.0], [5.0]]), 6))
    x = np.asarray(
        init(Noise(num_points=4000, init_scale=0.5), keys, make_model("regression"), points).points.x[0], np.float64
    )
    assert np.max(np.abs(x.mean(axis=0) - [1, 2])) < 4 * 0.5 / np.sqrt(4000)
    assert np.max(np.abs(x.std(axis=0) - 0.5)) < 4 * 0.5 / np.sqrt(8000)
    assert np.max(np.abs(x.mean(axis=0) - [1 / 3, 2 / 3])) > 4 * 0.5 / np.sqrt(
        4000
    )  # where padding would have pulled it


def test_images_are_shifted_each_by_its_own(sample_points):
    images = np.arange(2 * 6 * 6, dtype=np.float32).reshape(2, 6, 6, 1)
    points = make_points(np.repeat(images[:1], 40, axis=0), np.zeros((40, 2)))
    moved = np.asarray(shift_points(jax.random.key(0), points, 1).x)
    candidates = [np.roll(images[0], (line, column), axis=(0, 1)) for line in (-1, 0, 1) for column in (-1, 0, 1)]
    found = [next(index for index, one in enumerate(candidates) if np.array_equal(one, image)) for image in moved]
    assert len(set(found)) > 5
    assert shift_points(jax.random.key(0), points, 0) is points
