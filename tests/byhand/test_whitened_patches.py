"""Whitened patches: white on the public images, blind to brightness, and their public images are what they say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.errors import CoreshotError
from coreshot.spectral.features import feature_map
from coreshot.spectral.public_images import PUBLIC_IMAGES, draw_public_images
from coreshot.spectral.whitened_patches import SMOOTHING, WhitenedPatches, normal_patches, zca

KEY, SHAPE = jax.random.key(0), (12, 12, 3)
FEATURES = WhitenedPatches(dimension=16, size=4)


@pytest.fixture(scope="module")
def textures():
    return np.asarray(draw_public_images("textures", KEY, 40, SHAPE))


def test_the_patches_of_the_public_images_become_white(textures):
    rows = normal_patches(jax.random.key(1), textures, 4)
    assert np.max(np.abs(rows.mean(axis=1))) < 1e-9
    values = np.linalg.eigvalsh(np.cov((rows @ zca(rows)).T))
    before = np.linalg.eigvalsh(np.cov(rows.T))
    np.testing.assert_allclose(values, np.sort(before / (before + SMOOTHING)), atol=1e-6)
    assert before[-1] > 20 * np.median(before), "negative control: they were far from white"


def test_a_filter_by_hand(textures):
    """One image as large as a patch: one place, so a cell is the answer itself."""
    features = WhitenedPatches(dimension=4, size=4, grid=1, threshold=0.1)
    drawn = features.draw(KEY, (4, 4, 3))
    patch = textures[:1, 2:6, 3:7]
    answer = np.tensordot(patch[0], np.asarray(drawn["kernel"]), 3) / np.sqrt(patch.var() + 10 / 255**2)
    cells = np.concatenate([np.maximum(answer - 0.1, 0), np.maximum(-answer - 0.1, 0)])
    expected = (cells - np.asarray(drawn["center"])) / float(drawn["spread"])
    found = np.asarray(features.apply(drawn, jnp.asarray(patch)))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_brightness_does_not_count_and_shape_does(textures):
    apply = feature_map(FEATURES, KEY, SHAPE)
    x = 0.5 + 0.3 * (textures[:8] - 0.5)
    np.testing.assert_allclose(apply(x + 0.1), apply(x), atol=0.02)
    assert np.max(np.abs(apply(x[:, ::-1]) - apply(x))) > 0.2, "negative control: images upside down"


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", sorted(PUBLIC_IMAGES))
def test_public_images_have_their_shape_and_follow_from_the_key(name, channels):
    shape = (9, 7, channels)
    found = np.asarray(draw_public_images(name, KEY, 8, shape))
    assert found.shape == (8, *shape)
    assert np.all(np.isfinite(found))
    assert found.std() > 0.05
    np.testing.assert_array_equal(found, np.asarray(draw_public_images(name, KEY, 8, shape)))
    assert not np.array_equal(found, np.asarray(draw_public_images(name, jax.random.key(1), 8, shape)))


@pytest.mark.parametrize(
    ("settings", "shape", "sentence"),
    [
        ({"dimension": 12}, SHAPE, "no multiple of 8"),
        ({"dimension": 16, "size": 12}, SHAPE, "leave 1 lines"),
        ({"dimension": 16}, (5,), "wants images"),
    ],
)
def test_what_does_not_fit_is_one_sentence(settings, shape, sentence):
    with pytest.raises(CoreshotError, match=sentence):
        WhitenedPatches(**settings).check(shape)
