"""Who has which rows: test rows that no site has, and sites by chance, by label, or by a column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.model_selection import train_test_split
from table_sources import MAX_ROWS, Table

NUM_SITES = 4
TEST_SHARE = 0.3
DIRICHLET = 0.5
NUM_BINS = 5  # of a regression's targets, where labels are skewed
LEAST_RECORDS = 2  # a site with fewer gives them to the largest

Split = tuple[list[np.ndarray], np.ndarray]  # the rows of each site, and those of the test


def split_table(table: Table, kind: str, seed: int) -> Split:
    if table.sites is not None:
        numbers = range(int(table.sites.max()) + 1)
        return [np.flatnonzero(table.sites == site) for site in numbers], np.flatnonzero(table.sites == -1)
    draws = np.random.default_rng([seed, 3])
    rows = draws.permutation(table.num_rows)[:MAX_ROWS]
    labels = table.labels
    train, test = train_test_split(
        rows, test_size=TEST_SHARE, random_state=seed, stratify=None if table.is_regression else labels[rows]
    )
    if kind == "iid":
        owner = np.arange(len(train)) % NUM_SITES
    elif kind == "label":
        owner = _by_label(labels[train], table.is_regression, draws)
    else:
        owner = _by_column(table.cells[str(table.natural)][train])
    return _gather(train, owner), test


def _by_label(labels: np.ndarray, is_regression: bool, draws: np.random.Generator) -> np.ndarray:
    """Each class, or each fifth of the targets, goes to the sites by shares from a Dirichlet distribution."""
    if is_regression:
        labels = np.searchsorted(np.quantile(labels, np.arange(1, NUM_BINS) / NUM_BINS), labels)
    owner = np.zeros(len(labels), int)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        owner[rows] = draws.choice(NUM_SITES, size=len(rows), p=draws.dirichlet([DIRICHLET] * NUM_SITES))
    return owner


def _by_column(cells: np.ndarray) -> np.ndarray:
    """Numbers: quarters. Categories: each value belongs to one site, the commonest first to the smallest site."""
    if cells.dtype.kind == "f":
        return np.searchsorted(np.quantile(cells, np.arange(1, NUM_SITES) / NUM_SITES), cells)
    values, counts = np.unique(cells, return_counts=True)
    sizes, site = np.zeros(NUM_SITES, int), {}
    for index in np.argsort(-counts, kind="stable"):
        site[values[index]] = int(np.argmin(sizes))
        sizes[site[values[index]]] += counts[index]
    return np.asarray([site[cell] for cell in cells])


def _gather(rows: np.ndarray, owner: np.ndarray) -> list[np.ndarray]:
    sites: Sequence[np.ndarray] = [rows[owner == site] for site in range(NUM_SITES)]
    largest = max(range(NUM_SITES), key=lambda site: len(sites[site]))
    few = [site for site in range(NUM_SITES) if site != largest and len(sites[site]) < LEAST_RECORDS]
    joined = np.concatenate([sites[largest], *(sites[site] for site in few)])
    return [joined if site == largest else sites[site] for site in range(NUM_SITES) if site not in few]
