"""A site that took no part: intervals hold what they say where sites differ, and do not without the sites' variance."""

import numpy as np
import pytest
import scipy.stats

from coreshot.errors import CoreshotError
from coreshot.fitted.model import FittedModel
from coreshot.fitted.new_place import at_new_place
from coreshot.glm.between_sites import compare_residuals
from coreshot.glm.head import fit_head
from coreshot.glm.polynomials import Polynomials
from coreshot.glm.posterior import GlmPosterior
from coreshot.glm.summary import Summary, add_summaries, collect_moments

REACH = scipy.stats.norm.ppf(0.95)
POLYNOMIALS = Polynomials(((0,), (1,)))


def site(draws, size, own):
    x = draws.uniform(-1, 1, size=(size, 2))
    return x, x @ [0.3, -0.2] + own


def federation(draws, deviation, num_sites=12):
    parts = [site(draws, 100, deviation * draws.normal()) for _ in range(num_sites)]
    sums = []
    for x, expected in parts:
        y = (expected + 0.2 * draws.normal(size=len(x)))[:, None]
        sums.append(Summary.from_moments(collect_moments(POLYNOMIALS(x), y), 1, None))
    head = fit_head(POLYNOMIALS, add_summaries(sums))
    return GlmPosterior(POLYNOMIALS, "regression", head, new_site=compare_residuals(head, sums))


def test_ninety_per_cent_intervals_of_a_new_site_hold_ninety_per_cent():
    draws, held, variances = np.random.default_rng(0), {"with": [], "without": []}, []
    for _ in range(60):
        posterior = federation(draws, 0.2)
        variances.append(posterior.new_site.site_variance)
        for _ in range(10):
            x, expected = site(draws, 1, 0.2 * draws.normal())
            for name, one in (("with", posterior.at_new_site()), ("without", posterior)):
                mean, variance = one.scores(x)
                held[name].append(abs(mean[0, 0] - expected[0]) <= REACH * np.sqrt(variance[0, 0]))
    assert 0.86 < np.mean(held["with"]) < 0.94
    assert np.mean(held["without"]) < 0.5  # negative control
    assert abs(np.mean(variances) / 0.04 - 1) < 0.2


def test_sites_that_do_not_differ_have_nearly_no_variance():
    draws = np.random.default_rng(0)
    assert np.mean([federation(draws, 0.0).new_site.site_variance for _ in range(20)]) < 0.001


def test_only_a_model_that_knows_its_clients_is_asked_about_new_places():
    with pytest.raises(CoreshotError, match="only a study of the method glm"):
        at_new_place(FittedModel(None, None))
