"""Feature maps: the same for everyone who has the study, independent of data, and what they refuse."""

import jax
import numpy as np
import pytest

from coreshot.errors import CoreshotError
from coreshot.models import Model
from coreshot.models.networks import ConvNet, Mlp
from coreshot.spectral.features import Identity, RandomConv, RandomVector, feature_map
from coreshot.spectral.frozen_network import FOLDER, Frozen, save_network
from coreshot.spectral.pooling import cell_averages
from coreshot.spectral.public_images import draw_strokes

IMAGES = np.random.default_rng(0).uniform(size=(70, 8, 8, 1)).astype(np.float32)
CONV = RandomConv(dimension=20, num_filters=6, size=3, grid=3)


def test_the_key_decides_and_nothing_else():
    one, again, other = (feature_map(CONV, jax.random.key(seed), (8, 8, 1))(IMAGES) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)


def test_an_input_has_the_same_features_in_any_company():
    drawn = feature_map(CONV, jax.random.key(1), (8, 8, 1))
    np.testing.assert_allclose(drawn(IMAGES[:3]), drawn(IMAGES)[:3], rtol=1e-5, atol=1e-6)
    assert drawn(IMAGES[:0]).shape == (0, 21)


def test_the_last_column_is_the_constant_one():
    assert np.all(feature_map(CONV, jax.random.key(1), (8, 8, 1))(IMAGES)[:, -1] == 1)


def test_contrast_does_not_matter():
    """Patches are divided by their deviation: far above the floor, twice the contrast is the same features; near
    it, it is not.
    """
    drawn = feature_map(CONV, jax.random.key(1), (8, 8, 1))
    strong, twice, faint = (drawn(scale * IMAGES)[:, :-1] for scale in (20.0, 40.0, 0.1))
    assert np.linalg.norm(strong - twice) < 0.01 * np.linalg.norm(strong)
    assert np.linalg.norm(strong - faint) > 0.2 * np.linalg.norm(strong)


def test_cells_average_all_lines():
    shares = cell_averages(7, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(shares[0] * 7 / 3, [1, 1, 1 / 3, 0, 0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(shares.sum(axis=0) * 7 / 3, 1, rtol=1e-6)


def test_cosines_have_the_gaussian_kernel():
    drawn = feature_map(RandomVector(dimension=20_000, frequency=0.7), jax.random.key(0), (2,))
    x = np.asarray([[0.0, 0.0], [1.0, 0.5]], np.float32)
    features = drawn(x)[:, :-1]
    assert features[0] @ features[1] / 20_000 == pytest.approx(np.exp(-0.5 * 0.7**2 * 1.25), abs=0.03)


def test_rectifiers_have_the_arc_cosine_kernel():
    """Cho and Saul's of degree 1, of (x, 1): |x||y| (sin t + (pi - t) cos t) / pi."""
    drawn = feature_map(RandomVector(dimension=40_000, nonlinearity="relu"), jax.random.key(0), (1,))
    features = drawn(np.asarray([[2.0], [-0.5]], np.float32))[:, :-1]
    one, other = np.asarray([2.0, 1.0]), np.asarray([-0.5, 1.0])
    norms = np.linalg.norm(one) * np.linalg.norm(other)
    angle = np.arccos(one @ other / norms)
    wanted = norms * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / np.pi
    assert features[0] @ features[1] / 40_000 == pytest.approx(wanted, rel=0.05)


def test_strokes_are_drawn_from_the_key_alone():
    one = draw_strokes(jax.random.key(0), 5, (28, 28, 1))
    assert one.shape == (5, 28, 28, 1)
    assert 0.02 < float(one.mean()) < 0.4  # ink on paper
    assert not np.allclose(one, draw_strokes(jax.random.key(1), 5, (28, 28, 1)))


@pytest.mark.parametrize(
    ("features", "shape", "words"),
    [
        (CONV, (5,), r"random_conv wants images"),
        (
            RandomConv(dimension=4, size=7, grid=4),
            (8, 8, 1),
            r"patches of size 7 leave 2 lines of an image of 8 x 8, too few for a grid of 4",
        ),
        (Identity(dimension=3), (2,), r"identity of dimension 3, but the study's inputs are \(2,\)"),
    ],
)
def test_what_does_not_fit_is_refused(features, shape, words):
    with pytest.raises(CoreshotError, match=words):
        feature_map(features, jax.random.key(0), shape)


@pytest.mark.parametrize(
    ("network", "shape", "width"),
    [(Mlp(hidden=(5, 7), activation="tanh"), (3,), 7), (ConvNet(channels=(2,), dense=(6,)), (8, 8, 1), 6)],
)
def test_a_frozen_network_gives_its_last_hidden_layer(network, shape, width, tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    model = Model(network, "classification", shape, 4, 1.0, 1.0)
    params = model.init(jax.random.key(3))
    digest = save_network(tmp_path / "net.safetensors", model, params)
    frozen = Frozen(dimension=width, file="net.safetensors", sha256=digest)
    x = np.random.default_rng(0).normal(size=(9, *shape)).astype(np.float32)
    found = feature_map(frozen, jax.random.key(0), shape)(x)
    np.testing.assert_allclose(found[:, :-1], model.embed(params, x), rtol=1e-5, atol=1e-6)
    layer = params[f"Dense_{len(getattr(network, 'hidden', network.dense if hasattr(network, 'dense') else ()))}"]
    np.testing.assert_allclose(
        found[:, :-1] @ layer["kernel"] + layer["bias"], model.apply(params, x), rtol=1e-4, atol=1e-5
    )


def test_another_file_than_the_study_names_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    model = Model(Mlp(hidden=(5,), activation="tanh"), "classification", (3,), 4, 1.0, 1.0)
    save_network(tmp_path / "net.safetensors", model, model.init(jax.random.key(3)))
    with pytest.raises(
        CoreshotError, match=r"net.safetensors is not the study's network, whose SHA-256 is 000000000000\.\.\."
    ):
        feature_map(Frozen(dimension=5, file="net.safetensors", sha256="0" * 64), jax.random.key(0), (3,))
    with pytest.raises(CoreshotError, match=r"other.safetensors does not exist; get the study's network"):
        feature_map(Frozen(dimension=5, file="other.safetensors", sha256="0" * 64), jax.random.key(0), (3,))


def test_inputs_can_be_features_too():
    """First the inputs, scaled, then as many random ones as there is room for; too little room is said."""
    features = RandomVector(dimension=7, nonlinearity="relu", input_scale=2.0, with_inputs=True)
    drawn = feature_map(features, jax.random.key(0), (3,))
    x = np.asarray([[2.0, -4.0, 6.0]], np.float32)
    assert drawn(x).shape == (1, 8)
    assert np.array_equal(drawn(x)[0, :3], [1, -2, 3])
    with pytest.raises(CoreshotError, match="no room for 3 inputs"):
        feature_map(RandomVector(dimension=3, with_inputs=True), jax.random.key(0), (3,))
