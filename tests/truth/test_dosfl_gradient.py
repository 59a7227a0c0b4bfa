"""DOSFL's gradient through the checkpointed replay is that of plain backpropagation, and its memory grows by the
weights, not by activations.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from coreshot.methods import Dosfl
from coreshot.methods.dosfl import Distilled, distilled_loss, replay
from coreshot.models import Model
from coreshot.models.networks import Mlp
from coreshot.models.training import Optimizer
from coreshot.types import Points, make_points

BATCH = 256  # points a distilled step: of 66 activations each, against 1,153 weights
FEW, MANY = 10, 100  # distilled steps
METHOD = Dosfl(
    distill_steps=2,
    distill_epochs=2,
    distill_batch_size=2,
    num_updates=1,
    batch_size=8,
    init_scale=0.5,
    initial_step_size=0.1,
    x_optimizer=Optimizer(name="sgd", step_size=0.1),
)


def one_step(model, params, one):
    batch = Points(one.x, one.y, jnp.ones(len(one.x)))
    gradient = jax.grad(lambda params: -model.log_prob(params, batch) / len(one.x))(params)
    return jax.tree.map(lambda weight, slope: weight - one.step_size * slope, params, gradient)


def plain_replay(model, num_epochs, params, distilled):
    """The same steps as a Python loop: nothing is checkpointed, nothing is computed twice."""
    for _ in range(num_epochs):
        for index in range(len(distilled.step_size)):
            params = one_step(model, params, jax.tree.map(lambda array, index=index: array[index], distilled))
    return params


@pytest.fixture(scope="module")
def model(make_model):
    return make_model("classification")


@pytest.fixture(scope="module")
def points(sample_points):
    return sample_points("classification", 0, 6)


@pytest.fixture(scope="module")
def start(model):
    return model.init(jax.random.key(1))


@pytest.fixture(scope="module")
def distilled():
    """Two steps of two points with soft labels; step sizes as large as 0.3, so that the run goes somewhere."""
    draws = np.random.default_rng(3)
    labels = draws.dirichlet(np.ones(2), size=(2, 2))
    return Distilled(
        *(jnp.asarray(part, jnp.float32) for part in (draws.normal(size=(2, 2, 2)), labels, draws.uniform(0.1, 0.3, 2)))
    )


def relative_distance(found, truth):
    found, truth = ravel_pytree(found)[0], ravel_pytree(truth)[0]
    return float(jnp.linalg.norm(found - truth) / jnp.linalg.norm(truth))


@pytest.fixture(scope="module")
def gradient(model, points, start, distilled):
    """Of the loss after two passes, as a client takes it."""
    return jax.jit(
        jax.grad(lambda distilled: distilled_loss(METHOD, model, jax.random.key(0), points, start, distilled))
    )(distilled)


@pytest.mark.parametrize(("num_epochs", "is_right"), [(2, True), (1, False)])
def test_gradient_is_that_of_plain_backpropagation(model, points, start, distilled, gradient, num_epochs, is_right):
    """To 1e-5; one pass in place of two, the negative control, is told apart."""

    def plain(distilled):
        return -model.log_prob(plain_replay(model, num_epochs, start, distilled), points) / points.num_points

    distance = relative_distance(jax.jit(jax.grad(plain))(distilled), gradient)
    assert distance < 1e-5 if is_right else distance > 1e-2


def test_a_gradient_that_stops_at_the_last_step_is_told_apart(model, points, start, distilled, gradient):
    """Negative control: through the last step only, as if the weights before it were given."""

    def short(distilled):
        before = jax.lax.stop_gradient(
            one_step(model, plain_replay(model, 1, start, distilled), jax.tree.map(lambda array: array[0], distilled))
        )
        return (
            -model.log_prob(one_step(model, before, jax.tree.map(lambda array: array[1], distilled)), points)
            / points.num_points
        )

    assert relative_distance(jax.jit(jax.grad(short))(distilled), gradient) > 1e-2


def unchecked_replay(model, num_epochs, params, distilled):
    """As `replay`, without jax.checkpoint."""

    def epoch(params, _):
        return jax.lax.scan(lambda params, one: (one_step(model, params, one), None), params, distilled)[0], None

    return jax.lax.scan(epoch, params, None, length=num_epochs)[0]


def bytes_a_step(replay, model, num_epochs):
    """What the gradient's working memory grows by for each distilled step."""
    start = jax.eval_shape(model.init, jax.random.key(0))
    real = make_points(np.zeros((BATCH, 1)), np.zeros((BATCH, 1)))

    def size(num_steps):
        shapes = [
            jax.ShapeDtypeStruct(shape, jnp.float32)
            for shape in ((num_steps, BATCH, 1), (num_steps, BATCH, 1), (num_steps,))
        ]
        gradient = jax.jit(
            jax.grad(lambda distilled, start: -model.log_prob(replay(model, num_epochs, start, distilled), real))
        )
        return gradient.lower(Distilled(*shapes), start).compile().memory_analysis().temp_size_in_bytes

    return (size(MANY) - size(FEW)) / (MANY - FEW)


@pytest.fixture(scope="module")
def wide():
    return Model(Mlp(hidden=(32, 32), activation="tanh"), "regression", (1,), 1, 0.1, 1.0)


@pytest.mark.parametrize("num_epochs", [1, 3])
def test_memory_grows_by_one_copy_of_the_weights_a_step(wide, num_epochs):
    """One a step of each pass; beside them at most four times the step's own x, y and step size (its gradient, in
    each form it passes through).
    """
    weights, batch = 4 * wide.num_params(), 4 * (2 * BATCH + 1)
    assert weights == 4 * 1153
    assert bytes_a_step(replay, wide, num_epochs) < num_epochs * weights + 4 * batch


def test_without_checkpoints_it_grows_by_the_activations(wide):
    """Negative control: at least those of the two hidden layers, 14 copies of the weights."""
    activations = 4 * BATCH * 64
    assert activations > 14 * 4 * wide.num_params()
    assert bytes_a_step(unchecked_replay, wide, 1) > activations
