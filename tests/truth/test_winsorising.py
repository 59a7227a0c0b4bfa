"""Numbers far from the others are moved to a limit: by hand, sent, undone for novelty, and of use."""

import numpy as np
import pytest
from scipy.stats import norm

from coreshot.api import distill
from coreshot.errors import CoreshotError
from coreshot.estimator import SpectralClassifier
from coreshot.fitted.model import fit
from coreshot.glm.winsorising import UNLIMITED, Limits
from coreshot.methods.glm import Glm
from coreshot.models.networks import Mlp
from coreshot.study import Agreement, Study
from coreshot.wire.messages import decode_message

GRID = np.linspace(0, 1, 101)  # its 10 % and 90 % quantiles are 0.1 and 0.9, and the limits 0.8 further out


def columns(*every):
    return np.stack(every, axis=1)


def make_study(dimension=6, **settings):
    agreement = Agreement(task="t", kind="classification", input_shape=(2,), num_outputs=2, prior_precision=1.0)
    return Study(agreement, Mlp(hidden=(), activation="relu"), Glm(dimension=dimension, **settings))


def make_records(seed=0, num=400):
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 0.1, size=(num, 2))
    y = (x[:, 0] - x[:, 1] + 0.1 * rng.normal(size=num) > 0).astype(int)
    return x, y


def test_limits_are_quantiles_moved_out_by_their_distance():
    limits = Limits.of_records(columns(GRID, GRID), (0,), ())
    assert (limits.lowest[0], limits.highest[0]) == pytest.approx((-0.7, 1.7), abs=1e-6)
    assert limits.highest[1] == -limits.lowest[1] == UNLIMITED, "it is not among the numbers"
    assert np.float32(UNLIMITED) == UNLIMITED
    far = columns(np.asarray([-9.0, 0.5, 9.0]), np.asarray([-9.0, 0.5, 9.0]))
    np.testing.assert_allclose(limits(far), [[-0.7, -9], [0.5, 0.5], [1.7, 9]], atol=1e-6)


def test_the_tail_of_many_log_normal_numbers_stays_and_that_of_few_does_not():
    quantiles = np.exp(norm.ppf((np.arange(4000) + 0.5) / 4000))[:, None]
    many = Limits.of_records(quantiles, (0,), ())
    assert np.log(many.highest[0]) == pytest.approx(3 * norm.ppf(0.9), abs=0.02)
    np.testing.assert_array_equal(many(quantiles), quantiles)
    mirrored = Limits.of_records(-quantiles, (0,), ())
    assert (-mirrored.lowest[0], -mirrored.highest[0]) == (many.highest[0], many.lowest[0])
    few = Limits.of_records(quantiles[::4], (0,), ())
    low, high = np.quantile(quantiles[::4], [0.1, 0.9])
    assert (few.lowest[0], few.highest[0]) == pytest.approx((low - (high - low), high + (high - low)))
    assert np.mean(quantiles > few.highest[0]) > 0.01, "negative control"


def test_wrong_cells_up_to_a_tenth_do_not_move_the_limits_far():
    wrong = np.concatenate([GRID, np.full(9, 1000.0)])
    limits = Limits.of_records(wrong[:, None], (0,), ())
    assert limits.highest[0] < 2, limits
    too_many = np.concatenate([GRID, np.full(13, 1000.0)])
    assert Limits.of_records(too_many[:, None], (0,), ()).highest[0] > 100, "negative control: more than a tenth"


@pytest.mark.parametrize(
    "cells", [np.repeat([0.0, 1.0], [400, 4]), np.arange(15.0), np.repeat([0.0, *np.arange(1, 12)], [400, *[1] * 11])]
)
def test_codes_and_few_cells_have_no_limits(cells):
    """A rare code may be what matters; and where nearly all cells are equal, the quantiles are."""
    assert Limits.of_records(cells[:, None], (0,), ()).highest[0] == UNLIMITED


def test_missing_cells_do_not_count():
    x = columns(np.concatenate([GRID, np.full(300, 50.0)]), np.repeat([0.0, 1.0], [101, 300]))
    assert Limits.of_records(x, (0,), ((0, 1),)).highest[0] == pytest.approx(1.7, abs=1e-6)
    assert Limits.of_records(x, (0,), ()).highest[0] > 50, "negative control: without the indicator"


def test_the_widest_limits_of_the_sites_that_have_any():
    def site(low, high):
        return Limits(np.asarray([low, -UNLIMITED]), np.asarray([high, UNLIMITED]))

    found = Limits.of_sites([site(-1, 2), site(-3, 1), site(-UNLIMITED, UNLIMITED)])
    assert (found.lowest[0], found.highest[0]) == (-3, 2)
    assert found.highest[1] == UNLIMITED


def test_a_message_has_its_limits_and_a_forged_pair_is_refused():
    x, y = make_records()
    study = make_study(winsorise=True)
    message = decode_message(distill(study, x, y, client="a"), study_hash=study.hash)
    content = study.method.read(study.model, "a", message)
    expected = Limits.of_records(x.astype(np.float32).astype(np.float64), (0, 1), ())
    np.testing.assert_allclose(content.limits.highest, expected.highest, rtol=1e-6)
    message.arrays["limits"] = message.arrays["limits"][::-1]
    with pytest.raises(CoreshotError, match="out of range"):
        study.method.read(study.model, "a", message)
    plain = make_study()
    assert "limits" not in decode_message(distill(plain, x, y, client="a"), study_hash=plain.hash).arrays


def test_cells_without_their_decimal_point_weigh_little():
    x, y = make_records()
    dirty, rng = x.copy(), np.random.default_rng(1)
    lost = rng.random(x.shape) < 0.04
    dirty[lost] = np.clip(10 * np.abs(dirty[lost]), -1, 1)

    def loss(winsorise, records):
        study = make_study(dimension=2, winsorise=winsorise)  # powers would take up some of it
        model = fit(study, [distill(study, records[own::2], y[own::2], client=str(own)) for own in range(2)])
        new_x, new_y = make_records(seed=2, num=2000)
        return -np.mean(np.log(np.asarray(model.predict(new_x).mean)[np.arange(2000), new_y]))

    clean = loss(False, x)
    limited, unlimited = loss(True, dirty) - clean, loss(False, dirty) - clean
    assert unlimited > 0.05, "negative control: without limits"
    assert limited < unlimited / 2


def test_a_far_record_is_predicted_at_the_limit_and_still_looks_new():
    x, y = make_records()
    study = make_study(winsorise=True)
    model = fit(study, [distill(study, x, y, client="a")])
    limit = float(Limits.of_records(x, (0, 1), ()).highest[0])
    at, beyond = np.asarray([[limit, 0.0]]), np.asarray([[3 * limit, 0.0]])
    np.testing.assert_allclose(model.predict(at).mean, model.predict(beyond).mean, atol=1e-4)
    assert model.posterior.novelty(beyond) > 2 * model.posterior.novelty(at)


def test_gaussian_numbers_stay_as_they_are():
    x, y = make_records(num=300)
    sites = np.arange(300) % 2
    found = SpectralClassifier(ranges=[[-1, 1]] * 2).fit(x, y, sites=sites).predict_proba(x)
    study = make_study()
    assert np.all(Limits.of_records(x, (0, 1), ()).highest > np.max(x, axis=0))
    plain = fit(study, [distill(study, x[sites == s], y[sites == s], client=str(s)) for s in range(2)]).predict(x)
    assert np.mean(np.abs(found - np.asarray(plain.mean))) < 0.03
