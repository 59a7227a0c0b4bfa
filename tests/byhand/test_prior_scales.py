"""The prior of a column with two values is in units of its values, however the study codes them."""

import numpy as np
import pytest

from coreshot.glm.polynomials import Polynomials
from coreshot.glm.prior_scales import LARGEST, prior_scales

SIZE = 400


def scales_of(x, terms=((0,), (1,), (0, 1)), two_valued=(0, 1)):
    polynomials = Polynomials(terms, two_valued)
    features = polynomials(x)
    return prior_scales(polynomials, features.T @ features)


def two_columns(share, other=0.5):
    """Independent columns of 0 and 1 with these shares of 1, exactly."""
    own = np.repeat([1.0, 0.0], [round(share * SIZE), round((1 - share) * SIZE)])
    return np.array(
        [(one, two) for one in own for two in np.repeat([1.0, 0.0], [round(20 * other), round(20 - 20 * other)])]
    )


@pytest.mark.parametrize("share", [0.5, 0.1, 0.02])
def test_a_rare_value_has_the_precision_of_its_raw_unit(share):
    expected = 1 / (4 * share * (1 - share))
    x = two_columns(share, 0.25)
    np.testing.assert_allclose(scales_of(x), [expected, 4 / 3, expected * 4 / 3], rtol=1e-9)
    np.testing.assert_allclose(scales_of(2 * x - 1), scales_of(x), rtol=1e-9)  # yes and no are 1 and -1


def test_numbers_and_standardised_columns_have_no_scale():
    x = two_columns(0.02)
    np.testing.assert_array_equal(scales_of(x, two_valued=()), np.ones(3))
    assert scales_of(x, two_valued=(1,))[0] == 1.0
    np.testing.assert_allclose(scales_of((x - x.mean(axis=0)) / x.std(axis=0)), np.ones(3), rtol=1e-9)
    small = 0.01 * np.random.default_rng(0).normal(size=(SIZE, 2)) - 0.5  # a number that somebody calls no number
    np.testing.assert_array_equal(scales_of(small), np.ones(3))


def test_a_column_that_never_varies_has_a_finite_scale():
    assert np.all(scales_of(np.zeros((SIZE, 2))) <= LARGEST)
    assert np.all(scales_of(np.ones((SIZE, 2))) <= LARGEST)
