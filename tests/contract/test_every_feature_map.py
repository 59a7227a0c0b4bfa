"""Every feature map that a study can name keeps the contract: shapes, its key alone decides, inputs do not mix."""

from typing import get_args

import jax
import numpy as np
import pytest

from coreshot.config import decode_named, encode_named
from coreshot.methods import METHODS
from coreshot.models import Model
from coreshot.models.networks import Mlp
from coreshot.spectral.features import AnyFeatures, feature_map
from coreshot.spectral.frozen_network import FOLDER, save_network
from onnx_files import write_dense_network

KINDS = {kind.name: kind for kind in get_args(get_args(AnyFeatures)[0])}
EXAMPLES = {
    "random_conv": ((8, 8, 1), {"dimension": 6, "num_filters": 8, "size": 3, "grid": 2}),
    "random_vector": ((3,), {"dimension": 6}),
    "frozen": ((3,), {"dimension": 6, "file": "net.safetensors"}),
    "identity": ((6,), {"dimension": 6}),
    "onnx": ((3,), {"dimension": 6, "file": "net.onnx", "outputs": ["hidden"], "layout": "vector"}),
    "precomputed": ((6,), {"dimension": 6, "embedding": "tiny", "sha256": "ab" * 32}),
    "whitened_patches": ((8, 8, 3), {"dimension": 6, "size": 3, "grid": 1}),
}
USES_NO_KEY = {"frozen", "identity", "onnx", "precomputed"}
NUM_INPUTS = 5


@pytest.fixture(scope="module", params=sorted(KINDS))
def name(request):
    if request.param not in EXAMPLES:
        pytest.fail(f"add a tiny example of {request.param!r} to EXAMPLES in {__file__}")
    return request.param


@pytest.fixture(scope="module")
def method(name, tmp_path_factory):
    """A study names its features in the method."""
    shape, values = EXAMPLES[name]
    folder = tmp_path_factory.mktemp("networks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(folder))
        if name == "onnx":
            values = {**values, "sha256": write_dense_network(folder / values["file"], *shape, 6)}
        elif "file" in values:
            model = Model(Mlp(hidden=(values["dimension"],), activation="tanh"), "classification", shape, 4, 1.0, 1.0)
            digest = save_network(folder / values["file"], model, model.init(jax.random.key(3)))
            values = {**values, "sha256": digest}
        settings = {"name": "spectral", "features": {"name": name, **values}}
        yield decode_named(METHODS, settings, "test", "method")


@pytest.fixture(scope="module")
def compute(name, method):
    """Features of inputs, with the map of a key."""
    shape, _ = EXAMPLES[name]
    return lambda x, seed=0: feature_map(method.features, jax.random.key(seed), shape)(x)


@pytest.fixture(scope="module")
def inputs(name):
    return np.random.default_rng(0).normal(size=(NUM_INPUTS, *EXAMPLES[name][0])).astype(np.float32)


def test_no_example_is_of_a_map_that_is_gone():
    assert EXAMPLES.keys() <= KINDS.keys()


def test_features_have_their_shape_are_finite_and_end_with_one(compute, inputs):
    found = compute(inputs)
    assert found.shape == (NUM_INPUTS, 6 + 1)
    assert np.all(np.isfinite(found))
    assert np.all(found[:, -1] == 1)
    assert np.any(np.std(found, axis=0) > 0)  # they depend on the input


def test_the_key_decides_and_nothing_else(name, compute, inputs):
    assert np.array_equal(compute(inputs), compute(inputs))
    assert np.array_equal(compute(inputs), compute(inputs, seed=1)) == (name in USES_NO_KEY)


def test_an_input_does_not_depend_on_the_others(compute, inputs):
    np.testing.assert_allclose(compute(inputs[:2]), compute(inputs)[:2], atol=1e-6)


def test_settings_survive_encoding(method):
    assert decode_named(METHODS, encode_named(METHODS, method), "test", "method") == method
