"""Counts: the server's model beside a Poisson regression of all records, exact gradients, probabilities that add up."""

import numpy as np
import onnxruntime
import pytest
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import mean_poisson_deviance

from coreshot.api import distill
from coreshot.errors import CoreshotError
from coreshot.fitted.adapting import adapt_to_records
from coreshot.fitted.model import fit
from coreshot.fitted.onnx_file import to_onnx
from coreshot.fitted.posterior_file import posterior_bytes, read_posterior
from coreshot.glm.count_predictions import count_interval
from coreshot.glm.counts import fit_counts_locally, join_sites, site_of_counts, to_counts
from coreshot.methods.glm import Glm
from coreshot.models.networks import Mlp
from coreshot.study import Agreement, Study
from coreshot.study.file import parse_study
from coreshot.types import make_points

LARGEST = 80.0
TERMS = Agreement(task="stays", kind="regression", input_shape=(3,), num_outputs=1, prior_precision=1.0)


def make(**settings):
    return Study(TERMS, Mlp(hidden=(), activation="relu"), Glm(dimension=9, **settings))


def records(draws, size, offset=0.0):
    """Inputs, and targets on the study's scale."""
    x = draws.uniform(-1, 1, size=(size, 3)).astype(np.float32)
    x[:, 2] = draws.uniform(size=size) < 0.3
    counts = draws.poisson(np.exp(0.7 + x[:, 0] - 0.6 * x[:, 1] + 0.4 * x[:, 2] + offset))
    return x, 2 * np.minimum(counts, LARGEST) / LARGEST - 1


def in_counts(model, x):
    return (np.asarray(model.predict(x).mean)[:, 0] + 1) * LARGEST / 2


@pytest.fixture(scope="module")
def federation():
    draws, study = np.random.default_rng(0), make(largest_count=LARGEST)
    parts = [records(draws, 200, offset) for offset in (-0.2, 0.0, 0.2)]
    messages = [distill(study, x, y, client=f"site-{number}") for number, (x, y) in enumerate(parts)]
    return study, fit(study, messages), parts


def test_three_files_are_as_good_as_a_poisson_regression_of_all_records(federation):
    _, model, parts = federation
    x, y = (np.concatenate([part[entry] for part in parts]) for entry in (0, 1))
    pooled = PoissonRegressor(alpha=1e-4, max_iter=500).fit(x, to_counts(y[:, None], LARGEST)[:, 0])
    test, truth = records(np.random.default_rng(1), 2000)
    counts = to_counts(truth[:, None], LARGEST)[:, 0]
    ours = mean_poisson_deviance(counts, in_counts(model, test))
    assert ours < mean_poisson_deviance(counts, pooled.predict(test)) + 0.02
    # Negative control: least squares.
    plain = make()
    least = fit(plain, [distill(plain, *part, client=f"site-{number}") for number, part in enumerate(parts)])
    assert ours < mean_poisson_deviance(counts, np.maximum(in_counts(least, test), 0.05)) - 0.01
    assert abs(np.mean(in_counts(model, x)) / np.mean(to_counts(y[:, None], LARGEST)) - 1) < 0.03


def test_the_gradient_is_exact_at_a_sites_own_fit_and_the_curvature_is_its_derivative(federation):
    study, _, parts = federation
    polynomials, (x, y) = study.method.polynomials(study.model), parts[0]
    counts = to_counts(y[:, None].astype(np.float64), LARGEST)
    own = fit_counts_locally(polynomials, x.astype(np.float64), counts, LARGEST)
    features = polynomials(x.astype(np.float64))
    joint = np.concatenate([features, y[:, None]], axis=1)
    likelihood = join_sites(1, [own.correct(site_of_counts(joint.T @ joint))])
    exact = features.T @ (counts - np.exp(features @ own.weights))
    assert np.allclose(likelihood.at(own.weights).gradient, exact, atol=1e-3)
    step = 1e-5 * np.random.default_rng(0).normal(size=own.weights.shape)
    change = likelihood.at(own.weights + step).gradient - likelihood.at(own.weights - step).gradient
    block = likelihood.curvature_blocks(likelihood.at(own.weights))[0]
    assert np.allclose(-change, 2 * block @ step, rtol=1e-4, atol=1e-6)


def test_probabilities_of_counts_add_up_and_survive_a_file_and_onnx(federation):
    study, model, parts = federation
    x = parts[0][0][:5]
    every = [2 * np.full((5, 1), count) / LARGEST - 1 for count in range(int(LARGEST) + 1)]
    chances = [np.exp(model.posterior.log_predictive(make_points(x, y))) / (LARGEST / 2) for y in every]
    assert np.allclose(np.sum(chances, axis=0), 1, atol=1e-6)
    assert np.allclose(np.arange(len(chances)) @ chances, in_counts(model, x), rtol=1e-3)
    again = read_posterior(study, posterior_bytes(model.posterior), "here")
    assert np.array_equal(again.predict(x).mean, model.predict(x).mean)
    test = records(np.random.default_rng(2), 1000)[0]
    session = onnxruntime.InferenceSession(to_onnx(model), providers=["CPUExecutionProvider"])
    mean, deviation = session.run(None, {"inputs": test})
    said = model.predict(test)
    assert np.max(np.abs(mean - np.asarray(said.mean))) < 1e-5
    assert np.max(np.abs(deviation - np.hypot(np.asarray(said.epistemic), np.asarray(said.aleatoric)))) < 1e-5


def test_a_site_with_more_events_gets_its_own_rate(federation):
    _, model, _ = federation
    draws = np.random.default_rng(3)
    adapted = adapt_to_records(model, *records(draws, 60, offset=1.0)).model
    x, y = records(draws, 1000, offset=1.0)
    counts = to_counts(y[:, None], LARGEST)[:, 0]
    errors = [mean_poisson_deviance(counts, in_counts(one, x)) for one in (model, adapted)]
    assert errors[1] < 1.4
    assert errors[0] > 3


def test_intervals_of_counts_are_those_of_poisson_where_the_rate_is_known():
    low, high = count_interval(np.asarray([4.0]), np.asarray([2.0]), 0.9)
    assert (low[0], high[0]) == (1, 8)
    assert count_interval(np.asarray([4.0]), np.asarray([4.0]), 0.9)[1][0] > 10


STUDY = """
format = 1
name = "stays"
task = "regression"
[target]
name = "days"
range = [0, 80]
counts = true
[table]
[[table.column]]
name = "age"
kind = "number"
range = [20, 90]
[method]
name = "glm"
"""


def test_a_study_of_counts():
    study = parse_study(STUDY, "study").study
    assert study.method.largest_count == 80
    assert study.target.encode(["0", "40", "80"], "here")[0][:, 0].tolist() == [-1, 0, 1]
    with pytest.raises(CoreshotError, match="no whole number"):
        study.target.encode(["1", "2.5"], "here")
    with pytest.raises(CoreshotError, match="largest"):
        parse_study(STUDY.replace("[0, 80]", "[1, 80]"), "study")
    spectral = 'name = "spectral"\nfeatures = { name = "identity", dimension = 2 }'
    with pytest.raises(CoreshotError, match="counts are for the method glm"):
        parse_study(STUDY.replace('name = "glm"', spectral), "study")
