"""The peers' heads are those of their papers: AFL's aggregation, LDA, moments of mixtures; wrong statistics fail."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from coreshot.config import decode_named
from coreshot.methods import METHODS, FedAvg, Spectral
from coreshot.methods.peers import FedAvgHead, FedCgs, FedCof, FedNcm, FedPft, FedRidge
from coreshot.methods.peers.fed_pft import fit_mixture, fit_softmax
from coreshot.models.networks import Mlp
from coreshot.runtime.simulate import simulate
from coreshot.spectral.features import Identity
from coreshot.study import Agreement, Study
from coreshot.types import make_points
from coreshot.wire.ledger import Ledger

D, CLASSES = 6, 3
FEATURES = Identity(dimension=D)


def some_clients(num_clients=4, size=40, apart=0.0, seed=0):
    """Classes with one correlated covariance; `apart` moves each client's records by a draw of its own."""
    draws = np.random.default_rng(seed)
    public = np.random.default_rng(1)
    mixing, means = public.normal(size=(D, D)) / 2, 2 * public.normal(size=(CLASSES, D))
    clients = {}
    for index in range(num_clients):
        labels = draws.integers(0, CLASSES, size)
        x = means[labels] + draws.normal(size=(size, D)) @ mixing + apart * draws.normal(size=D)
        clients[f"client-{index:03d}"] = make_points(x, np.eye(CLASSES)[labels])
    return clients


def fitted(method, clients):
    terms = Agreement(task="test", kind="classification", input_shape=(D,), num_outputs=CLASSES, prior_precision=1.0)
    study = Study(terms, Mlp(hidden=(), activation="relu"), method)
    state = simulate(jax.random.key(0), study, clients, Ledger())
    return study.method.posterior(jax.random.key(0), study.model, state)[0]


def arrays(clients):
    x, y = (np.concatenate([np.asarray(getattr(one, name), float) for one in clients.values()]) for name in "xy")
    return x, y


def with_constant(x):
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


def aggregate_in_pairs(weights, grams, gamma):
    """AFL's absolute aggregation law, and its removal of the regularisation (He et al., equations 8, 9 and 16)."""
    total, found = grams[0], weights[0]
    for gram, one in zip(grams[1:], weights[1:], strict=True):
        both = np.linalg.inv(total + gram)
        keep_total = np.eye(len(gram)) - np.linalg.inv(total) @ gram @ (np.eye(len(gram)) - both @ gram)
        keep_one = np.eye(len(gram)) - np.linalg.inv(gram) @ total @ (np.eye(len(gram)) - both @ total)
        found, total = keep_total @ found + keep_one @ one, total + gram
    extra = len(grams) * gamma * np.eye(len(total))
    return found + np.linalg.inv(total - extra) @ extra @ found


def test_afl_s_pairwise_inverses_give_the_head_of_the_sums():
    clients, gamma, grams, weights = some_clients(), 1.0, [], []
    for points in clients.values():
        phi = with_constant(np.asarray(points.x, float))
        grams.append(phi.T @ phi + gamma * np.eye(D + 1))
        weights.append(np.linalg.solve(grams[-1], phi.T @ np.asarray(points.y, float)))
    ours = fitted(FedRidge(features=FEATURES, ridge=1e-9), clients).weights
    np.testing.assert_allclose(aggregate_in_pairs(weights, grams, gamma), ours, atol=1e-5)
    mean = np.mean(weights, axis=0)
    assert np.max(np.abs(mean - ours)) > 0.01, "negative control: the mean of the clients' heads is another head"


def test_the_spectral_head_with_all_rows_is_the_ridge_regression_s():
    """Up to 1 / classes, which is the same for every class: its labels are centred."""
    clients = some_clients()
    ridge = fitted(FedRidge(features=FEATURES, ridge=2.0), clients).weights
    spectral = fitted(Spectral(features=FEATURES, ridge=2.0), clients).mean
    np.testing.assert_allclose(spectral - spectral[:, :1], ridge - ridge[:, :1], atol=1e-4)
    other = fitted(Spectral(features=FEATURES, ridge=20.0), clients).mean
    assert np.max(np.abs((other - other[:, :1]) - (ridge - ridge[:, :1]))) > 0.01, "negative control: another ridge"


def test_fed3r_s_columns_have_norm_one():
    found = fitted(FedRidge(features=FEATURES, normalize=True), some_clients()).weights
    np.testing.assert_allclose(np.linalg.norm(found[:-1], axis=0), 1)


@pytest.mark.parametrize(("covariance", "agrees"), [("within", True), ("total", False)])
def test_the_shared_covariance_of_classes_is_lda_s(covariance, agrees):
    clients = some_clients(size=200)
    x, y = arrays(clients)
    head = fitted(FedCgs(features=FEATURES, covariance=covariance, shrinkage=0.0), clients)
    lda = LinearDiscriminantAnalysis(solver="lsqr").fit(x, y.argmax(axis=1))
    found = np.max(np.abs(np.asarray(head.predict(x).mean) - lda.predict_proba(x)))
    assert (found < 0.01) == agrees


def test_nearest_means_by_hand():
    clients = some_clients()
    x, y = arrays(clients)
    means = y.T @ x / y.sum(axis=0)[:, None]
    found = fitted(FedNcm(features=FEATURES, scale=3.0), clients).weights
    np.testing.assert_allclose(found[:-1], 3 * (means / np.linalg.norm(means, axis=1, keepdims=True)).T, atol=1e-5)
    assert np.all(found[-1] == 0)


@pytest.mark.parametrize(("apart", "agrees"), [(0.0, True), (3.0, False)])
def test_means_of_like_clients_tell_the_covariance(apart, agrees):
    """As the ridge regression without a constant that has the real Gram matrix; clients that differ mislead it."""
    clients = some_clients(num_clients=300, size=30, apart=apart)
    x, y = arrays(clients)
    means, counts = y.T @ x / y.sum(axis=0)[:, None], y.sum(axis=0)
    within = x.T @ x - (means * counts[:, None]).T @ means
    gram = within + np.outer(x.sum(axis=0), x.sum(axis=0)) / len(x)
    truth = np.linalg.solve(gram, x.T @ y)
    found = fitted(FedCof(features=FEATURES, shrinkage=1e-6, normalize=False), clients).weights[:-1]
    assert (np.linalg.norm(found - truth) < 0.3 * np.linalg.norm(truth)) == agrees


def test_mixtures_of_one_and_of_two_parts():
    draws = np.random.default_rng(0)
    rows = np.concatenate([draws.normal(-5, 1, (50, D)), draws.normal(5, 2, (150, D))])
    shares, means, variances = fit_mixture(rows, 1)
    np.testing.assert_allclose(means[0], rows.mean(axis=0))
    np.testing.assert_allclose(variances[0], rows.var(axis=0), rtol=0.01)
    shares, means, variances = fit_mixture(rows, 2)
    order = np.argsort(means[:, 0])
    np.testing.assert_allclose(shares[order], [0.25, 0.75], atol=1e-6)
    np.testing.assert_allclose(means[order], [rows[:50].mean(axis=0), rows[50:].mean(axis=0)], atol=1e-6)
    alone = fit_mixture(rows[:1], 3)
    np.testing.assert_allclose(alone[0], [1, 0, 0])


def test_the_softmax_s_gradient_vanishes_where_it_ends():
    x, y = arrays(some_clients(size=100))
    penalty = 1e-2
    head = fit_softmax(x.astype(np.float32), y.argmax(axis=1), CLASSES, penalty, 500)
    scores = with_constant(x) @ head
    residual = np.exp(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)) - y
    spread = x.std(axis=0)
    gradient = (x - x.mean(axis=0)).T @ residual / len(x) / spread[:, None] + penalty * spread[:, None] * head[:-1]
    assert np.max(np.abs(gradient)) < 1e-3
    assert np.max(np.abs(residual.mean(axis=0))) < 0.01
    assert np.mean(scores.argmax(axis=1) == y.argmax(axis=1)) > 0.9


def test_draws_of_mixtures_tell_classes_apart_though_covariances_are_diagonal():
    clients = some_clients(size=100)
    x, y = arrays(some_clients(size=500, seed=5))
    found = np.asarray(fitted(FedPft(features=FEATURES), clients).predict(x).mean)
    lda = np.asarray(fitted(FedCgs(features=FEATURES), clients).predict(x).mean)
    accuracy = [np.mean(one.argmax(axis=1) == y.argmax(axis=1)) for one in (found, lda)]
    assert accuracy[0] > accuracy[1] - 0.1 > 0.8


def test_fed_avg_of_a_head_is_fed_avg_of_the_features():
    """On inputs that are the features, a network without hidden layers takes the same steps."""
    steps = {"num_rounds": 3, "local_steps": 4, "batch_size": 8}
    sgd = {"name": "sgd", "step_size": 0.1}
    values = {**steps, "client_optimizer": sgd, "server_optimizer": sgd}
    clients = some_clients()
    head = decode_named(
        METHODS, {"name": "fed_avg_head", "features": {"name": "identity", "dimension": D}, **values}, "", ""
    )
    plain = decode_named(METHODS, {"name": "fed_avg", **values}, "", "")
    assert isinstance(head, FedAvgHead)
    assert isinstance(plain, FedAvg)
    layer = fitted(plain, clients).params["Dense_0"]
    found = fitted(head, clients).weights
    np.testing.assert_allclose(found[:-1], layer["kernel"][0], atol=1e-6)
    np.testing.assert_allclose(found[-1], layer["bias"][0], atol=1e-6)
    other = fitted(replace(head, num_rounds=2), clients).weights
    assert not np.allclose(other, found)
