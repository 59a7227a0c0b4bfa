"""What makes BPC-fKL learn on images, each part where its answer is known: chains that keep the expert's optimiser,
augmentation, held-out experts, bounds, a proxy network, and starts that are means.
"""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from coreshot.errors import CoreshotError
from coreshot.keys import fold_each
from coreshot.learners.bpc_fkl import kl_gradient
from coreshot.learners.coreset_chains import chain_ends
from coreshot.learners.loop import distill
from coreshot.learners.starts import (
    MIN_GROUP,
    SHARES,
    class_draws,
    class_means,
    neighbour_mixes,
    proportional_labels,
)
from coreshot.models import Model
from coreshot.models.networks import ConvNet, Mlp
from coreshot.privacy.guarded_records import Records, guard_records
from coreshot.types import make_points, pad_points

DRAWS = np.random.default_rng(0)


@pytest.fixture(scope="module")
def images():
    """Two classes of 6 x 6 images: an upright and a lying bar, with noise."""
    x = 0.1 * DRAWS.uniform(size=(16, 6, 6, 1))
    x[:8, :, 2:4] += 0.8
    x[8:, 2:4] += 0.8
    return make_points(x, np.eye(2)[np.repeat([0, 1], 8)])


@pytest.fixture(scope="module")
def image_model():
    network = ConvNet(channels=(3,), dense=(4,))
    return Model(network, "classification", (6, 6, 1), 2, prior_precision=0.1, noise_scale=1.0)


def experts_of(learner, model, points):
    state = learner.init(
        jax.random.split(jax.random.key(3), 1),
        model,
        Records(jax.tree.map(lambda array: array[None], points), learner.releases(model)),
        jax.random.key(4),
    )
    return state.local.value.experts


@pytest.mark.parametrize(("chain_state", "is_expert"), [("expert", True), ("new", False)])
def test_a_chain_on_the_data_itself_goes_on_as_the_expert(make_bpc, make_model, sample_points, chain_state, is_expert):
    """With all records in every step, the coreset equal to the data and the expert's optimiser carried, the chain is
    the expert. Negative control: an optimiser that starts anew (Adam without its means) goes elsewhere."""
    model, data = make_model("classification"), sample_points("classification", 0, 8)
    learner = make_bpc(chain_state=chain_state, chain_step_size=0.02)
    starts, ends, _ = experts_of(learner, model, data).sample(jax.random.split(jax.random.key(0), 1), 1, 5)
    reached = chain_ends(learner, model, data, jax.random.key(1), starts[0, 0])
    flat = np.stack([ravel_pytree(jax.tree.map(lambda leaf, i=i: leaf[i], reached))[0] for i in range(5)])
    moved = np.abs(np.asarray(ends[0, 0] - starts[0, 0, :, : model.num_params()])).max()
    assert moved > 0.02
    assert (np.abs(flat - np.asarray(ends[0, 0])).max() < 1e-5) == is_expert


def test_the_optimisers_state_does_not_fit_half_precision(make_bpc, make_model, sample_points):
    learner = make_bpc(chain_state="expert", experts={"coding": "float16"})
    with pytest.raises(CoreshotError, match="float32"):
        experts_of(learner, make_model("classification"), sample_points("classification", 0, 8))


def test_both_terms_of_the_gradient_see_the_same_shift(image_model, images):
    """So equal weights on both sides give a gradient of exactly 0; with two shifts they would not."""
    model, params = replace(image_model, max_shift=2), image_model.init(jax.random.key(0))
    one = jax.tree.map(lambda leaf: leaf[None], params)
    gradient = kl_gradient(model, images, one, one, jax.random.key(1))
    assert float(jnp.max(jnp.abs(gradient.x))) == 0
    other = jax.tree.map(lambda leaf: 1.1 * leaf, one)
    assert float(jnp.max(jnp.abs(kl_gradient(model, images, one, other, jax.random.key(1)).x))) > 0


def test_an_image_is_shifted_as_by_hand(image_model, images):
    key, model = jax.random.key(5), replace(image_model, max_shift=1)
    seen = model.augment(key, images)
    shifts = np.asarray(jax.random.randint(key, (16, 2), -1, 2))
    assert set(shifts.ravel()) == {-1, 0, 1}
    by_hand = np.stack([np.roll(image, shift, (0, 1)) for image, shift in zip(images.x, shifts, strict=True)])
    np.testing.assert_array_equal(seen.x, by_hand)
    assert image_model.augment(key, images) is images


def learn(learner, model, data):
    records = guard_records({"a": data}, learner.releases(model))
    return distill(model, learner, records, {"a": jax.random.key(7)}, jax.random.key(8))["a"].coreset.points


IMAGES = {
    "num_points": 4,
    "num_updates": 60,
    "init_scale": 0.1,
    "step_size_x": 0.05,
    "optimizer": "adam",
    "chain_state": "expert",
    "num_held_out": 1,
    "bounds": (0.0, 1.0),
}


def test_held_out_experts_keep_the_best_points(make_bpc, image_model, images, monkeypatch):
    """The loop may end anywhere: with the sign of the gradient flipped every update harms, and the start is kept."""
    learner = make_bpc(**IMAGES, start="class_mean")
    start = learn(make_bpc(**{**IMAGES, "step_size_x": 1e-12}, start="class_mean"), image_model, images)
    cls, usual = type(learner), type(learner).gradient
    monkeypatch.setattr(cls, "gradient", lambda *a: jax.tree.map(jnp.negative, usual(*a)))
    jax.clear_caches()
    flipped = learn(learner, image_model, images)
    monkeypatch.undo()
    jax.clear_caches()
    moved = learn(learner, image_model, images)
    np.testing.assert_allclose(flipped.x, start.x, atol=1e-6)
    assert float(jnp.max(jnp.abs(moved.x - start.x))) > 0.05


def test_bounds_and_a_proxy_network(make_bpc, image_model, images):
    """Pixels stay pixels, also where the study's own network is one that the client never trains."""
    learner = make_bpc(**IMAGES, proxy_network={"channels": [2], "dense": [], "strides": [2], "pool_after": []})
    points = learn(learner, image_model, images)
    assert float(jnp.min(points.x)) >= 0
    assert float(jnp.max(points.x)) <= 1
    other = replace(image_model, network=Mlp(hidden=(5,), activation="relu"))
    np.testing.assert_array_equal(points.x, learn(learner, other, images).x)


def test_class_means_are_means_of_groups_and_small_classes_have_none():
    """Class 0: ten records at the corners of a known mean; class 1: four records, too few to hide one."""
    x = np.concatenate([np.arange(10.0)[:, None] * [[1.0, 0.0]], [[50.0, 50.0]] * 4])
    points = make_points(x, np.eye(2)[[0] * 10 + [1] * 4])
    labels = jnp.eye(2)[jnp.asarray([0, 0, 1])]
    found = np.asarray(class_means(jax.random.key(0), points, labels, 0.0))
    sums = found[:2, 0] * MIN_GROUP  # a mean of five different numbers of 0 to 9
    np.testing.assert_allclose(sums, np.round(sums), atol=1e-4)
    assert np.all((sums >= 10) & (sums <= 35))
    np.testing.assert_allclose(found[2], x.mean(axis=0), rtol=1e-5)
    padded = np.asarray(class_means(jax.random.key(0), pad_points(points, 20), labels, 0.0))
    np.testing.assert_allclose(padded, found, rtol=1e-5)
    one = np.asarray(class_means(jax.random.key(0), points, jnp.eye(2)[:1], 0.0))
    np.testing.assert_allclose(one[0], [4.5, 0.0], rtol=1e-5)  # one point for a class: the mean of all of it


def test_class_draws_have_the_mean_and_the_covariance_of_the_class():
    """4,000 draws of a class of six records (standard errors below 0.05); a class of four has none of its own. Negative
    control: means of five records have far too little variance."""
    records = DRAWS.normal(size=(6, 2)) @ [[1.0, 0.6], [0.0, 0.8]] + [3.0, -2.0]
    points = make_points(np.concatenate([records, [[50.0, 50.0]] * 4]), np.eye(2)[[0] * 6 + [1] * 4])
    labels = jnp.broadcast_to(jnp.eye(2)[0], (4000, 2))
    found = np.asarray(class_draws(jax.random.key(0), points, labels, 0.1))
    np.testing.assert_allclose(found.mean(axis=0), records.mean(axis=0), atol=0.1)
    np.testing.assert_allclose(np.cov(found.T), np.cov(records.T), atol=0.15)
    means = np.asarray(class_means(jax.random.key(0), points, labels, 0.0))
    assert np.trace(np.cov(means.T)) < 0.2 * np.trace(np.cov(records.T))
    small = np.asarray(class_draws(jax.random.key(0), points, jnp.eye(2)[1:], 0.1))
    assert np.abs(small - np.asarray(points.x).mean(axis=0)).max() < 0.5
    padded = np.asarray(class_draws(jax.random.key(0), pad_points(points, 20), labels[:3], 0.1))
    unpadded = np.asarray(class_draws(jax.random.key(0), points, labels[:3], 0.1))
    np.testing.assert_allclose(padded, unpadded, rtol=1e-4)


def test_neighbour_mixes_are_of_five_records_that_are_alike():
    """A class of two groups of five records, far apart: a mixture is of one group, with the shares in some order, so
    that their covariance is the group's times the sum of squares of (share - 1/5). Negative control: the class's own
    Gaussian is mostly in between, where no record is."""
    group = DRAWS.normal(size=(5, 2)) @ [[1.0, 0.6], [0.0, 0.8]]
    far = np.asarray([100.0, 0.0])
    records = np.concatenate([group + far, group - far, [[50.0, 50.0]] * 4])
    points = make_points(records, np.eye(2)[[0] * 10 + [1] * 4])
    labels = jnp.broadcast_to(jnp.eye(2)[0], (4000, 2))
    found = np.asarray(neighbour_mixes(jax.random.key(0), points, labels, 0.1))
    is_right = found[:, 0] > 0
    assert np.mean(is_right) == pytest.approx(0.5, abs=0.001)  # no record is the first of a group more often
    near = found - np.where(is_right[:, None], far, -far)
    np.testing.assert_allclose(near.mean(axis=0), group.mean(axis=0), atol=0.1)
    np.testing.assert_allclose(np.cov(near.T), np.var(SHARES) * 5 * np.cov(group.T), atol=0.15)
    mixtures = np.asarray([np.asarray(shares) @ group for shares in itertools.permutations(SHARES)])
    assert np.max(np.min(np.linalg.norm(near[:100, None] - mixtures[None], axis=2), axis=1)) < 1e-3
    between = np.asarray(class_draws(jax.random.key(0), points, labels, 0.1))
    assert np.mean(np.abs(np.abs(between[:, 0]) - 100) > 20) > 0.5
    small = np.asarray(neighbour_mixes(jax.random.key(0), points, jnp.eye(2)[1:], 0.1))
    assert np.abs(small - records.mean(axis=0)).max() < 0.5
    padded = np.asarray(neighbour_mixes(jax.random.key(0), pad_points(points, 20), labels[:3], 0.1))
    unpadded = np.asarray(neighbour_mixes(jax.random.key(0), points, labels[:3], 0.1))
    np.testing.assert_allclose(padded, unpadded, rtol=1e-4)


def test_no_record_has_more_than_half_of_a_mixture():
    assert len(SHARES) == MIN_GROUP
    assert sum(SHARES) == pytest.approx(1.0)
    assert max(SHARES) <= 0.5


def test_labels_in_proportion_to_the_records_by_hand(image_model):
    """Of 12, 5 and 1 records and six points: one each, then 12/3, 12/5 and 12/7 are above 5/3; weights: 12 : 5 : 1."""
    model = replace(image_model, num_outputs=4)
    data = make_points(np.zeros((18, 6, 6, 1)), np.eye(4)[[1] * 12 + [0] * 5 + [3]])
    labels, weight = proportional_labels(model, data, 6)
    np.testing.assert_array_equal(np.argmax(labels, axis=1), [1, 0, 3, 1, 1, 1])
    np.testing.assert_allclose(np.asarray(weight @ labels) * 18 / 6, [5, 12, 0, 1], rtol=1e-6)
    few, weight = proportional_labels(model, data, 2)
    np.testing.assert_array_equal(np.argmax(few, axis=1), [1, 0])
    assert float(jnp.mean(weight)) < 1  # the third class has no point, and nothing stands for it


def test_paper_is_another_name_for_the_mean(make_bpc):
    assert make_bpc(start="paper") == make_bpc(start="mean")


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_soft_labels_are_what_the_experts_predict(make_bpc, image_model, images, share):
    """By hand: the mean over the experts' last weights of each one's class probabilities, and the rest is one-hot."""
    learner = make_bpc(**{**IMAGES, "num_held_out": 0}, start="class_mean", soft_labels=share)
    points = learn(learner, image_model, images)
    experts = experts_with_keys(learner, image_model, images)
    shapes = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), image_model.shapes())
    unravel = ravel_pytree(shapes)[1]
    each = [jax.nn.softmax(image_model.apply(unravel(flat), points.x)) for flat in experts]
    hard = jax.nn.one_hot(jnp.asarray([0, 1, 0, 1]), 2)
    np.testing.assert_allclose(points.y, (1 - share) * hard + share * np.mean(each, axis=0), atol=1e-5)
    np.testing.assert_allclose(points.y.sum(axis=1), 1, atol=1e-5)
    assert (float(jnp.max(jnp.abs(points.y - hard))) > 1e-3) == (share > 0)


def experts_with_keys(learner, model, points):
    """The last weights of the experts that `learn` trains."""
    records = Records(jax.tree.map(lambda array: array[None], points), learner.releases(model))
    state = learner.init(fold_each(jax.random.key(7)[None], 0), model, records, jax.random.key(8))
    return state.local.value.experts.last()[0]


def test_soft_labels_need_classes_and_kept_experts(make_bpc, make_model, sample_points):
    with pytest.raises(CoreshotError, match="regression has none"):
        experts_of(make_bpc(soft_labels=0.5), make_model("regression"), sample_points("regression", 0, 8))
    learner = make_bpc(soft_labels=0.5, experts={"store": "replay"})
    with pytest.raises(CoreshotError, match="does not keep"):
        experts_of(learner, make_model("classification"), sample_points("classification", 0, 8))
