"""Chains that disagree, hardly move or crawl are flagged, and chains that mixed are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.inference.diagnostics import diagnose
from coreshot.inference.posterior import SamplePosterior
from coreshot.inference.registry import Hmc
from coreshot.models import LogDensity

NUM_CHAINS, NUM_SAMPLES = 4, 100


def chains(linear, centers, scale=1.0, seed=0):
    """Independent draws around one centre a chain, as a sampler's posterior: ordered by chain, then by draw."""
    draws = np.random.default_rng(seed).normal(size=(len(centers), NUM_SAMPLES, 3))
    return SamplePosterior(
        linear.model,
        linear.unravel_all(
            jnp.asarray((np.asarray(centers)[:, None, None] + scale * draws).reshape(-1, 3), jnp.float32)
        ),
    )


def info(acceptance=0.8, num_divergent=0, num_chains=NUM_CHAINS):
    divergent = np.zeros((num_chains, NUM_SAMPLES), bool)
    divergent[0, :num_divergent] = True
    return {"acceptance": jnp.full((num_chains, NUM_SAMPLES), acceptance), "divergent": jnp.asarray(divergent)}


@pytest.fixture(scope="module")
def probes(linear_points):
    return linear_points.x[:5]


def test_good_chains_get_no_warning(linear, probes):
    report = diagnose(linear.model, chains(linear, np.zeros(NUM_CHAINS)), info(), probes)
    assert report.warnings == []
    assert report.r_hat < 1.05
    assert report.effective_samples > 0.5 * NUM_CHAINS * NUM_SAMPLES
    assert report.acceptance == pytest.approx(0.8)
    assert report.num_divergences == 0


def test_chains_stuck_in_different_places_are_flagged(linear, probes):
    report = diagnose(linear.model, chains(linear, [-3, -1, 1, 3], scale=0.1), info(), probes)
    assert report.r_hat > 1.1
    assert any("R-hat" in warning and "sample for longer" in warning for warning in report.warnings)


def test_chains_that_never_move_are_flagged(linear, probes):
    """Not a number, not below the limit: still a warning."""
    report = diagnose(linear.model, chains(linear, np.zeros(NUM_CHAINS), scale=0.0), info(acceptance=0.0), probes)
    assert any("R-hat" in warning for warning in report.warnings)
    assert any("only 0% of proposals were accepted" in warning for warning in report.warnings)


@pytest.mark.parametrize(("acceptance", "words"), [(0.1, "lower step_size"), (0.999, "raise step_size"), (0.7, None)])
def test_acceptance_outside_its_range_is_flagged(linear, probes, acceptance, words):
    warnings = diagnose(linear.model, chains(linear, np.zeros(NUM_CHAINS)), info(acceptance), probes).warnings
    assert [words in warning for warning in warnings] == [True] if words else warnings == []


def test_divergences_are_counted_and_flagged(linear, probes):
    report = diagnose(linear.model, chains(linear, np.zeros(NUM_CHAINS)), info(num_divergent=3), probes)
    assert report.num_divergences == 3
    assert [warning for warning in report.warnings if "3 transitions diverged" in warning] == report.warnings


def test_one_chain_says_that_r_hat_cannot_be_had(linear, probes):
    report = diagnose(linear.model, chains(linear, [0.0]), info(num_chains=1), probes)
    assert report.r_hat is None
    assert any("num_chains" in warning for warning in report.warnings)


def test_strongly_correlated_draws_are_worth_few(linear, probes):
    walk = np.cumsum(np.random.default_rng(2).normal(size=(NUM_CHAINS, NUM_SAMPLES, 3)), axis=1).reshape(-1, 3)
    report = diagnose(
        linear.model, SamplePosterior(linear.model, linear.unravel_all(jnp.asarray(walk, jnp.float32))), info(), probes
    )
    assert report.effective_samples < 0.1 * NUM_CHAINS * NUM_SAMPLES
    assert any("independent ones" in warning for warning in report.warnings)


def test_map_estimate_has_nothing_to_diagnose(linear, probes):
    report = diagnose(linear.model, chains(linear, [0.0]), {"gradient_norm": jnp.zeros(1)}, probes)
    assert (report.acceptance, report.num_divergences, report.r_hat, report.effective_samples, report.warnings) == (
        None,
        None,
        None,
        None,
        [],
    )


def run_hmc(linear, points, step_size):
    inference = Hmc(
        step_size=step_size, inverse_mass=1.0, num_integration_steps=5, num_warmup=50, num_samples=NUM_SAMPLES
    )
    init = jax.vmap(linear.model.init)(jax.random.split(jax.random.key(5), inference.num_chains))
    posterior, info = inference(jax.random.key(1), LogDensity(linear.model, points), init)
    return diagnose(linear.model, posterior, info, points.x[:5])


def test_a_real_sampler_with_fitting_steps_gets_no_warning(linear, linear_points):
    assert run_hmc(linear, linear_points, 0.03).warnings == []


def test_a_real_sampler_with_steps_far_too_large_is_flagged(linear, linear_points):
    report = run_hmc(linear, linear_points, 2.0)
    assert report.acceptance < 0.05
    assert any("accepted" in warning for warning in report.warnings)


@pytest.mark.parametrize(("num_chains", "num_samples"), [(1, 2), (2, 1), (2, 3)])
def test_too_few_samples_to_tell_are_said_to_be_too_few(linear, probes, num_chains, num_samples):
    posterior = SamplePosterior(
        linear.model,
        linear.unravel_all(
            jnp.asarray(np.random.default_rng(0).normal(size=(num_chains * num_samples, 3)), jnp.float32)
        ),
    )
    short = {
        "acceptance": jnp.full((num_chains, num_samples), 0.8),
        "divergent": jnp.zeros((num_chains, num_samples), bool),
    }
    report = diagnose(linear.model, posterior, short, probes)
    assert (report.r_hat, report.effective_samples) == (None, None)
    assert report.warnings == [
        "fewer than 4 samples a chain: neither R-hat nor their effective number can be computed; raise num_samples."
    ]


def test_four_samples_are_enough_to_compute_with(linear, probes):
    posterior = SamplePosterior(
        linear.model, linear.unravel_all(jnp.asarray(np.random.default_rng(0).normal(size=(8, 3)), jnp.float32))
    )
    report = diagnose(
        linear.model, posterior, {"acceptance": jnp.full((2, 4), 0.8), "divergent": jnp.zeros((2, 4), bool)}, probes
    )
    assert report.r_hat is not None
    assert report.effective_samples is not None
