"""glm against known answers: pooled regressions, base rates under every kind of split, units, budgets, forgetting."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.special
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LogisticRegression

from coreshot.api import distill
from coreshot.fitted.model import fit
from coreshot.methods.glm import Glm
from coreshot.models.networks import Mlp
from coreshot.study import Agreement, Study


def make(num_inputs, num_outputs=2, kind="classification", **settings):
    terms = Agreement(task="test", kind=kind, input_shape=(num_inputs,), num_outputs=num_outputs, prior_precision=1.0)
    return Study(terms, Mlp(hidden=(), activation="relu"), Glm(**settings))


def send(study, parts):
    return [distill(study, x, y, client=f"site-{number}") for number, (x, y) in enumerate(parts)]


def draw(seed, count, slopes=(1.5, -1.0, 0.5, 0.0), offset=-0.7):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(count, len(slopes))).astype(np.float32)
    logits = 2 * x @ np.asarray(slopes) + offset
    return x, (rng.uniform(size=count) < scipy.special.expit(logits)).astype(int)


def split(x, y, kind, num_sites=4):
    rng = np.random.default_rng(1)
    if kind == "iid":
        site = rng.integers(num_sites, size=len(x))
    elif kind == "column":
        site = np.argsort(np.argsort(x[:, 0])) * num_sites // len(x)
    elif kind == "label":
        shares = [0.05, 0.2, 0.5, 0.9]
        odds = np.where(y[:, None] == 1, shares, 1 - np.asarray(shares))
        site = np.asarray([rng.choice(num_sites, p=row / row.sum()) for row in odds])
    else:  # every site has one class only
        site = 2 * y + rng.integers(2, size=len(x))
    return [(x[site == number], y[site == number]) for number in np.unique(site)]


def nll(probabilities, y):
    return -np.mean(np.log(probabilities[np.arange(len(y)), y]))


@pytest.mark.parametrize("kind", ["iid", "column", "label", "one class each"])
def test_as_good_as_pooled_logistic_regression_however_the_records_are_split(kind):
    x, y = draw(0, 1200)
    far, truth = draw(1, 4000)
    study = make(4, dimension=4)
    model = fit(study, send(study, split(x, y, kind)))
    pooled = LogisticRegression().fit(x, y)
    assert nll(np.asarray(model.predict(far).mean), truth) < nll(pooled.predict_proba(far), truth) + 0.01
    # Negative control: with shuffled labels it is not.
    shuffled = fit(study, send(study, split(x, np.random.default_rng(2).permutation(y), kind)))
    assert nll(np.asarray(shuffled.predict(far).mean), truth) > nll(pooled.predict_proba(far), truth) + 0.05


@pytest.mark.parametrize("kind", ["iid", "label", "column", "one class each"])
def test_the_mean_probability_is_the_base_rate(kind):
    x, y = draw(0, 1200)
    study = make(4)
    model = fit(study, send(study, split(x, y, kind)))
    assert abs(np.mean(np.asarray(model.predict(x).mean)[:, 1]) - np.mean(y)) < 0.01


def test_the_mean_probability_of_a_rare_class():
    x, y = draw(0, 20_000, offset=-8.5)
    assert 5 < np.sum(y) < 60
    study = make(4, dimension=4)
    model = fit(study, send(study, split(x, y, "iid")))
    mean = np.mean(np.asarray(model.predict(x).mean)[:, 1])
    assert 0.7 * np.mean(y) < mean < 1.4 * np.mean(y)


def test_the_mean_probabilities_of_four_classes():
    rng = np.random.default_rng(0)
    y = rng.choice(4, p=[0.5, 0.3, 0.15, 0.05], size=1500)
    x = np.clip(rng.normal(scale=0.3, size=(1500, 3)) + 0.4 * np.eye(4)[y][:, :3], -1, 1).astype(np.float32)
    study = make(3, 4)
    sites = [(x[first::3], y[first::3]) for first in range(3)]
    found = np.mean(np.asarray(fit(study, send(study, sites)).predict(x).mean), axis=0)
    np.testing.assert_allclose(found, np.bincount(y) / len(y), atol=0.01)


def test_four_label_skewed_classes_are_as_good_as_pooled():
    rng = np.random.default_rng(0)
    y = rng.choice(4, p=[0.4, 0.3, 0.2, 0.1], size=4000)
    x = np.clip(rng.normal(scale=0.3, size=(4000, 3)) + 0.3 * np.eye(4)[y][:, :3], -1, 1).astype(np.float32)
    shares = rng.dirichlet([0.5] * 3, size=4)
    site = np.asarray([rng.choice(3, p=shares[label]) for label in y[:1500]])
    pooled = LogisticRegression().fit(x[:1500], y[:1500]).predict_proba(x[1500:])
    study = make(3, 4, dimension=3)
    sites = [(x[:1500][site == number], y[:1500][site == number]) for number in range(3)]
    assert (
        nll(np.asarray(fit(study, send(study, sites)).predict(x[1500:]).mean), y[1500:]) < nll(pooled, y[1500:]) + 0.01
    )
    # Negative control: the largest site alone is worse than that.
    alone = fit(study, send(study, [max(sites, key=lambda one: len(one[0]))]))
    assert nll(np.asarray(alone.predict(x[1500:]).mean), y[1500:]) > nll(pooled, y[1500:]) + 0.01


def test_many_classes_share_one_covariance_where_theirs_are_too_many_bytes(monkeypatch):
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=600)
    x = np.clip(rng.normal(scale=0.3, size=(600, 3)) + 0.4 * np.eye(4)[y][:, :3], -1, 1).astype(np.float32)
    study = make(3, 4, dimension=9)
    sizes, probabilities = [], []
    for limit, arrays in ((38_000, {f"class_{label}" for label in range(4)}), (600, {"moments"})):
        monkeypatch.setattr("coreshot.glm.message_size.FILE_BYTES", limit)
        message = distill(study, x, y, client="a")
        assert arrays < set(_decoded(study, message).arrays)
        sizes.append(len(message))
        probabilities.append(np.asarray(fit(study, [message]).predict(x).mean))
    assert sizes[1] < sizes[0]
    assert np.mean(np.abs(probabilities[0] - probabilities[1])) < 0.03


def test_products_are_found_where_the_truth_has_them_and_left_where_it_has_not():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(2000, 3)).astype(np.float32)
    y = (rng.uniform(size=2000) < scipy.special.expit(8 * x[:, 0] * x[:, 1])).astype(int)
    sites = [(x[first:1500:3], y[first:1500:3]) for first in range(3)]
    losses = {}
    for dimension in (3, 30):
        study = make(3, dimension=dimension)
        losses[dimension] = nll(np.asarray(fit(study, send(study, sites)).predict(x[1500:]).mean), y[1500:])
    assert losses[3] > 0.65
    assert losses[30] < losses[3] - 0.15


def test_a_quantity_is_ridge_regression_on_all_records():
    x, y = load_diabetes(return_X_y=True, scaled=True)
    x, y = (5 * x).astype(np.float32), (y - y.mean()) / y.std()
    study = make(10, 1, "regression", dimension=10)
    sites = [(x[first::4], y[first::4]) for first in range(4)]
    together, apart = fit(study, send(study, [(x, y)])), fit(study, send(study, sites))
    np.testing.assert_allclose(apart.predict(x).mean, together.predict(x).mean, atol=5e-3)
    head = together.posterior.head
    standard = (x - x.mean(axis=0)) / x.std(axis=0)
    ridge = np.exp(head.log_ridges[0])
    exact = y.mean() + standard @ np.linalg.solve(standard.T @ standard + ridge * np.eye(10), standard.T @ y)
    np.testing.assert_allclose(np.asarray(together.predict(x).mean)[:, 0], exact, atol=5e-3)


def test_ranges_four_times_too_wide_change_nothing():
    x, y = draw(0, 900)
    study = make(4)
    wide = [((one + 1) / 4 - 1, labels) for one, labels in split(x, y, "label")]
    narrow = fit(study, send(study, split(x, y, "label")))
    moved = fit(study, send(study, wide))
    change = np.abs(np.asarray(narrow.predict(x).mean) - np.asarray(moved.predict((x + 1) / 4 - 1).mean))
    assert np.mean(change) < 0.005


def test_an_input_that_is_never_set_shifts_nothing():
    x, y = draw(0, 900)
    with_more = np.concatenate([x, np.zeros((len(x), 3), np.float32)], axis=1)
    plain, more = make(4, dimension=4), make(7, dimension=7)
    a = fit(plain, send(plain, split(x, y, "iid"))).predict(x).mean
    b = fit(more, send(more, split(with_more, y, "iid"))).predict(with_more).mean
    np.testing.assert_allclose(a, b, atol=2e-3)


def test_records_in_another_order_give_the_same_bytes():
    x, y = draw(0, 300)
    order = np.random.default_rng(3).permutation(300)
    study = make(4)
    first, second = (distill(study, a, b, client="site") for a, b in ((x, y), (x[order], y[order])))
    assert first == second


def test_more_budget_is_never_worse():
    x, y = draw(0, 3000)
    exact = np.asarray(fit(study := make(4), send(study, [(x, y)])).predict(x).mean)
    changes = []
    for max_bytes in (1_200, 2_000, 4_000, 9_000, 30_000):
        study = make(4, dimension=40, max_bytes=max_bytes)
        message = distill(study, x, y, client="site")
        assert len(message) < max_bytes + 3_500  # header, weights and gradient are not coded
        changes.append(np.mean(np.abs(np.asarray(fit(study, [message]).predict(x).mean) - exact)))
    assert all(later <= earlier + 0.002 for earlier, later in itertools.pairwise(changes)), changes


def test_the_loss_is_what_rounding_changes():
    x, y = draw(0, 400)
    study = make(4)
    coarse = replace(study, method=replace(study.method, dimension=60, max_bytes=1_200, tolerance=1e-4))
    for one, is_lossless in ((study, True), (coarse, False)):
        content = one.method.read(one.model, "a", _decoded(one, distill(one, x, y, client="a")))
        assert (content.loss <= one.method.tolerance) == is_lossless


def _decoded(study, data):
    from coreshot.wire.messages import decode_message

    return decode_message(data, study_hash=study.hash, releases=study.releases)


def test_forgetting_a_site_is_as_if_it_had_never_been():
    x, y = draw(0, 600)
    study = make(4)
    messages = send(study, split(x, y, "label"))
    left = fit(study, messages).forget(messages[0])
    never = fit(study, messages[1:])
    np.testing.assert_array_equal(left.predict(x).mean, never.predict(x).mean)
    # Negative control: with the site the model is another one.
    assert np.max(np.abs(fit(study, messages).predict(x).mean - never.predict(x).mean)) > 1e-3


def test_a_site_of_one_record_and_a_site_of_one_class_are_no_trouble():
    x, y = draw(0, 300)
    study = make(4)
    parts = [(x[:1], y[:1]), (x[y == 0], y[y == 0]), (x, y)]
    found = np.asarray(fit(study, send(study, parts)).predict(x).mean)
    assert np.all(np.isfinite(found))
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-9)


def predictions(model, x):
    return np.asarray(model.predict(x).mean)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_more_sites_than_groups_are_pooled(kind, monkeypatch):
    x, y = draw(0, 4000)
    study = make(4, dimension=9) if kind == "classification" else make(4, 1, kind, dimension=9)
    y = y if kind == "classification" else (x[:, :1] + 0.1 * y[:, None]).astype(np.float32)
    messages = send(study, [(x[first::100], y[first::100]) for first in range(100)])
    pooled = fit(study, messages)
    backwards = fit(study, messages[::-1])
    np.testing.assert_array_equal(predictions(backwards, x), predictions(pooled, x))
    left, never = pooled.forget(messages[7]), fit(study, messages[:7] + messages[8:])
    np.testing.assert_array_equal(predictions(left, x), predictions(never, x))
    assert np.max(np.abs(predictions(pooled, x) - predictions(left, x))) > 0, "negative control"
    monkeypatch.setattr("coreshot.glm.received.NUM_GROUPS", 100)
    apart = fit(study, messages)
    assert np.max(np.abs(predictions(apart, x) - predictions(pooled, x))) < 0.01


def test_forgetting_is_exact_where_the_number_of_sites_crosses_that_of_groups(monkeypatch):
    monkeypatch.setattr("coreshot.glm.received.NUM_GROUPS", 3)
    x, y = draw(0, 600)
    study = make(4)
    messages = send(study, split(x, y, "label"))
    assert len(messages) == 4
    left = fit(study, messages).forget(messages[1])
    never = fit(study, [messages[0], *messages[2:]])
    np.testing.assert_array_equal(predictions(left, x), predictions(never, x))
    pooled = predictions(fit(study, messages), x)
    monkeypatch.setattr("coreshot.glm.received.NUM_GROUPS", 4)
    assert np.max(np.abs(predictions(fit(study, messages), x) - pooled)) > 0, "negative control: four sites are pooled"
