"""DP-SGD does what its accountant is told: Poisson batches, clipped gradients of single records, the declared noise,
empty batches that count.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from coreshot.errors import CoreshotError
from coreshot.models import Model
from coreshot.models.networks import ConvNet, Mlp
from coreshot.models.training import Optimizer
from coreshot.privacy.dp_sgd import poisson_batches, private_descent
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.per_example_gradients import (
    UNIT,
    _lengths,
    clip_in_whole_numbers,
    clipped_sum,
)
from coreshot.privacy.releases import Release
from coreshot.types import Points, make_points

SGD = Optimizer(name="sgd", step_size=1.0)


def release(**changes):
    return Release(
        **{
            "name": "steps",
            "content": "t",
            "mechanism": "dp_sgd",
            "sensitivity": 0.5,
            "noise_multiplier": 2.0,
            "num_steps": 8,
            **changes,
        }
    )


@pytest.fixture(scope="module")
def model(make_model):
    return make_model("classification")


@pytest.fixture(scope="module")
def points(sample_points):
    return sample_points("classification", 0, 16)


@pytest.fixture(scope="module")
def start(model):
    return model.init(jax.random.key(3))


def gradients_by_hand(model, params, points):
    """One at a time, without vmap."""

    def one(index):
        part = Points(points.x[index : index + 1], points.y[index : index + 1], jnp.ones(1))
        return np.asarray(ravel_pytree(jax.grad(lambda params: -model.log_prob(params, part))(params))[0], np.float64)

    return np.stack([one(index) for index in range(points.num_points)])


def summed(model, params, points, here, clip):
    """In units of the gradients."""
    whole = whole_sum(model, params, points, here, clip)
    return whole * (clip / clip_in_whole_numbers(len(whole)))


def whole_sum(model, params, points, here, clip):
    return np.asarray(ravel_pytree(clipped_sum(model, params, points, jnp.asarray(here), jnp.float32(clip)))[0])


@pytest.mark.parametrize("clip", [0.05, 0.5, 20.0])
def test_the_sum_is_of_single_records_clipped(model, points, start, clip):
    here = np.arange(16) % 3 != 0
    found = summed(model, start, points, here, clip)
    each = gradients_by_hand(model, start, points)
    norms = np.linalg.norm(each, axis=1, keepdims=True)
    assert np.any(norms > 0.05)
    assert np.all(norms < 20)
    expected = np.sum((each * np.minimum(1, clip / norms))[here], axis=0)
    assert np.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    "network",
    [
        ConvNet(channels=(4, 6), dense=(5,)),
        ConvNet(channels=(3,), dense=()),
        Mlp(hidden=(16, 8), activation="swish", norm_groups=2),
        Mlp(hidden=(), activation="relu"),
    ],
)
@pytest.mark.parametrize("num_records", [1, 7, 10])
def test_the_sum_is_right_for_every_kind_of_layer(network, num_records):
    """Convolutions, pooling, normalisation, dense layers; and of batches that are no multiple of what is done at
    once.
    """
    model = Model(network, "classification", (9, 9, 2), 3, 1.0, 1.0)
    draws = np.random.default_rng(1)
    points = make_points(draws.normal(size=(num_records, 9, 9, 2)), np.eye(3)[draws.integers(3, size=num_records)])
    params = jax.tree.map(
        lambda weight: weight + 0.1 * draws.normal(size=weight.shape).astype(np.float32), model.init(jax.random.key(0))
    )
    each = gradients_by_hand(model, params, points)
    norms = np.linalg.norm(each, axis=1, keepdims=True)
    clip = float(np.median(norms))
    expected = np.sum(each * np.minimum(1, clip / norms), axis=0)
    assert np.allclose(summed(model, params, points, np.ones(num_records, bool), clip), expected, atol=1e-5 * clip)


@pytest.mark.parametrize(
    "network", [ConvNet(channels=(4, 6), dense=(5,)), Mlp(hidden=(16, 8), activation="swish", norm_groups=2)]
)
def test_a_record_adds_the_same_whole_numbers_wherever_it_stands(network):
    """Bit for bit, among any others: the sum in another order is the same, and the sum without some of the records is
    the sum minus theirs. The weights are large, so that a difference in a last bit would grow."""
    model = Model(network, "classification", (9, 9, 2), 3, 1.0, 1.0)
    draws = np.random.default_rng(2)
    points = make_points(draws.normal(size=(23, 9, 9, 2)), np.eye(3)[draws.integers(3, size=23)])
    params = jax.tree.map(
        lambda weight: 30 * draws.normal(size=weight.shape).astype(np.float32), model.init(jax.random.key(0))
    )
    compiled = jax.jit(lambda points, here: ravel_pytree(clipped_sum(model, params, points, here, jnp.float32(1)))[0])
    everyone = np.asarray(compiled(points, np.ones(23, bool)))
    for _ in range(10):
        order, here = draws.permutation(23), draws.random(23) < 0.5
        moved = jax.tree.map(lambda array, order=order: array[order], points)
        assert np.array_equal(compiled(moved, np.ones(23, bool)), everyone)
        assert np.array_equal(everyone - compiled(points, here), compiled(points, ~here))
    assert int(np.sum(everyone.astype(object) ** 2)) > UNIT**2, "there is something to compare"


@pytest.mark.parametrize("largest", [1e38, 1e30, 1e-5, 1e-37])
def test_no_input_makes_a_rounded_gradient_longer_than_the_clip(largest):
    """Numbers at the ends of float32, in inputs and in the slopes that the coordinator's weights make of them."""
    model = Model(Mlp(hidden=(4,), activation="relu"), "classification", (300,), 2, 1.0, 1.0)
    draws = np.random.default_rng(3)
    points = make_points(largest * draws.uniform(0.1, 1, size=(1, 300)), [[0.0, 1.0]])
    compiled = jax.jit(
        lambda *values: ravel_pytree(clipped_sum(model, values[0], points, jnp.ones(1, bool), values[1]))[0]
    )
    start = model.init(jax.random.key(0))
    for weight in (1e-38, 1e-20, 1.0, 1e20):
        for clip in (1e-9, 1.0, 1e6):
            for _ in range(4):
                params = jax.tree.map(lambda one: np.float32(weight * draws.normal(size=one.shape)), start)  # noqa: B023
                whole = np.asarray(compiled(params, jnp.float32(clip))).astype(object)
                assert int(np.sum(whole**2)) <= UNIT**2


def test_more_records_than_one_sum_holds(model, sample_points, start):
    """They are added part by part, exactly."""
    points = sample_points("classification", 0, 70)
    declared = release(noise_multiplier=1e-12, num_steps=1)
    found = (ends(model, points, start, declared) - np.asarray(ravel_pytree(start)[0]))[0]
    each = gradients_by_hand(model, start, points)
    clipped = np.sum(each * np.minimum(1, 0.5 / np.linalg.norm(each, axis=1, keepdims=True)), axis=0)
    assert np.allclose(found, -clipped / 4, atol=1e-5)


def test_clients_of_different_sizes_one_after_the_other(model, sample_points, start):
    """Each size is traced anew, with all layers heard."""
    declared = release(sensitivity=100.0, noise_multiplier=1e-12, num_steps=1)
    for num_points in (16, 40):
        points = sample_points("classification", 0, num_points)
        found = ends(model, points, start, declared) - np.asarray(ravel_pytree(start)[0])
        assert np.allclose(found[0], -gradients_by_hand(model, start, points).sum(axis=0) / 4, atol=1e-4)


@given(seed=st.integers(0, 2**32 - 1), clip=st.sampled_from([0.01, 0.5, 3.0]), weights=st.floats(0.1, 30.0))
@settings(max_examples=40, deadline=None)
def test_one_record_moves_the_sum_by_at_most_the_clip(compiled_sum, model, start, seed, clip, weights):
    """Of random records, large and small, under random weights: each in turn is left out."""
    draws = np.random.default_rng(seed)
    points = make_points(
        10.0 ** draws.uniform(-3, 20, size=(8, 1)) * draws.normal(size=(8, 2)), np.eye(2)[draws.integers(2, size=8)]
    )
    params = jax.tree.map(
        lambda weight: weight + np.float32(weights) * draws.normal(size=weight.shape).astype(np.float32), start
    )
    everyone = compiled_sum(params, points, np.ones(8, bool), clip)
    for index in range(8):
        moved = everyone - compiled_sum(params, points, np.arange(8) != index, clip)
        assert int(np.sum(moved.astype(object) ** 2)) <= UNIT**2  # in whole numbers, so without any tolerance


@pytest.fixture(scope="module")
def compiled_sum(model):
    compiled = jax.jit(
        lambda params, points, here, clip: ravel_pytree(clipped_sum(model, params, points, here, clip))[0]
    )
    return lambda *values: np.asarray(compiled(*values[:2], jnp.asarray(values[2]), jnp.float32(values[3])), np.int64)


def test_some_record_moves_the_sum_by_nearly_the_clip(compiled_sum, start, points):
    alone = [np.linalg.norm(compiled_sum(start, points, np.arange(16) == index, 0.05)) for index in range(16)]
    assert max(alone) > 0.999 * UNIT


def test_a_slope_whose_square_vanishes_has_a_length_all_the_same():
    """Inputs of 1e18 and slopes of 1e-19: their product is what counts, and squaring the slopes in float32 would
    make it nothing.
    """
    slopes, inputs = jnp.full((1, 2), 1e-20), jnp.full((1, 4), 1e18)
    found = float(_lengths({}, {("a",): slopes}, {("a",): inputs})[0])
    assert found == pytest.approx(np.sqrt(2) * 1e-20 * 2e18, rel=1e-5)
    assert float(jnp.linalg.norm(slopes)) == 0, "the negative control: the plain norm is lost"


def test_a_record_whose_gradient_is_not_finite_counts_as_none(model, points, start):
    broken = Points(points.x.at[0].set(jnp.inf), points.y, points.weight)
    found = summed(model, start, broken, np.ones(16, bool), 0.5)
    assert np.allclose(found, summed(model, start, points, np.arange(16) > 0, 0.5), atol=1e-6)


def test_batches_are_poisson():
    """Independent of each other and of how many records there are, with the rate that was declared; sizes vary,
    and some are empty.
    """
    drawn = poisson_batches(5, 0.2, 20_000)
    assert np.allclose(drawn.mean(axis=0), 0.2, atol=0.015)
    sizes = drawn.sum(axis=1)
    assert np.mean(sizes == 0) == pytest.approx(0.8**5, abs=0.015)
    assert np.var(sizes) == pytest.approx(5 * 0.2 * 0.8, rel=0.05)
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]) < 0.03
    assert not np.array_equal(drawn, poisson_batches(5, 0.2, 20_000)), "from the operating system, not from a seed"
    assert poisson_batches(3, 1.0, 2).all()


def ends(model, points, start, declared, num_steps=1, batch_size=4.0, num_runs=1):
    return private_descent(
        Records(points, [declared]), "steps", model, SGD, [start] * num_runs, num_steps, num_steps, batch_size
    )[:, -1]


def test_a_step_adds_the_declared_noise_and_divides_by_the_declared_size(model, points, start):
    """All records in every batch: what varies between runs is the noise alone."""
    flat = np.asarray(ravel_pytree(start)[0])
    found = ends(model, points, start, release(num_steps=400), num_runs=400) - flat
    each = gradients_by_hand(model, start, points)
    clipped = np.sum(each * np.minimum(1, 0.5 / np.linalg.norm(each, axis=1, keepdims=True)), axis=0)
    assert np.std(found, axis=0).mean() == pytest.approx(2.0 * 0.5 / 4, rel=0.05)
    assert np.allclose(found.mean(axis=0), -clipped / 4, atol=5 * 0.25 / 20)


def test_records_are_drawn_with_the_declared_rate_in_every_step(model, start):
    """Without noise, one record: how often does a run of one step move, of three steps how far on the average,
    beside a step that always has it?
    """
    alone = make_points([[0.5, -1.0]], [[1.0, 0.0]])
    flat = np.asarray(ravel_pytree(start)[0])

    def moved(rate, num_steps, num_runs):
        declared = release(sensitivity=1e-4, noise_multiplier=1e-12, sampling_rate=rate, num_steps=num_steps * num_runs)
        found = ends(model, alone, start, declared, num_steps=num_steps, num_runs=num_runs) - flat
        return np.linalg.norm(found, axis=1) / (1e-4 / 4)

    assert moved(1.0, 1, 1) == pytest.approx(1, rel=1e-2)
    found = moved(0.2, 1, 600)
    assert np.mean(found > 0.5) == pytest.approx(0.2, abs=4 * np.sqrt(0.16 / 600))
    assert np.mean(moved(0.2, 3, 300)) == pytest.approx(0.6, abs=4 * np.sqrt(3 * 0.16 / 300))


def test_each_step_has_noise_of_its_own(model, points, start):
    """Of nine steps without records the noise adds up to three times that of one; the same nine times would be nine."""
    flat = np.asarray(ravel_pytree(start)[0])
    found = ends(model, points, start, release(sampling_rate=1e-12, num_steps=450), num_steps=9, num_runs=50) - flat
    assert np.std(found) == pytest.approx(3 * 0.25, rel=0.1)


def test_what_a_step_adds_is_normal_and_whole(model, points, start):
    """Steps without records, weights of zero, and a batch size for which a whole number stands for 1 / 2: all that is
    released is a multiple of it."""
    zero = jax.tree.map(jnp.zeros_like, start)
    size = len(ravel_pytree(start)[0])
    declared = release(
        sensitivity=clip_in_whole_numbers(size), noise_multiplier=2.0**-8, sampling_rate=1e-12, num_steps=200
    )
    found = ends(model, points, zero, declared, num_runs=200, batch_size=2.0).astype(np.float64)
    assert np.all(found == np.rint(2 * found) / 2)
    assert np.any(found != np.rint(found))
    assert scipy.stats.kstest(found.ravel() / (2.0**-8 * UNIT / 2), "norm").pvalue > 1e-4


def test_empty_batches_still_get_noise(model, points, start):
    flat = np.asarray(ravel_pytree(start)[0])
    found = ends(model, points, start, release(sampling_rate=1e-12, num_steps=50), num_runs=50) - flat
    assert np.std(found) == pytest.approx(0.25, rel=0.1)
    assert np.all(found != 0)


def test_no_noise_and_no_clipping_is_gradient_descent(model, points, start):
    """The accountant's two knobs are all that is different: without them, plain steps on the sum."""
    declared = release(sensitivity=100.0, noise_multiplier=1e-12, num_steps=3)
    found = ends(model, points, start, declared, num_steps=3, batch_size=160.0)[0]
    params = start
    for _ in range(3):
        gradient = jax.grad(lambda params: -model.log_prob(params, points) / 160)(params)
        params = jax.tree.map(lambda weight, slope: weight - slope, params, gradient)
    assert np.allclose(found, ravel_pytree(params)[0], atol=1e-4)


def test_more_steps_than_declared_are_never_taken(model, points, start):
    with pytest.raises(CoreshotError, match="accounted for 2 steps, of which 2 are left, not 3"):
        ends(model, points, start, release(num_steps=2), num_steps=3)
    records = Records(points, [release(num_steps=4)])
    private_descent(records, "steps", model, SGD, [start], 3, 3, 4.0)
    with pytest.raises(CoreshotError, match="of which 1 are left, not 3"):
        private_descent(records, "steps", model, SGD, [start], 3, 3, 4.0)


def test_padding_is_no_record(model, points, start):
    padded = jax.tree.map(lambda array: jnp.concatenate([array, jnp.zeros((5, *array.shape[1:]))]), points)
    declared = release(noise_multiplier=1e-12, num_steps=2)
    assert np.allclose(
        ends(model, padded, start, declared, num_steps=2), ends(model, points, start, declared, num_steps=2), atol=1e-6
    )
