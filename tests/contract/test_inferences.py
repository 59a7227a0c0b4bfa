"""Every inference of the registry keeps its contract: shapes, determinism, one compilation for each shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.config import decode_named, encode_named
from coreshot.inference.collapsed_hmc import sample_collapsed as collapsed_compiled
from coreshot.inference.cyclical import sample_cycles as cyclical_compiled
from coreshot.inference.hmc import sample_chains as hmc_compiled
from coreshot.inference.laplace import sample_last_layers as laplace_compiled
from coreshot.inference.map_estimate import _climb_all as map_compiled
from coreshot.inference.mclmc import sample_microcanonical as mclmc_compiled
from coreshot.inference.nuts import _sample_chains as nuts_compiled
from coreshot.inference.registry import INFERENCES
from coreshot.models import LogDensity

SETTINGS = {
    "map_estimate": {"optimizer": "adam", "step_size": 0.02, "num_steps": 5, "num_chains": 3},
    "hmc": {
        "step_size": 0.05,
        "inverse_mass": 1.0,
        "num_integration_steps": 2,
        "num_warmup": 2,
        "num_samples": 4,
        "num_chains": 3,
    },
    "collapsed_hmc": {"num_integration_steps": 2, "num_warmup": 2, "num_samples": 4, "num_chains": 3},
    "nuts": {"num_warmup": 4, "num_samples": 4, "num_chains": 3, "max_doublings": 2},
    "mclmc": {"num_warmup": 30, "num_samples": 4, "thinning": 2, "num_chains": 3},
    "cyclical": {
        "step_size": 0.05,
        "num_cycles": 2,
        "cycle_length": 10,
        "samples_per_cycle": 2,
        "kernel": "sghmc",
        "num_chains": 3,
    },
    "last_layer_laplace": {"optimizer": "adam", "step_size": 0.02, "num_steps": 5, "num_samples": 4, "num_chains": 3},
}
COMPILED = {
    "map_estimate": map_compiled,
    "hmc": hmc_compiled,
    "collapsed_hmc": collapsed_compiled,
    "nuts": nuts_compiled,
    "mclmc": mclmc_compiled,
    "cyclical": cyclical_compiled,
    "last_layer_laplace": laplace_compiled,
}
USES_NO_KEY = {"map_estimate"}


@pytest.mark.parametrize("registered", sorted(INFERENCES))
def test_every_inference_is_tested(registered):
    assert registered in SETTINGS, f"add a tiny example of {registered!r} to SETTINGS in {__file__}"
    assert SETTINGS.keys() == COMPILED.keys() == INFERENCES.keys()


@pytest.fixture(scope="module", params=SETTINGS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def infer(name, linear, linear_points):
    """A run of the inference; made anew each time, so that equal settings must be found in the compilation cache."""

    def run(key_seed=0, points=linear_points):
        inference = decode_named(INFERENCES, {"name": name, **SETTINGS[name]}, "test", "inference")
        init = linear.unravel_all(
            jnp.asarray(np.random.default_rng(1).normal(size=(inference.num_chains, 3)), jnp.float32)
        )
        return inference(jax.random.key(key_seed), LogDensity(linear.model, points), init)

    return run


def test_shapes_and_finite_values(infer, name, linear):
    posterior, info = infer()
    num_samples = 3 * SETTINGS[name].get("num_samples", 4 if name == "cyclical" else 1)
    assert posterior.num_samples == num_samples
    assert posterior.params["Dense_0"]["kernel"].shape == (num_samples, 2, 1)
    assert posterior.params["Dense_0"]["bias"].shape == (num_samples, 1)
    assert np.all(np.isfinite(linear.ravel_all(posterior.params)))
    assert all(len(value) == 3 and np.all(np.isfinite(value)) for value in info.values())


def test_same_key_same_answer(infer, same):
    assert same(infer(), infer())


def test_another_key_another_answer(infer, name, same):
    assert same(infer()[0], infer(key_seed=1)[0]) == (name in USES_NO_KEY)


def test_other_points_of_the_same_shape_do_not_compile_again(infer, name, linear_points, same):
    first = infer()
    before = COMPILED[name]._cache_size()
    second = infer(points=linear_points.reweighted(2 * linear_points.weight))
    assert COMPILED[name]._cache_size() == before > 0
    assert not same(first[0], second[0])


def test_settings_survive_encoding_and_count_passes(name):
    inference = decode_named(INFERENCES, {"name": name, **SETTINGS[name]}, "test", "inference")
    assert decode_named(INFERENCES, encode_named(INFERENCES, inference), "test", "inference") == inference
    # 5 steps; (2 + 4) transitions of 2 steps; the same and 4 last layers; (4 + 4) transitions of at most 2^2;
    # (30 + 4 * 2) steps of 2; 2 * 10 steps of 5; 5 steps and 1 look.
    counts = {"map_estimate": 50, "hmc": 120, "collapsed_hmc": 160, "nuts": 320, "mclmc": 760, "cyclical": 1000}
    counts["last_layer_laplace"] = 60
    assert inference.num_passes(10) == counts[name]


def test_passes_of_batches():
    """MAP: 5 steps of 4 points, or of all 3 where there are no more; HMC's own transitions see all points, its
    MAP steps batches.
    """
    step = {"name": "map_estimate", "optimizer": "sgd", "step_size": 0.1, "num_steps": 5, "batch_size": 4}
    assert [decode_named(INFERENCES, step, "test", "inference").num_passes(num) for num in (10, 3)] == [20, 15]
    hmc = {"name": "hmc", **SETTINGS["hmc"], "map_steps": 7, "map_batch_size": 2}
    assert decode_named(INFERENCES, hmc, "test", "inference").num_passes(10) == 7 * 2 + 120
