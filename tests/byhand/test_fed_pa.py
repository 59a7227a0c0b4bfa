"""FedPA on one weight, one client with x = 1 and y = 9: its gradient is w - 9, so steps of 0.5 go 1, 5, 7, 8, 8.5,
8.75.
"""

import pytest

from coreshot.config import decode, encode
from coreshot.errors import CoreshotError
from coreshot.methods import FedPa
from coreshot.models.training import Optimizer
from coreshot.types import make_points


@pytest.fixture
def client():
    return {"a": make_points([[1.0]], [[9.0]])}


def fed_pa(local_steps=2, num_samples=2, shrinkage=1.0, burn_in_rounds=0, burn_in_steps=0, momentum=0.0):
    return FedPa(
        num_rounds=3,
        local_steps=local_steps,
        batch_size=8,
        client_optimizer=Optimizer(name="sgd", step_size=0.5, momentum=momentum),
        server_optimizer=Optimizer(name="sgd", step_size=1.0),
        num_samples=num_samples,
        shrinkage=shrinkage,
        burn_in_rounds=burn_in_rounds,
        burn_in_steps=burn_in_steps,
    )


@pytest.fixture
def delta(play, client, weight_of):
    """What the client sent in the first round: the server takes steps of 1."""
    return lambda method: 1 - weight_of(play(method, client))


def test_two_samples(delta):
    """5 and 7: mean 6, variance 2; s = 1 / (1 + 1) = 1/2, so Sigma = 1/2 + 2/2 = 3/2 and Delta = (1 - 6) / (3/2)."""
    assert delta(fed_pa()) == pytest.approx(-10 / 3, rel=1e-6)
    assert delta(fed_pa()) != pytest.approx(-5 / (1 / 2 + 1 / 2), rel=1e-3)  # with the variance over l, 1


def test_without_shrinkage_it_is_the_way_to_the_mean_of_the_samples(delta):
    """s = 1: Sigma is the identity."""
    assert delta(fed_pa(shrinkage=0.0)) == pytest.approx(1 - 6, rel=1e-6)


def test_a_burn_in_round_sends_fed_avgs_delta(delta):
    """To the last iterate, 7, and not to the mean."""
    assert delta(fed_pa(burn_in_rounds=1)) == pytest.approx(1 - 7, rel=1e-6)


def test_burn_in_is_so_many_rounds_and_no_more(play, client, weight_of):
    """Round 1 goes to 7; round 2 goes 8, 8.5: mean 8.25, variance 1/8, Sigma = 1/2 + 1/16, so by 1.25 / (9/16)."""
    assert weight_of(play(fed_pa(burn_in_rounds=1), client, 2)) == pytest.approx(7 + 1.25 * 16 / 9, rel=1e-6)
    assert weight_of(play(fed_pa(burn_in_rounds=2), client, 2)) == pytest.approx(8.5, rel=1e-6)


def test_burn_in_steps_and_samples_of_two_iterates(delta):
    """After 5: (7 + 8) / 2 = 7.5 and (8.5 + 8.75) / 2 = 8.625, of mean 8.0625 and variance 1.125^2 / 2; rho =
    1/2: s = 2/3.
    """
    method = fed_pa(local_steps=5, burn_in_steps=1, shrinkage=0.5)
    assert delta(method) == pytest.approx((1 - 8.0625) / (2 / 3 + 1.125**2 / 2 / 3), rel=1e-6)


def test_one_sample_has_no_covariance(delta):
    """The mean of 5 and 7, and s = 1 whatever the shrinkage."""
    assert delta(fed_pa(num_samples=1)) == pytest.approx(-5, rel=1e-6)


def test_momentum_is_carried_from_sample_to_sample(delta):
    """Gradients -8 and -4; momentum 1/2: steps 4 and 0.5 * (4 + 8/2) = 4, samples 5 and 9. Begun anew, the second
    would be 7 and Delta -5.
    """
    assert delta(fed_pa(momentum=0.5, shrinkage=0.0)) == pytest.approx(1 - 7, rel=1e-6)


@pytest.mark.parametrize("changes", [{"local_steps": 3}, {"burn_in_steps": 2}, {"burn_in_rounds": -1}])
def test_steps_that_cannot_be_cut_into_samples_are_refused(changes):
    values = encode(fed_pa())
    assert decode(FedPa, values, "test") == fed_pa()
    with pytest.raises(CoreshotError, match="cannot be cut into 2 samples") as error:
        decode(FedPa, {**values, **changes}, "test")
    assert "\n" not in str(error.value)
