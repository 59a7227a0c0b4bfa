"""Every network of the registry keeps its contract: its weights depend on the key, its outputs on their own input
alone.
"""

import jax
import numpy as np
import pytest

from coreshot.config import decode_named, encode_named
from coreshot.errors import CoreshotError
from coreshot.models import Model
from coreshot.models.networks import NETWORKS
from coreshot.types import make_points, pad_points

SETTINGS = {
    "convnet": {"channels": [2, 3], "dense": [4]},
    "mlp": {"hidden": [6, 4], "activation": "swish", "norm_groups": 2},
}
INPUT_SHAPES = {"convnet": (8, 8, 1), "mlp": (2,)}
NUM_PARAMS = {
    "convnet": (9 * 2 + 2)
    + (9 * 2 * 3 + 3)
    + (2 * 2 * 3 * 4 + 4)
    + (4 * 3 + 3),  # 8 x 8 shrinks to 6, to 4, and is pooled to 2
    "mlp": (2 * 6 + 6)
    + 2 * 6
    + (6 * 4 + 4)
    + 2 * 4
    + (4 * 3 + 3),  # dense layers, and a scale and a shift a normalised unit
}


@pytest.mark.parametrize("registered", sorted(NETWORKS))
def test_every_network_is_tested(registered):
    assert registered in SETTINGS, f"add a tiny example of {registered!r} to SETTINGS in {__file__}"
    assert SETTINGS.keys() == NUM_PARAMS.keys() == INPUT_SHAPES.keys() == NETWORKS.keys()


@pytest.fixture(scope="module", params=SETTINGS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def network(name):
    return decode_named(NETWORKS, {"name": name, **SETTINGS[name]}, "test", "network")


@pytest.fixture(scope="module")
def model(network, name):
    return Model(network, "classification", INPUT_SHAPES[name], 3, 0.1, 1.0)


@pytest.fixture(scope="module")
def init(model):
    return jax.jit(model.init)


@pytest.fixture(scope="module")
def inputs(name):
    return np.random.default_rng(0).normal(size=(5, *INPUT_SHAPES[name])).astype(np.float32)


def test_same_key_same_weights_and_another_key_others(init, same):
    assert same(init(jax.random.key(0)), init(jax.random.key(0)))
    assert not same(init(jax.random.key(0)), init(jax.random.key(1)))


def test_outputs_have_their_shape_and_are_finite(model, init, inputs):
    outputs = model.apply(init(jax.random.key(0)), inputs)
    assert outputs.shape == (5, 3)
    assert np.all(np.isfinite(outputs))
    assert np.all(np.std(outputs, axis=0) > 0)  # they depend on the input


def test_an_output_does_not_depend_on_the_rest_of_the_batch(model, init, inputs):
    """To 1e-6: normalisation must be over units, never over the batch, or padding would change every point."""
    params = init(jax.random.key(0))
    np.testing.assert_allclose(model.apply(params, inputs[:2]), model.apply(params, inputs)[:2], atol=1e-6)


def test_padding_adds_nothing(model, init, inputs):
    """To 1e-5: sums are split differently for other shapes, and normalisation of small groups magnifies that."""
    points = make_points(inputs, np.eye(3, dtype=np.float32)[[0, 1, 2, 0, 1]])
    params, log_prob = init(jax.random.key(0)), jax.jit(model.log_prob)
    assert float(log_prob(params, points)) == pytest.approx(float(log_prob(params, pad_points(points, 9))), rel=1e-5)


def test_number_of_weights(model, init, name):
    assert model.num_params() == NUM_PARAMS[name] == sum(leaf.size for leaf in jax.tree.leaves(init(jax.random.key(0))))


def test_settings_survive_encoding(network, model):
    assert decode_named(NETWORKS, encode_named(NETWORKS, network), "test", "network") == network
    assert hash(model) == hash(Model(network, "classification", model.input_shape, 3, 0.1, 1.0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hiden": [3]}, "unknown key 'hiden' (did you mean 'hidden'?)"),
        ({"hidden": 3}, "hidden"),
        ({"hidden": [3.5]}, "hidden.0 = 3.5"),
        ({"hidden": [0]}, "hidden.0 = 0"),
        ({"activation": "gelu"}, "activation = 'gelu'"),
        ({"name": "mpl"}, "did you mean 'mlp'?"),
    ],
)
def test_wrong_settings_are_named(change, words):
    with pytest.raises(CoreshotError) as error:
        decode_named(NETWORKS, {"name": "mlp", **SETTINGS["mlp"], **change}, "here", "network")
    assert str(error.value).startswith("here: ")
    assert words in str(error.value)


def test_missing_setting_is_named():
    with pytest.raises(CoreshotError, match=r"here: the key 'activation' is missing; add it"):
        decode_named(NETWORKS, {"name": "mlp", "hidden": [3]}, "here", "network")


def test_the_papers_convnet_has_its_number_of_weights():
    network = decode_named(NETWORKS, {"name": "convnet", "channels": [32, 64], "dense": [128]}, "test", "network")
    assert Model(network, "classification", (28, 28, 1), 62, 0.1, 1.0).num_params() == 1_206_590


def test_half_precision_is_close_but_not_the_same_and_keeps_float32_weights(name, inputs):
    whole, half = (
        Model(
            decode_named(NETWORKS, {"name": name, **SETTINGS[name], "precision": one}, "test", "network"),
            "classification",
            INPUT_SHAPES[name],
            3,
            0.1,
            1.0,
        )
        for one in ("float32", "bfloat16")
    )
    params = half.init(jax.random.key(0))
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(params))
    outputs = half.apply(params, inputs)
    assert outputs.dtype == np.float32
    difference = np.max(np.abs(outputs - whole.apply(params, inputs)))
    assert 0 < difference < 0.05  # bfloat16 has 8 bits: some 2^-8 of values of size one
