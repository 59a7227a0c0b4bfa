"""The audit against the private mechanism, in 20 configurations: it never accuses noise that is there, and half the
noise it catches.
"""

import numpy as np
import pytest
from scipy.stats import norm

from coreshot.audit.attack import auc, run_attack
from coreshot.audit.bound import lower_bound
from coreshot.audit.statistics import moment_statistic
from coreshot.config import decode_named
from coreshot.methods import METHODS
from coreshot.methods.private_spectral import CROSS_SHARE, STATISTICS, moment_rows
from coreshot.privacy import gaussian_moments
from coreshot.privacy.gaussian_moments import LABEL_UNIT, UNIT, Deviations, exact_moments, noisy_moments
from coreshot.privacy.guarded_records import guard_records
from coreshot.privacy.promise import promised_epsilon
from coreshot.study import Study
from coreshot.types import make_points

CONFIDENCE = 0.999  # of each bound: in 20 of them one false accusation has a chance of 2 %, at the very most
# Trials with and without the canary, by epsilon: about as many as half the noise needs to be caught.
TRIALS = {1.0: 3000, 1.5: 1800, 2.0: 1200, 3.0: 900, 4.0: 600}
CONFIGURATIONS = [(epsilon, seed) for epsilon in TRIALS for seed in range(4)]


@pytest.fixture(scope="module")
def make_private(make_study):
    def make(epsilon, seed):
        values = {"name": "private_spectral", "features": {"name": "random_vector", "dimension": 3 + seed}}
        method = decode_named(METHODS, {**values, "privacy": {"epsilon": epsilon, "delta": 1e-5}}, "test", "method")
        plain = make_study("classification", seed=seed)
        return Study(plain.agreement, plain.network, method=method)

    return make


def symmetric(triangles, size):
    """Of all trials at once."""
    matrices = np.zeros((len(triangles), size, size))
    line, column = np.triu_indices(size)
    matrices[:, line, column] = matrices[:, column, line] = triangles
    return matrices


def audited(study, seed, num_trials):
    """As `coreshot audit`, less the wire: the mechanism itself, thousands of times on the same rows."""
    draws = np.random.default_rng(seed)
    num = 20 + 5 * seed
    points = make_points(draws.normal(size=(num, 2)), np.eye(2)[draws.integers(2, size=num)])
    rows, labels = moment_rows(study.method.draw_public(study.model, study.shared_key), points)

    def statistics(num_records):
        def rows_of(_):
            return rows[:num_records], labels[:num_records]

        exact = exact_moments(*rows_of(points))  # the same in each trial; only the noise is another
        doors = [guard_records({"a": points}, study.releases)["a"] for _ in range(num_trials)]  # each opens once
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gaussian_moments, "exact_moments", lambda *_: exact)
            noisy = [noisy_moments(records, STATISTICS, rows_of, CROSS_SHARE) for records in doors]
        gram = symmetric(np.stack([one.gram for one in noisy]) / UNIT**2, rows.shape[1])
        cross = np.stack([one.cross for one in noisy]) / (UNIT * LABEL_UNIT)
        return moment_statistic(gram, cross, rows[-1], labels[-1])[:, None]

    return run_attack(statistics(num), statistics(num - 1))


def bounds(make_private):
    """Of all configurations: the bound and the claim."""
    found = []
    for epsilon, seed in CONFIGURATIONS:
        study = make_private(epsilon, seed)
        seen = audited(study, seed, TRIALS[epsilon])
        found.append((lower_bound(seen, study.releases, CONFIDENCE).epsilon, promised_epsilon(study.releases)))
    return np.array(found)


def test_the_bound_stays_below_the_claim_in_20_configurations(make_private):
    found = bounds(make_private)
    assert len(found) == 20
    assert np.all(found[:, 0] <= found[:, 1]), found
    assert np.allclose(found[:, 1], [epsilon for epsilon, _ in CONFIGURATIONS], rtol=5e-3)


def test_half_the_noise_is_caught_in_most_of_them(make_private, monkeypatch):
    """Who claims as before and adds half: the releases in the header say the same, and only the audit can know."""
    true = gaussian_moments.deviations

    def halved(*arguments):
        noise = true(*arguments)
        return Deviations(noise.diagonal / 2, noise.cross / 2)

    monkeypatch.setattr(gaussian_moments, "deviations", halved)
    found = bounds(make_private)
    assert np.sum(found[:, 0] > found[:, 1]) >= 15, found


def test_the_score_is_as_good_as_the_noise_allows(make_private):
    """The best attack on N(0, z^2) against N(1, z^2) has the AUC Phi(1 / (z sqrt(2))), and nothing the mechanism
    does makes it easier.
    """
    study = make_private(4.0, 0)
    seen = audited(study, 0, 3000)
    expected = norm.cdf(1 / study.releases[0].noise_multiplier / np.sqrt(2))
    assert auc(seen.held_out) == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(2000))
    shift = np.mean(seen.held_out.inside) - np.mean(seen.held_out.outside)
    assert shift == pytest.approx(1, abs=4 * study.releases[0].noise_multiplier * np.sqrt(2 / 2000))
