"""A client whose file is broken or hostile is found out, and an honest one that differs is seldom taken for it. Rates
are counted over seeds.
"""

from collections import Counter

import numpy as np
import pytest

from coreshot.spectral.coreset import Moments
from coreshot.spectral.many_clients import compare_many, compare_rows
from coreshot.spectral.outlier_clients import MANY_CLIENTS, leave_one_out
from coreshot.spectral.received import ReceivedRows

NUM_COLUMNS = 8


def moments(x, labels, kind):
    features = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    return Moments.from_rows(features, np.eye(2)[labels] - 0.5 if kind == "classification" else labels[:, None], len(x))


def drawn_site(draws, weights, kind, count=None):
    """With means, base rate and size of its own."""
    x = draws.normal(0.5 * draws.normal(size=len(weights)), 1, (count or draws.integers(100, 400), len(weights)))
    score = x @ weights + draws.normal()
    return x, (draws.random(len(x)) < 1 / (1 + np.exp(-score))).astype(
        int
    ) if kind == "classification" else score + draws.normal(size=len(x))


def drawn_sites(seed, num_sites, kind, heterogeneity=0.0):
    draws = np.random.default_rng(seed)
    shared = draws.normal(size=NUM_COLUMNS)
    return {
        f"site {index}": drawn_site(draws, shared + heterogeneity * draws.normal(size=NUM_COLUMNS), kind)
        for index in range(num_sites)
    }


def standings(sites, kind):
    found = {name: moments(x, y, kind) for name, (x, y) in sites.items()}
    return leave_one_out(kind, sorted(found), found.__getitem__)


KINDS = ("classification", "regression")
ATTACKS = {
    "shuffled labels": lambda draws, x, y: (x, draws.permutation(y)),
    "signs": lambda draws, x, y: (-x, y),
    "units": lambda draws, x, y: (10 * x, y),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_broken_is_found_and_nobody_else(kind, attack):
    found, others = Counter(), Counter()
    for seed in range(20):
        sites = drawn_sites(seed, 4, kind)
        sites["site 2"] = ATTACKS[attack](np.random.default_rng(seed), *sites["site 2"])
        told = standings(sites, kind)
        found[told.pop("site 2").verdict] += 1
        others.update(standing.verdict for standing in told.values())
    assert found["suspect"] >= 17, found
    assert others["suspect"] == 0, others


@pytest.mark.parametrize("kind", KINDS)
def test_negative_control_honest_clients_are_not_suspect(kind):
    for seed in range(10):
        assert "suspect" not in {standing.verdict for standing in standings(drawn_sites(seed, 4, kind), kind).values()}


@pytest.mark.parametrize("kind", KINDS)
def test_sites_that_differ_as_much_as_they_agree_are_seldom_suspect(kind):
    told = Counter(
        standing.verdict
        for seed in range(20)
        for standing in standings(drawn_sites(seed, 5, kind, heterogeneity=1.0), kind).values()
    )
    assert told["suspect"] <= 8, told  # of 100; about 3 are usual


def test_two_clients_cannot_be_told_apart():
    told = standings(drawn_sites(0, 2, "classification"), "classification")
    assert {standing.verdict for standing in told.values()} == {"cannot be told"}


def test_of_three_the_one_against_two_is_found():
    sites = drawn_sites(0, 3, "classification")
    x, y = sites["site 1"]
    told = standings({**sites, "site 1": (x, 1 - y)}, "classification")
    assert {name for name, standing in told.items() if standing.verdict == "suspect"} == {"site 1"}
    assert "opposite" in told["site 1"].words


def test_among_many_clients():
    sites = drawn_sites(0, MANY_CLIENTS + 3, "classification")
    x, y = sites["site 1"]
    told = standings({**sites, "site 1": (x, np.random.default_rng(0).permutation(y))}, "classification")
    assert {name for name, standing in told.items() if standing.verdict == "suspect"} == {"site 1"}


def test_a_client_of_one_class_cannot_be_told():
    sites = drawn_sites(0, 4, "classification")
    x, y = sites["site 1"]
    told = standings({**sites, "site 1": (x, np.ones_like(y))}, "classification")
    assert told["site 1"].verdict == "cannot be told"
    assert {standing.verdict for name, standing in told.items() if name != "site 1"} == {"as the others"}


def test_labels_that_nobody_can_predict_accuse_nobody():
    sites = {
        name: (x, np.random.default_rng(index).integers(2, size=len(x)))
        for index, (name, (x, _)) in enumerate(drawn_sites(0, 4, "classification").items())
    }
    assert "suspect" not in {standing.verdict for standing in standings(sites, "classification").values()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["matrices of many", "rows"])
def test_many_at_once_are_told_the_same(kind, way):
    sites = drawn_sites(3, MANY_CLIENTS + 3, kind)
    for attack, change in ATTACKS.items():
        sites[f"bad {attack}"] = change(np.random.default_rng(0), *sites["site 2"])
    sites["alike"] = (sites["site 1"][0], np.ones_like(sites["site 1"][1]))
    names = sorted(sites)
    found = {name: moments(*sites[name], kind) for name in names}
    wanted = leave_one_out(kind, names, found.__getitem__)
    if way == "rows":
        told = compare_rows(kind, {name: ReceivedRows.of_moments(one) for name, one in found.items()})
    else:
        joints, counts = (np.stack([vars(found[name])[what] for name in names]) for what in ("joint", "num_examples"))
        parts = [(joints[:5], counts[:5]), (joints[5:], counts[5:])]
        told = compare_many(kind, names, lambda: parts, found[names[0]].num_outputs)
    assert {name: one.verdict for name, one in told.items()} == {name: one.verdict for name, one in wanted.items()}
    assert {told[f"bad {attack}"].verdict for attack in ATTACKS} == {"suspect"}
    for name, one in wanted.items():
        for number in ("agreement", "error", "size"):
            value = vars(one)[number]
            found_value = vars(told[name])[number]
            assert found_value == (value if value is None else pytest.approx(value, rel=1e-6))
