"""Patches and a matrix product are the convolution, and the plain maximum is the pooling: values and gradients."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.patches import max_pool, patch_convolution

DRAWS = np.random.default_rng(0)
INPUTS = jnp.asarray(DRAWS.normal(size=(2, 7, 6, 3)), jnp.float32)
KERNEL = jnp.asarray(DRAWS.normal(size=(3, 3, 3, 4)), jnp.float32)


def convolution(inputs, kernel, padding):
    return jax.lax.conv_general_dilated(inputs, kernel, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def with_gradients(function, *arguments):
    def total(*arguments):
        return jnp.sum(jnp.sin(function(*arguments)))

    return function(*arguments), *jax.grad(total, argnums=tuple(range(len(arguments))))(*arguments)


@pytest.mark.parametrize("padding", ["VALID", "SAME", ((1, 0), (2, 1))])
def test_patches_are_the_convolution(padding):
    ours = with_gradients(lambda inputs, kernel: patch_convolution(inputs, kernel, (1, 1), padding), INPUTS, KERNEL)
    theirs = with_gradients(lambda inputs, kernel: convolution(inputs, kernel, padding), INPUTS, KERNEL)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_negative_control_a_flipped_kernel_is_another_convolution():
    assert float(jnp.max(jnp.abs(patch_convolution(INPUTS, KERNEL[::-1], (1, 1), "VALID") - convolution(INPUTS, KERNEL, "VALID")))) > 0.1


def test_pooling_is_flax_pooling():
    for one, other in zip(with_gradients(max_pool, INPUTS), with_gradients(lambda x: nn.max_pool(x, (2, 2), strides=(2, 2)), INPUTS), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_what_is_not_built_is_refused():
    with pytest.raises(ValueError, match="only 1 is built"):
        patch_convolution(INPUTS, KERNEL, (2, 2), "VALID")
