"""Partitions are what their names say: every image exactly once, and as equal or as lopsided as asked for."""

import numpy as np
import pytest

from coreshot.config import decode
from coreshot.data.partition import PARTITIONERS, Dirichlet, Iid, NaturalId, Pathological
from coreshot.errors import CoreshotError

LABELS = np.repeat(np.arange(10), 200)[np.random.default_rng(0).permutation(2000)]
COLUMNS = {"label": LABELS, "writer_id": np.arange(2000) % 7}

EXAMPLES = {
    "iid": {"num_partitions": 7},
    "dirichlet": {"num_partitions": 7, "alpha": 0.5},
    "pathological": {"num_partitions": 7, "num_classes_per_partition": 3},
    "shard": {"num_partitions": 7},
    "linear": {"num_partitions": 7},
    "square": {"num_partitions": 7},
    "exponential": {"num_partitions": 5},
    "continuous": {"num_partitions": 7},
    "natural_id": {"partition_by": "writer_id"},
}


def partition(name, **changes):
    return decode(PARTITIONERS[name], {**EXAMPLES[name], **changes}, "test").partition(COLUMNS)


def class_counts(parts):
    return np.array([np.bincount(LABELS[rows], minlength=10) for rows in parts.values()])


@pytest.mark.parametrize("registered", sorted(PARTITIONERS))
def test_every_partitioner_is_tested(registered):
    assert registered in EXAMPLES, f"add a tiny example of {registered!r} to EXAMPLES in {__file__}"
    assert EXAMPLES.keys() == PARTITIONERS.keys()


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("changes", [{}, {"shuffle": False}, {"seed": 3}])
def test_every_image_is_in_exactly_one_partition(name, changes):
    known = {field for field in changes if hasattr(PARTITIONERS[name], field)}
    parts = partition(name, **{field: changes[field] for field in known})
    assert len(parts) == EXAMPLES[name].get("num_partitions", 7)
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(2000))


@pytest.mark.parametrize("name", ["iid", "dirichlet", "pathological"])
def test_the_seed_decides(name):
    first, again, other = (partition(name, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(first[client], again[client]) for client in first)
    assert not all(np.array_equal(first[client], other[client]) for client in first)


def test_iid_shares_are_equal():
    sizes = [len(rows) for rows in partition("iid").values()]
    assert sorted(sizes) == [285] * 2 + [286] * 5
    # Of 286 images 28.6 are of each class, deviation 5: six deviations are beyond chance.
    assert np.abs(class_counts(partition("iid")) - 28.6).max() < 6 * 5
    in_order = partition("iid", shuffle=False)
    np.testing.assert_array_equal(np.concatenate(list(in_order.values())), np.arange(2000))


def test_dirichlet_of_a_huge_alpha_is_nearly_iid():
    """Shares of 200 images in 7 parts: 28.6; at alpha 1e6 their deviation is 0.03, and rounding adds at most one."""
    counts = class_counts(partition("dirichlet", alpha=1e6))
    assert np.abs(counts - 200 / 7).max() < 1.5
    assert np.abs(class_counts(partition("dirichlet", alpha=0.5)) - 200 / 7).max() > 30  # the check can fail


def test_dirichlet_of_a_tiny_alpha_gives_each_class_to_one():
    counts = class_counts(partition("dirichlet", alpha=1e-3, num_partitions=3))
    assert (counts.max(axis=0) > 195).sum() >= 9
    moderate = class_counts(partition("dirichlet", alpha=10.0, num_partitions=3))
    assert (moderate.max(axis=0) > 195).sum() == 0


def test_dirichlet_shares_have_the_variance_of_the_law():
    """A share of Dirichlet(a, ..., a) over k parts has variance (1/k)(1 - 1/k) / (k a + 1); 500 draws: about 10 %."""
    shares = np.concatenate(
        [class_counts(partition("dirichlet", alpha=2.0, num_partitions=4, seed=seed))[0] / 200 for seed in range(500)]
    )
    assert shares.var() == pytest.approx(0.25 * 0.75 / 9, rel=0.15)
    assert shares.var() != pytest.approx(0.25 * 0.75 / 5, rel=0.15)  # of alpha 1


def test_dirichlet_keeps_its_promises():
    counts = class_counts(partition("dirichlet", alpha=0.2, min_partition_size=100, min_classes_per_partition=4))
    assert counts.sum(axis=1).min() >= 100
    assert (counts > 0).sum(axis=1).min() >= 4


def test_self_balancing_stops_what_is_full():
    """No partition takes a further class once it has its fair share, so none can exceed it by more than one class."""
    spread = [
        [len(rows) for rows in partition("dirichlet", alpha=0.3, self_balancing=on).values()] for on in (False, True)
    ]
    assert max(spread[1]) < 2000 / 7 + 200
    assert np.std(spread[1]) < np.std(spread[0])


@pytest.mark.parametrize("mode", ["random", "deterministic", "first-deterministic"])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_pathological_has_exactly_so_many_classes_each(mode, classes):
    parts = partition("pathological", class_assignment_mode=mode, num_classes_per_partition=classes, num_partitions=12)
    counts = class_counts(parts)
    assert np.all((counts > 0).sum(axis=1) == classes)
    for column in counts.T:  # a class is shared evenly by those that have it
        assert np.ptp(column[column > 0]) <= 1
    if mode == "deterministic":
        assert [set(np.flatnonzero(line)) for line in counts] == [
            {(index + step) % 10 for step in range(classes)} for index in range(12)
        ]
    if mode == "first-deterministic":
        assert all(line[index % 10] > 0 for index, line in enumerate(counts))


def test_natural_id_is_the_column():
    parts = partition("natural_id")
    assert list(parts) == [f"writer-{index}" for index in range(7)]
    assert all(np.all(COLUMNS["writer_id"][rows] == index) for index, rows in enumerate(parts.values()))
    texts = NaturalId(partition_by="name").partition({"name": np.array(["b", "a", "b"])})
    assert {name: rows.tolist() for name, rows in texts.items()} == {"a": [1], "b": [0, 2]}


@pytest.mark.parametrize(
    ("partitioner", "complaint"),
    [
        (Iid(num_partitions=2001), r"partition: 2000 records are fewer than the 2001 that the partitions need"),
        (Dirichlet(num_partitions=300, alpha=1.0), r"2000 records are fewer than the 3000"),
        (
            Dirichlet(num_partitions=50, alpha=1e-4),
            r"in 1000 draws no partition .* \(the best left one with 0\); raise alpha \(now 0.0001\)",
        ),
        (
            Dirichlet(num_partitions=2, alpha=1.0, partition_by="colour"),
            r"partition_by = 'colour': the data has no such column; it has label, writer_id",
        ),
        (
            Pathological(num_partitions=3, num_classes_per_partition=3),
            r"3 clients of 3 classes cannot hold all 10 classes",
        ),
        (
            Pathological(num_partitions=3, num_classes_per_partition=11),
            r"11 classes for each client, but there are only 10",
        ),
        (
            Pathological(num_partitions=2000, num_classes_per_partition=10),
            r"class 0 has 200 records for the 2000 clients",
        ),
        (
            Pathological(num_partitions=5, num_classes_per_partition=2, class_assignment_mode="deterministic"),
            r"deterministic assignment leaves 4 of 10 classes without a client",
        ),
        (NaturalId(partition_by="site"), r"partition_by = 'site': the data has no such column"),
    ],
)
def test_what_cannot_be_made_is_refused(partitioner, complaint):
    with pytest.raises(CoreshotError, match=complaint):
        partitioner.partition(COLUMNS)
