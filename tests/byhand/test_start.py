"""Where points of a class may start: between two of its examples, never on one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.learners.starts import between_neighbours
from coreshot.types import Points, pad_points

# Class 0 on the line y = 0 at 0, 1 and 5; class 1 a single example at (9, 9).
X = jnp.asarray([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0], [9.0, 9.0]])
POINTS = Points(X, jax.nn.one_hot(jnp.asarray([0, 0, 0, 1]), 2), jnp.ones(4))
MIDPOINTS = {(0.5, 0.0), (3.0, 0.0)}  # 0 and 1 are each other's nearest; 5's nearest is 1


def start(key, labels, points=POINTS, scale=0.3):
    return np.asarray(between_neighbours(key, points, jax.nn.one_hot(jnp.asarray(labels), 2), scale))


@pytest.mark.parametrize("seed", range(5))
def test_places_are_half_way_between_neighbours_of_the_class(seed):
    places = {tuple(place) for place in start(jax.random.key(seed), [0, 0, 0]).tolist()}
    assert places == MIDPOINTS  # three draws, no example twice: each example once


def test_an_only_example_is_never_a_start():
    label = jax.nn.one_hot(jnp.asarray([1]), 2)
    draw = jax.vmap(lambda key: between_neighbours(key, POINTS, label, 0.3)[0])
    places = np.asarray(draw(jax.random.split(jax.random.key(0), 200)))
    assert np.min(np.linalg.norm(places - 9.0, axis=1)) > 0
    assert np.std(places, axis=0) == pytest.approx([0.3, 0.3], rel=0.2)  # 200 draws: 5 % of one deviation


def test_padding_changes_nothing():
    np.testing.assert_array_equal(
        start(jax.random.key(1), [0, 1, 0]), start(jax.random.key(1), [0, 1, 0], pad_points(POINTS, 9))
    )


def test_draws_differ_between_keys():
    assert not np.array_equal(start(jax.random.key(0), [0, 1]), start(jax.random.key(1), [0, 1]))
