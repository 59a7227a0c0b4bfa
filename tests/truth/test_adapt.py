"""A model at another place: shares of classes with known answers, a site's own model, and when nothing is changed."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.special

from coreshot.api import distill
from coreshot.errors import CoreshotError
from coreshot.fitted.adapting import adapt_to_records, adapt_to_shares, adapt_to_unlabelled, find_client
from coreshot.fitted.model import fit, read_messages
from coreshot.fitted.posterior_file import posterior_bytes, read_posterior
from coreshot.glm.base_rates import balance_to_shares, estimate_shares
from coreshot.methods.glm import Glm
from coreshot.methods.spectral import Spectral
from coreshot.models.networks import Mlp
from coreshot.spectral import personal as spectral_personal
from coreshot.spectral.features import RandomVector
from coreshot.study import Agreement, Study
from coreshot.types import make_points

KIND = {"classification": 2, "regression": 1}


def make(method, kind="classification", num_inputs=3):
    terms = Agreement(
        task="adapt", kind=kind, input_shape=(num_inputs,), num_outputs=KIND[kind], prior_precision=1.0, seed=0
    )
    return Study(terms, Mlp(hidden=(), activation="relu"), method)


def two_gaussians(draws, count, share, gap=1.2):
    """Records of two classes whose centres are `gap` deviations on either side of 0: only the share differs."""
    y = (draws.uniform(size=count) < share).astype(int)
    x = 0.25 * (draws.normal(size=(count, 3)) + gap * (2 * y - 1)[:, None] * [1.0, 0.0, 0.0])
    return x.astype(np.float32), y


def send(study, parts):
    return [distill(study, x, y, client=f"site-{number}") for number, (x, y) in enumerate(parts)]


def nll(model, x, y):
    return -np.mean(np.log(np.asarray(model.predict(x).mean)[np.arange(len(y)), y]))


@pytest.fixture(scope="module")
def by_shares():
    """Three sites that differ in their shares alone."""
    draws, study = np.random.default_rng(0), make(Glm(dimension=3))
    messages = send(study, [two_gaussians(draws, 400, share) for share in (0.2, 0.5, 0.6)])
    return study, read_messages(study, messages), fit(study, messages)


def test_shares_without_labels_are_found_and_bayes_rule_is_applied(by_shares):
    _, contents, model = by_shares
    x, y = two_gaussians(np.random.default_rng(1), 2000, 0.85)
    adapted = adapt_to_unlabelled(model, contents, x)
    assert abs(adapted.facts["shares"]["1"] - 0.85) < 0.04
    assert adapted.facts["trust"] == 1.0
    # The truth: log odds 2 gap x / deviation + log(0.85 / 0.15).
    truth = scipy.special.expit(2 * 1.2 * x[:, 0] / 0.25 + np.log(0.85 / 0.15))
    assert np.mean(np.abs(np.asarray(adapted.model.predict(x).mean)[:, 1] - truth)) < 0.02
    assert nll(adapted.model, x, y) < nll(model, x, y) - 0.05


def test_known_shares_with_and_without_records(by_shares):
    _, contents, model = by_shares
    x, y = two_gaussians(np.random.default_rng(1), 2000, 0.85)
    for records in (None, x):
        adapted = adapt_to_shares(model, contents, {"1": 0.85}, records)
        assert nll(adapted.model, x, y) < nll(model, x, y) - 0.05
    assert abs(np.mean(np.asarray(adapted.model.predict(x).mean)[:, 1]) - 0.85) < 1e-3
    for wrong in ({"2": 0.5}, {"1": 1.2}, {"0": 0.5, "1": 0.4}):
        with pytest.raises(CoreshotError, match="--share"):
            adapt_to_shares(model, contents, wrong)


def test_a_model_that_cannot_tell_the_classes_is_refused():
    draws, study = np.random.default_rng(0), make(Glm(dimension=3))
    messages = send(study, [two_gaussians(draws, 300, share, gap=0.0) for share in (0.4, 0.6)])
    with pytest.raises(CoreshotError, match="too badly to say how often"):
        adapt_to_unlabelled(
            fit(study, messages), read_messages(study, messages), two_gaussians(draws, 50, 0.9, gap=0.0)[0]
        )


def test_sites_that_differ_in_more_than_their_shares_are_not_corrected():
    """Negative control: a column is shifted from site to site, and the labels follow it."""
    draws, study, parts = np.random.default_rng(0), make(Glm(dimension=3)), []
    for shift in (-1.0, 0.0, 1.0):
        x = np.clip(0.3 * draws.normal(size=(400, 3)) + [0.6 * shift, 0, 0], -1, 1).astype(np.float32)
        parts.append((x, (draws.uniform(size=400) < scipy.special.expit(3 * x[:, 0])).astype(int)))
    messages = send(study, parts)
    with pytest.raises(CoreshotError, match="would have made the predictions"):
        adapt_to_unlabelled(fit(study, messages), read_messages(study, messages), parts[2][0])


def test_shares_are_those_of_largest_likelihood_and_probabilities_of_a_corrected_model_survive_a_file(by_shares):
    study, contents, model = by_shares
    x, _ = two_gaussians(np.random.default_rng(3), 500, 0.7)
    said = np.asarray(model.predict(x).mean, np.float64)
    shares = np.asarray(model.posterior.head.class_shares)
    found = estimate_shares(said, shares, 1e9)
    tried = np.linspace(0.001, 0.999, 999)
    log_likelihood = [np.sum(np.log(said @ (np.asarray([1 - p, p]) / shares))) for p in tried]
    assert abs(found.shares[1] - tried[int(np.argmax(log_likelihood))]) < 0.002
    moved = scipy.special.softmax(np.log(said) + balance_to_shares(np.log(said), np.asarray([0.25, 0.75])), axis=1)
    assert np.allclose(moved.mean(axis=0), [0.25, 0.75], atol=1e-6)
    adapted = adapt_to_shares(model, contents, {"1": 0.75}).model
    again = read_posterior(study, posterior_bytes(adapted.posterior), "here")
    assert np.array_equal(again.predict(x).mean, adapted.predict(x).mean)
    y = np.eye(2)[np.zeros(len(x), int)]
    assert np.allclose(np.exp(again.log_predictive(make_points(x, y))), np.asarray(again.predict(x).mean)[:, 0])
    assert np.allclose(again.novelty(x), model.novelty(x))


def logistic_records(draws, count, slopes, offset):
    x = draws.uniform(-1, 1, size=(count, 3)).astype(np.float32)
    return x, (draws.uniform(size=count) < scipy.special.expit(x @ np.asarray(slopes) + offset)).astype(int)


@pytest.fixture(scope="module")
def federation():
    draws, study = np.random.default_rng(0), make(Glm(dimension=3))
    parts = [logistic_records(draws, 300, (4.0, -3.0, 0.0), offset) for offset in (-0.5, 0.5)]
    messages = send(study, parts)
    return study, fit(study, messages), read_messages(study, messages), parts


@pytest.mark.parametrize(("slopes", "is_alike"), [((4.0, -3.0, 0.0), True), ((-4.0, 0.0, 3.0), False)])
def test_never_worse_than_the_better_of_the_federation_and_the_site_alone(federation, slopes, is_alike):
    study, model, _, _ = federation
    draws = np.random.default_rng(5)
    own = logistic_records(draws, 80 if is_alike else 400, slopes, 2.0)
    test = logistic_records(draws, 3000, slopes, 2.0)
    adapted = adapt_to_records(model, *own)
    alone = fit(study, send(study, [own]))
    assert nll(adapted.model, *test) < min(nll(model, *test), nll(alone, *test)) + 0.01
    assert (adapted.facts["own"] < 0.5) == is_alike
    if is_alike:  # another intercept, the same slopes: better than either
        assert nll(adapted.model, *test) < nll(model, *test) - 0.1


def test_quantities_are_adapted_too():
    draws, study = np.random.default_rng(0), make(Glm(dimension=3), "regression")

    def site(count, slope, offset):
        x = draws.uniform(-1, 1, size=(count, 3)).astype(np.float32)
        return x, 0.2 * (slope * x[:, 0] + offset + 0.3 * draws.normal(size=count))

    model = fit(study, send(study, [site(200, 1.0, 0.0), site(200, 1.0, 0.1)]))
    adapted = adapt_to_records(model, *site(40, 1.0, 1.5)).model
    x, y = site(1000, 1.0, 1.5)
    errors = [np.sqrt(np.mean((np.asarray(one.predict(x).mean)[:, 0] - y) ** 2)) for one in (model, adapted)]
    assert errors[1] < 0.07
    assert errors[0] > 0.2
    with pytest.raises(CoreshotError, match="no classes"):
        adapt_to_shares(model, {}, {"0": 0.5})


def test_a_client_is_known_by_its_records_and_few_records_are_refused(federation):
    study, model, contents, parts = federation
    assert find_client(study, contents, parts[1][0]) == "site-1"
    assert find_client(study, contents, parts[1][0][1:]) is None
    with pytest.raises(CoreshotError, match="tell too little"):
        adapt_to_records(model, parts[0][0][:3], parts[0][1][:3])


def test_a_spectral_head_with_these_records_is_the_posterior_of_all_records():
    """Width 1 and freedom 0, in closed form; and the records that are left out are really left out."""
    draws, study = np.random.default_rng(0), make(Spectral(features=RandomVector(dimension=12), ridge=0.5))
    parts = [logistic_records(draws, 60, (4.0, -3.0, 0.0), 0.0) for _ in range(3)]
    messages = send(study, parts)
    two, three = fit(study, messages[:2]).posterior, fit(study, messages).posterior
    x, y = parts[2][0], np.eye(2)[parts[2][1]]
    steady = spectral_personal.CANDIDATES[:1]
    made = spectral_personal.personalise(two, x, y, steady).posterior
    assert np.allclose(made.mean, three.mean, atol=1e-4)
    site = spectral_personal._Site(two, np.asarray(two.feature_map(x), np.float64), y)
    candidate = spectral_personal.CANDIDATES[6]
    rest = spectral_personal.personalise(two, x[1:], y[1:], [candidate]).posterior
    logs = np.log(rest.predict(x[:1]).mean)[0]
    # |phi|^2 of the records is the unit of freedom, and one record fewer changes it a little.
    assert abs(site.leave_one_out(candidate)[0] - logs @ y[0]) < 0.02
    assert abs(site.leave_one_out(candidate)[0] - np.log(made.predict(x[:1]).mean)[0] @ y[0]) > 1e-6


def test_a_model_of_points_says_that_it_cannot_be_adapted(make_study):
    model = SimpleNamespace(study=make_study(), posterior=None)
    x = np.zeros((6, *model.study.agreement.input_shape), np.float32)
    with pytest.raises(CoreshotError, match="no posterior in closed form"):
        adapt_to_records(model, x, np.zeros(6, int))
