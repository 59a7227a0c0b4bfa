"""Patches and a matrix product are the convolution, and the plain maximum is the pooling: values and gradients."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.models import cpu_convolution as patches
from coreshot.models.cpu_convolution import WHOLE_BATCH, images_at_once, max_pool, patch_convolution, winograd

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


@pytest.mark.parametrize("num_images", [1, 5])
def test_large_images_go_one_after_the_other_and_give_the_same(num_images):
    """26 x 26 x 32, as the paper's second layer: the patches of one image are 166,000 floats, so each is a part of its
    own.
    """
    assert images_at_once(24 * 24 * 9 * 32) == 1 < WHOLE_BATCH
    inputs = jnp.asarray(DRAWS.normal(size=(num_images, 26, 26, 32)), jnp.float32)
    kernel = jnp.asarray(DRAWS.normal(size=(3, 3, 32, 4)), jnp.float32) / 17  # so that outputs are of size one
    ours = with_gradients(lambda inputs, kernel: patch_convolution(inputs, kernel, (1, 1), "VALID"), inputs, kernel)
    theirs = with_gradients(lambda inputs, kernel: convolution(inputs, kernel, "VALID"), inputs, kernel)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * float(jnp.max(jnp.abs(other))))


def test_a_part_that_does_not_come_out_even_is_padded_and_cut(monkeypatch):
    monkeypatch.setattr(patches, "CACHE_FLOATS", 2 * 5 * 4 * 27)  # two of the small images at a time
    inputs = jnp.concatenate([INPUTS, INPUTS[:1] + 1])
    np.testing.assert_allclose(
        patch_convolution(inputs, KERNEL, (1, 1), "VALID"), convolution(inputs, KERNEL, "VALID"), atol=2e-5
    )


def test_second_derivatives_are_those_of_the_convolution(monkeypatch):
    """DOSFL differentiates through training steps."""
    monkeypatch.setattr(patches, "CACHE_FLOATS", 1)

    def curvature(function):
        slope = jax.grad(lambda kernel, inputs: jnp.sum(jnp.sin(function(inputs, kernel))))
        return jax.grad(lambda inputs: jnp.sum(slope(KERNEL, inputs) ** 2))(INPUTS)

    ours = curvature(lambda inputs, kernel: patch_convolution(inputs, kernel, (1, 1), "VALID"))
    np.testing.assert_allclose(
        ours, curvature(lambda inputs, kernel: convolution(inputs, kernel, "VALID")), rtol=1e-3, atol=1e-3
    )


def test_negative_control_a_flipped_kernel_is_another_convolution():
    assert (
        float(
            jnp.max(
                jnp.abs(patch_convolution(INPUTS, KERNEL[::-1], (1, 1), "VALID") - convolution(INPUTS, KERNEL, "VALID"))
            )
        )
        > 0.1
    )


def test_pooling_is_flax_pooling():
    for one, other in zip(
        with_gradients(max_pool, INPUTS),
        with_gradients(lambda x: nn.max_pool(x, (2, 2), strides=(2, 2)), INPUTS),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_what_is_not_built_is_refused():
    with pytest.raises(ValueError, match="only 1 is built"):
        patch_convolution(INPUTS, KERNEL, (1, 1), "VALID", rhs_dilation=(2, 2))


@pytest.mark.parametrize("strides", [(2, 2), (3, 1)])
def test_strides_give_the_convolution_with_strides(strides):
    def theirs(inputs, kernel):
        return jax.lax.conv_general_dilated(
            inputs, kernel, strides, "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    ours = with_gradients(lambda inputs, kernel: patch_convolution(inputs, kernel, strides, "VALID"), INPUTS, KERNEL)
    for one, other in zip(ours, with_gradients(theirs, INPUTS, KERNEL), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(2, 26, 26, 32), (1, 27, 24, 33), (1, 14, 31, 70)])
def test_large_three_by_three_kernels_in_float32_go_by_winograd_and_give_the_convolution(shape, monkeypatch):
    called = []
    monkeypatch.setattr(patches, "winograd", lambda *arguments: called.append(1) or winograd(*arguments))
    inputs = jnp.asarray(DRAWS.normal(size=shape), jnp.float32)
    kernel = jnp.asarray(DRAWS.normal(size=(3, 3, shape[-1], 5)), jnp.float32) / np.sqrt(9 * shape[-1])
    ours = with_gradients(lambda inputs, kernel: patch_convolution(inputs, kernel, (1, 1), "VALID"), inputs, kernel)
    theirs = with_gradients(lambda inputs, kernel: convolution(inputs, kernel, "VALID"), inputs, kernel)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * float(jnp.max(jnp.abs(other))))
    assert called


def test_other_kernels_and_half_precision_do_not_go_by_winograd(monkeypatch):
    monkeypatch.setattr(patches, "winograd", None)  # whoever called it would fail
    inputs = jnp.asarray(DRAWS.normal(size=(1, 26, 26, 32)), jnp.float32)
    assert patch_convolution(inputs, jnp.ones((5, 5, 32, 2)), (1, 1), "VALID").shape == (1, 22, 22, 2)
    assert patch_convolution(
        inputs.astype(jnp.bfloat16), jnp.ones((3, 3, 32, 2), jnp.bfloat16), (1, 1), "VALID"
    ).shape == (1, 24, 24, 2)


def test_relu_and_pooling_commute_in_values_and_gradients():
    ours = with_gradients(lambda x: nn.relu(max_pool(x)), INPUTS)
    theirs = with_gradients(lambda x: max_pool(nn.relu(x)), INPUTS)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
