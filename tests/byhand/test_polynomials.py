"""Polynomials by hand, and their standard basis whatever the ranges are."""

import numpy as np
import pytest

from coreshot.glm.polynomials import Polynomials, choose_terms


def test_terms_of_two_numbers_by_hand():
    assert choose_terms(2, (0, 1), (0, 1), 5) == ((0,), (1,), (0, 0), (1, 1), (0, 1))


def test_a_zero_one_input_has_no_powers():
    terms = choose_terms(2, (0,), (0, 1), 100)
    assert (1, 1) not in terms
    assert {(0, 0), (0, 1), (0, 0, 1)} <= set(terms)


def test_all_inputs_are_there_even_without_room():
    assert choose_terms(4, (0, 1, 2, 3), (0, 1, 2, 3), 2) == ((0,), (1,), (2,), (3,))


@pytest.mark.parametrize(("num_inputs", "dimension"), [(3, 30), (5, 60), (20, 128), (60, 128)])
def test_a_term_comes_with_the_terms_that_a_shift_of_a_column_makes_of_it(num_inputs, dimension):
    every = tuple(range(num_inputs))
    terms = choose_terms(num_inputs, every, every, dimension)
    assert len(terms) == len(set(terms)) <= dimension
    present = {(), *terms}
    for term in terms:
        for place in range(len(term)):
            assert term[:place] + term[place + 1 :] in present


def test_features_by_hand():
    polynomials = Polynomials(((0,), (1,), (0, 1)))
    np.testing.assert_array_equal(polynomials(np.asarray([[2.0, 3.0]])), [[1.0, 2.0, 3.0, 6.0]])


@pytest.mark.parametrize("width", [1.0, 4.0])
def test_the_standard_basis_does_not_depend_on_ranges(width):
    x = np.random.default_rng(0).gamma(2.0, size=(200, 3)) / 10 - 1
    every = (0, 1, 2)
    polynomials = Polynomials(choose_terms(3, every, every, 30))

    def standardised(inputs):
        features = polynomials(inputs)
        return features @ polynomials.standard_basis(features.T @ features)

    wide = (x + 1) / width - 1
    np.testing.assert_allclose(standardised(wide), standardised(x), atol=2e-3)
    found = standardised(x)
    np.testing.assert_allclose(found[:, 1:].mean(axis=0), 0, atol=1e-7)
    np.testing.assert_allclose(found[:, 1:].std(axis=0), 1, atol=1e-6)


def test_an_input_that_never_varies_becomes_zero():
    x = np.stack([np.linspace(-1, 1, 20), np.full(20, -1.0)], axis=1)
    polynomials = Polynomials(choose_terms(2, (0, 1), (0, 1), 5))
    features = polynomials(x)
    basis = polynomials.standard_basis(features.T @ features)
    moved = polynomials(x + np.asarray([0.0, 0.7])) @ basis
    np.testing.assert_allclose(moved, features @ basis, atol=1e-12)


def test_shifted_features_by_hand_and_back():
    polynomials = Polynomials(choose_terms(2, (0, 1), (0, 1), 9))
    x, center, scale = np.random.default_rng(0).normal(size=(7, 2)), np.asarray([0.3, -2.0]), np.asarray([0.1, 5.0])
    there = polynomials.shifted_basis(center, scale)
    np.testing.assert_allclose(polynomials(x) @ there, polynomials((x - center) / scale), rtol=1e-9)
    back = polynomials.shifted_basis(-center / scale, 1 / scale)
    np.testing.assert_allclose(there @ back, np.eye(len(there)), atol=1e-9)
