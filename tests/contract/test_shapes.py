"""Shapes in signatures are checked while these tests run: a wrong one raises, a right one passes."""

import jax.numpy as jnp
import jaxtyping
import pytest

from coreshot.types import Points


def test_negative_control_a_wrong_shape_raises():
    points = Points(jnp.zeros((3, 2)), jnp.zeros((3, 1)), jnp.ones(3))
    assert points.reweighted(jnp.zeros(3)).num_points == 3
    with pytest.raises(jaxtyping.TypeCheckError, match="reweighted"):
        points.reweighted(jnp.zeros(3, jnp.int32))
