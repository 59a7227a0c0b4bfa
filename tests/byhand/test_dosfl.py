"""DOSFL on one weight: a distilled step is w <- w - eta (w x - y) x, from w = 1."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.errors import CoreshotError
from coreshot.methods import Dosfl
from coreshot.methods.dosfl import Distilled, distilled_loss, replay
from coreshot.models.training import Optimizer
from coreshot.types import make_points
from coreshot.wire.messages import Message

START = {"w": jnp.ones(1)}
DATA = make_points([[1.0]], [[4.0]])  # the loss is (w - 4)^2 / 2 + CONSTANT
CONSTANT = 0.5 * np.log(2 * np.pi)


def steps(*of):
    """Steps of one point each, as (x, y, eta)."""
    x, y, eta = map(jnp.asarray, zip(*of, strict=True))
    return Distilled(x[:, None, None], y[:, None, None], eta)


A = steps((1.0, 2.0, 0.5), (2.0, 2.0, 0.1))  # 1 -> 1.5 -> 1.5 - 0.1 * (3 - 2) * 2 = 1.3
B = steps((1.0, 0.0, 0.5), (1.0, 3.0, 0.5))


def dosfl(**changes):
    values = {
        "distill_steps": 2,
        "distill_epochs": 1,
        "distill_batch_size": 1,
        "num_updates": 1,
        "batch_size": 4,
        "init_scale": 0.5,
    }
    return Dosfl(**{**values, "initial_step_size": 0.1, "x_optimizer": Optimizer(name="sgd", step_size=0.5), **changes})


def message(distilled):
    arrays = {"x": distilled.x, "y": distilled.y, "step_size": distilled.step_size, "num_examples": jnp.ones(1)}
    return Message("distilled", 0, arrays)


def served(model, num_epochs, replies):
    """The server's weights after these replies."""
    method, key = dosfl(distill_epochs=num_epochs), jax.random.key(0)
    contents = {name: method.read(model, name, message(one)) for name, one in replies.items()}
    state = method.receive(key, model, method.init(key, model, key), contents)
    assert method.send(key, model, state, ("a", "b")) is None
    return float(method.posterior(key, model, state)[0].params["w"][0, 0])


def test_one_clients_steps(slope):
    assert served(slope, 1, {"a": A}) == pytest.approx(1.3, rel=1e-6)


def test_two_clients_are_interleaved(slope):
    """a 1.5; b 0.75; a 0.75 + 0.1 * (2 - 1.5) * 2 = 0.85; b 0.85 + 0.5 * 2.15 = 1.925. One after the other: 1.5,
    1.3, 0.65, 1.825.
    """
    found = served(slope, 1, {"b": B, "a": A})
    assert found == pytest.approx(1.925, rel=1e-6)
    assert found != pytest.approx(1.825, rel=1e-3)


def test_two_epochs_go_over_all_twice(slope):
    """On from 1.925: a 1.9625; b 0.98125; a 0.98125 + 0.1 * 0.0375 * 2 = 0.98875; b 0.98875 + 0.5 * 2.01125."""
    assert served(slope, 2, {"a": A, "b": B}) == pytest.approx(0.98875 + 0.5 * 2.01125, rel=1e-6)


def test_the_gradient_of_a_batch_is_the_mean_of_its_points(slope):
    """x = 1, 2 and y = 2, 2, eta = 0.1: the gradient 2.5 - 3 = -0.5."""
    both = Distilled(jnp.array([[[1.0], [2.0]]]), jnp.full((1, 2, 1), 2.0), jnp.array([0.1]))
    assert float(replay(slope, 1, START, both)["w"][0]) == pytest.approx(1.05, rel=1e-6)


@pytest.mark.parametrize(("mask", "expected"), [((1, 1), 1.3), ((1, 0), 1.5), ((0, 1), 1.0), ((0, 0), 1.0)])
def test_a_masked_step_is_left_out(slope, mask, expected):
    """The second step alone: 1 - 0.1 * (2 - 2) * 2 = 1."""
    assert float(replay(slope, 1, START, A, jnp.asarray(mask))["w"][0]) == pytest.approx(expected, rel=1e-6)


def losses(slope, method, distilled, num=400):
    keys = jax.random.split(jax.random.key(3), num)
    return np.asarray(jax.vmap(lambda key: distilled_loss(method, slope, key, DATA, START, distilled))(keys)) - CONSTANT


def test_loss_after_the_steps(slope):
    """(1.3 - 4)^2 / 2, whatever the key: nothing is drawn."""
    np.testing.assert_allclose(losses(slope, dosfl(), A), 2.7**2 / 2, rtol=1e-5)


def test_masks_are_drawn_anew_in_each_update(slope):
    """A step is kept with probability 3/4: 1.3 in 9/16 of 400 updates, 1.5 in 3/16, 1.0 in 1/4; 4 standard
    deviations are below 0.1.
    """
    found = 4 - np.sqrt(2 * losses(slope, dosfl(mask_probability=0.25), A))
    shares = {end: np.mean(np.abs(found - end) < 1e-4) for end in (1.3, 1.5, 1.0)}
    assert sum(shares.values()) == 1
    expected = {1.3: 9 / 16, 1.5: 3 / 16, 1.0: 1 / 4}
    assert all(abs(shares[end] - expected[end]) < 0.1 for end in shares)
    assert abs(shares[1.3] - 1 / 16) > 0.1  # a step kept with probability 1/4 is told apart


@pytest.mark.parametrize("scale", [0.2, 0.4])
def test_a_soft_reset_moves_the_start(slope, scale):
    """Steps of size 0 leave it where it is: w = 1 + scale z. Mean and deviation of 400 within 4 standard errors."""
    still = steps((1.0, 2.0, 0.0), (2.0, 2.0, 0.0))
    found = 4 - np.sqrt(2 * losses(slope, dosfl(soft_reset_scale=scale), still))
    assert abs(np.mean(found) - 1) < 4 * scale / np.sqrt(400)
    assert abs(np.std(found) - scale) < 4 * scale / np.sqrt(800)
    assert abs(np.std(found) - 1.5 * scale) > 4 * scale / np.sqrt(800)  # another scale is told apart


def test_no_soft_reset_leaves_the_start(slope):
    still = steps((1.0, 2.0, 0.0), (2.0, 2.0, 0.0))
    np.testing.assert_allclose(losses(slope, dosfl(soft_reset_scale=0.0), still), 4.5, rtol=1e-5)


def distil(slope, method):
    """One update, and where it began."""
    key = jax.random.key(5)
    return method.initial_batches(jax.random.fold_in(key, 0), slope, DATA), method._distill(
        key, slope, DATA, START, lambda clients: None
    )[0]


def test_one_update_of_the_points(slope):
    """w = 1 - eta (x - y) x, so the loss has the slope -(w - 4) eta (2 x - y) in x. Labels and step sizes stay;
    clipped at norm 10.
    """
    before, after = distil(slope, dosfl(distill_steps=1, max_gradient_norm=10.0))
    x, y, eta = float(before.x[0, 0, 0]), float(before.y[0, 0, 0]), float(before.step_size[0])
    gradient = -(1 - eta * (x - y) * x - 4) * eta * (2 * x - y)
    assert (y, eta) == (4.0, pytest.approx(0.1))
    assert 0.1 < abs(gradient) < 10
    assert float(after.x[0, 0, 0]) == pytest.approx(x - 0.5 * gradient, rel=1e-4)
    assert np.array_equal(after.y, before.y)
    assert np.array_equal(after.step_size, before.step_size)


def test_one_update_of_labels_and_step_sizes(slope):
    """The slopes are (w - 4) eta x in y and -(w - 4) (x - y) x in eta."""
    optimizer = Optimizer(name="sgd", step_size=0.01)
    before, after = distil(
        slope, dosfl(distill_steps=1, max_gradient_norm=100.0, y_optimizer=optimizer, step_size_optimizer=optimizer)
    )
    x, y, eta = float(before.x[0, 0, 0]), float(before.y[0, 0, 0]), float(before.step_size[0])
    short = 1 - eta * (x - y) * x - 4
    assert float(after.y[0, 0, 0]) == pytest.approx(y - 0.01 * short * eta * x, rel=1e-5)
    assert float(after.step_size[0]) == pytest.approx(eta + 0.01 * short * (x - y) * x, rel=1e-4)


def test_long_gradients_are_clipped(slope):
    """To norm 0.01, so that the point moves by 0.5 * 0.01."""
    before, after = distil(slope, dosfl(distill_steps=1, max_gradient_norm=0.01))
    assert abs(float((after.x - before.x)[0, 0, 0])) == pytest.approx(0.005, rel=1e-3)


def test_no_replies_and_replies_of_another_shape_are_refused(slope):
    with pytest.raises(CoreshotError, match="no client's reply can be used"):
        served(slope, 1, {})
    with pytest.raises(CoreshotError, match="a"):
        served(slope, 1, {"a": steps((1.0, 2.0, 0.5))})
