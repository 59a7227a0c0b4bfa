"""Shapes in signatures are checked while these tests run: a wrong one raises, a right one passes."""

from __future__ import annotations

import jax.numpy as jnp
import jaxtyping
import pytest
from jaxtyping import Array, Float

from coreshot.types import Points
from shape_checks import check_shapes, check_where_shaped


def test_negative_control_a_wrong_shape_raises():
    points = Points(jnp.zeros((3, 2)), jnp.zeros((3, 1)), jnp.ones(3))
    assert points.reweighted(jnp.zeros(3)).num_points == 3
    with pytest.raises(jaxtyping.TypeCheckError, match="reweighted"):
        points.reweighted(jnp.zeros(3, jnp.int32))


# What has passed is remembered, and nothing else passes with it.


def take(x: Float[Array, " n"], y: Float[Array, " n"], answers: list[Array]) -> Float[Array, " n"]:
    return answers.pop()


def fill(x: Float[Array, " n"], size: int) -> Float[Array, " {size}"]:
    return x


def test_negative_control_after_right_arguments_wrong_ones_raise():
    checked = check_where_shaped(take, typechecker=check_shapes)
    three, two = jnp.zeros(3), jnp.zeros(2)
    for _ in range(2):
        checked(three, y=three, answers=[three])
        checked(two, y=two, answers=[two])
    for wrong in ((three, two), (two, three), (three, 3.0), (three, jnp.zeros(3, jnp.int32))):
        with pytest.raises(jaxtyping.TypeCheckError, match="parameters"):
            checked(*wrong, answers=[three])


def test_negative_control_after_a_right_result_a_wrong_one_raises():
    checked = check_where_shaped(take, typechecker=check_shapes)
    three = jnp.zeros(3)
    for wrong in (jnp.zeros(2), jnp.zeros(3, jnp.int32), None, [three], (three,)):
        checked(three, three, [three])
        for _ in range(2):
            with pytest.raises(jaxtyping.TypeCheckError, match="return value"):
                checked(three, three, [wrong])


def test_negative_control_a_size_that_is_an_argument_is_looked_at_each_time():
    checked = check_where_shaped(fill, typechecker=check_shapes)
    for _ in range(2):
        checked(jnp.zeros(3), 3)
        with pytest.raises(jaxtyping.TypeCheckError, match="return value"):
            checked(jnp.zeros(3), 2)
