"""Clients for data that has none: several ways to divide a data set, with the parameter names of flwr-datasets.

Where flwr-datasets (Flower's partitioners) would drop records, repeat them or give up early, these refuse or draw
again: every record is in exactly one partition. Columns are what the source says about each record; "label" is always
one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import Field

from coreshot.config import Count, Positive, settings
from coreshot.data.readers.protocol import make_client_name
from coreshot.errors import CoreshotError

Columns = Mapping[str, np.ndarray]
Partitions = dict[str, np.ndarray]  # rows of each client

ATTEMPTS = 1000  # draws of a partition before an error; a draw takes less than a millisecond


@runtime_checkable
class Partitioner(Protocol):
    def partition(self, columns: Columns) -> Partitions: ...


@settings
class Iid:
    """Equal shares of shuffled data; their sizes differ by at most one record."""

    num_partitions: Count
    shuffle: bool = True
    seed: int = 42

    def partition(self, columns: Columns) -> Partitions:
        size = len(_column(columns, "label"))
        _check_enough(size, self.num_partitions)
        rows = np.random.default_rng(self.seed).permutation(size) if self.shuffle else np.arange(size)
        return _name_parts(np.array_split(rows, self.num_partitions))


@settings
class Dirichlet:
    """A Dirichlet(alpha) draw divides each class among the partitions (Yurochkin et al. 2019).

    Large alpha is nearly iid, small alpha gives each partition nearly one class. Drawn again until every partition has
    enough records and (a setting that flwr-datasets does not have) enough classes.
    """

    num_partitions: Count
    alpha: Positive
    partition_by: str = "label"
    min_partition_size: Count = 10
    min_classes_per_partition: Count = 1
    self_balancing: bool = False  # no further class for a partition that already has an equal share of the records
    shuffle: bool = True  # the order within a partition; which records it gets is random in any case
    seed: int = 42

    def partition(self, columns: Columns) -> Partitions:
        classes, number = np.unique(_column(columns, self.partition_by), return_inverse=True)
        _check_enough(len(number), self.num_partitions * self.min_partition_size)
        draws = np.random.default_rng(self.seed)
        counts = self._draw_until_accepted(draws, np.bincount(number, minlength=len(classes)))
        rows = [draws.permutation(np.flatnonzero(number == index)) for index in range(len(classes))]
        cuts = [np.split(some, np.cumsum(count)[:-1]) for some, count in zip(rows, counts, strict=True)]
        parts = [np.concatenate(pieces) for pieces in zip(*cuts, strict=True)]
        return _name_parts([draws.permutation(part) if self.shuffle else part for part in parts])

    def _draw_until_accepted(self, draws: np.random.Generator, sizes: np.ndarray) -> np.ndarray:
        smallest = 0
        for _ in range(ATTEMPTS):
            counts = self._draw(draws, sizes)
            smallest = max(smallest, int(counts.sum(axis=0).min()))
            has_size = counts.sum(axis=0).min() >= self.min_partition_size
            if has_size and (counts > 0).sum(axis=0).min() >= self.min_classes_per_partition:
                return counts
        raise CoreshotError(
            f"dirichlet partition: in {ATTEMPTS} draws no partition of {sizes.sum()} records for {self.num_partitions} "
            f"clients gave each at least {self.min_partition_size} records of {self.min_classes_per_partition} classes "
            f"(the best left one with {smallest}); raise alpha (now {self.alpha:g}), or lower min_partition_size "
            "or num_partitions."
        )

    def _draw(self, draws: np.random.Generator, sizes: np.ndarray) -> np.ndarray:
        """The number of records of each class (lines) for each partition (columns)."""
        counts = np.zeros((len(sizes), self.num_partitions), int)
        for index, size in enumerate(sizes):
            has_room = (counts.sum(axis=0) < sizes.sum() / self.num_partitions) | (not self.self_balancing)
            shares = draws.dirichlet(np.full(self.num_partitions, self.alpha)) * has_room
            if not shares.sum() > 0:  # tiny alpha: only full partitions drew a share, so another one takes the class
                shares = np.eye(self.num_partitions)[draws.choice(np.flatnonzero(has_room))]
            counts[index] = np.diff(np.rint(np.cumsum(shares / shares.sum()) * size).astype(int), prepend=0)
        return counts


@settings
class Pathological:
    """The same number of classes for each partition; partitions share the records of a class (McMahan et al. 2017)."""

    num_partitions: Count
    num_classes_per_partition: Count
    partition_by: str = "label"
    class_assignment_mode: Literal["random", "deterministic", "first-deterministic"] = "random"
    shuffle: bool = True
    seed: int = 42

    def partition(self, columns: Columns) -> Partitions:
        classes, number = np.unique(_column(columns, self.partition_by), return_inverse=True)
        draws = np.random.default_rng(self.seed)
        has = self._assign(draws, len(classes))
        parts: list[list[np.ndarray]] = [[] for _ in range(self.num_partitions)]
        for index, takers in enumerate(np.flatnonzero(column) for column in has.T):
            rows = np.flatnonzero(number == index)
            if len(rows) < len(takers):
                raise CoreshotError(
                    f"pathological partition: class {classes[index]} has {len(rows)} records for the {len(takers)} "
                    "clients that are to have it; lower num_partitions or num_classes_per_partition."
                )
            rows = draws.permutation(rows) if self.shuffle else rows
            for taker, piece in zip(takers, np.array_split(rows, len(takers)), strict=True):
                parts[taker].append(piece)
        return _name_parts([np.concatenate(pieces) for pieces in parts])

    def _assign(self, draws: np.random.Generator, num_classes: int) -> np.ndarray:
        """Which partition (lines) has which class (columns)."""
        each, partitions = self.num_classes_per_partition, self.num_partitions
        if each > num_classes:
            raise CoreshotError(
                f"pathological partition: {each} classes for each client, but there are only {num_classes}; lower it."
            )
        if each * partitions < num_classes:
            raise CoreshotError(
                f"pathological partition: {partitions} clients of {each} classes cannot hold "
                f"all {num_classes} classes; raise num_partitions or num_classes_per_partition."
            )
        for _ in range(ATTEMPTS):
            chosen = np.stack([self._choose(draws, line, num_classes) for line in range(partitions)])
            has = np.zeros((partitions, num_classes), bool)
            np.put_along_axis(has, chosen, True, axis=1)
            if has.any(axis=0).all():
                return has
            if self.class_assignment_mode == "deterministic":
                break
        raise CoreshotError(
            f"pathological partition: {self.class_assignment_mode} assignment leaves "
            f"{int(np.sum(~has.any(axis=0)))} of {num_classes} classes without a client; "
            "raise num_partitions or num_classes_per_partition."
        )

    def _choose(self, draws: np.random.Generator, line: int, num_classes: int) -> np.ndarray:
        each = self.num_classes_per_partition
        if self.class_assignment_mode == "deterministic":
            return (line + np.arange(each)) % num_classes
        if self.class_assignment_mode == "random":
            return draws.choice(num_classes, each, replace=False)
        others = np.delete(np.arange(num_classes), line % num_classes)
        return np.append(draws.choice(others, each - 1, replace=False), line % num_classes)


@settings
class Shard:
    """Records sorted by class and cut into equal shards, which are dealt out (McMahan et al. 2017)."""

    num_partitions: Count
    num_shards_per_partition: Count = 2
    partition_by: str = "label"
    shuffle: bool = True
    seed: int = 42

    def partition(self, columns: Columns) -> Partitions:
        values = _column(columns, self.partition_by)
        num_shards = self.num_partitions * self.num_shards_per_partition
        _check_enough(len(values), num_shards)
        draws = np.random.default_rng(self.seed)
        rows = draws.permutation(len(values)) if self.shuffle else np.arange(len(values))
        shards = np.array_split(rows[np.argsort(values[rows], kind="stable")], num_shards)
        dealt = draws.permutation(num_shards).reshape(self.num_partitions, -1)
        return _name_parts([np.concatenate([shards[shard] for shard in some]) for some in dealt])


@settings
class _Sized:
    """Shuffled records; the sizes of partitions 1, 2, ... grow."""

    num_partitions: Count
    seed: int = 42

    def partition(self, columns: Columns) -> Partitions:
        size = len(_column(columns, "label"))
        shares = self._grow(np.arange(1.0, self.num_partitions + 1))
        cuts = np.rint(np.cumsum(shares / shares.sum()) * size).astype(int)
        if np.any(np.diff(cuts, prepend=0) < 1):
            raise CoreshotError(
                f"partition: {size} records are too few for {self.num_partitions} clients whose sizes grow so; "
                "lower num_partitions."
            )
        return _name_parts(np.split(np.random.default_rng(self.seed).permutation(size), cuts[:-1]))

    def _grow(self, number: np.ndarray) -> np.ndarray:
        raise NotImplementedError


@settings
class Linear(_Sized):
    """Sizes in proportion to 1, 2, 3, ..."""

    def _grow(self, number: np.ndarray) -> np.ndarray:
        return number


@settings
class Square(_Sized):
    """Sizes in proportion to 1, 4, 9, ..."""

    def _grow(self, number: np.ndarray) -> np.ndarray:
        return number**2


@settings
class Exponential(_Sized):
    """Sizes in proportion to 1, e, e^2, ..."""

    def _grow(self, number: np.ndarray) -> np.ndarray:
        return np.exp(number)


@settings
class Continuous:
    """For quantities: records in the order of a column, blended with noise, cut into equal parts."""

    num_partitions: Count
    strictness: Annotated[float, Field(ge=0, le=1)] = 0.5  # 0 is iid, 1 gives each partition a range of its own
    partition_by: str = "label"
    seed: int = 42

    def partition(self, columns: Columns) -> Partitions:
        values = _column(columns, self.partition_by)
        if values.dtype.kind not in "biuf":
            raise CoreshotError(
                f"partition_by = {self.partition_by!r}: it holds text, which has no order; use dirichlet."
            )
        _check_enough(len(values), self.num_partitions)
        draws = np.random.default_rng(self.seed)
        spread = values.astype(float) - values.min()
        blended = self.strictness * spread / max(spread.max(), 1e-30) + (1 - self.strictness) * draws.random(
            len(values)
        )
        return _name_parts(np.array_split(np.argsort(blended, kind="stable"), self.num_partitions))


@settings
class NaturalId:
    """A partition for each value of a column, such as writers or sites."""

    partition_by: str

    def partition(self, columns: Columns) -> Partitions:
        values, number = np.unique(_column(columns, self.partition_by), return_inverse=True)
        order = np.argsort(number, kind="stable")
        parts = np.split(order, np.cumsum(np.bincount(number))[:-1])
        return {
            make_client_name(self.partition_by, value): part for value, part in zip(values.tolist(), parts, strict=True)
        }


PARTITIONERS: dict[str, type[Any]] = {
    "iid": Iid,
    "dirichlet": Dirichlet,
    "pathological": Pathological,
    "shard": Shard,
    "linear": Linear,
    "square": Square,
    "exponential": Exponential,
    "continuous": Continuous,
    "natural_id": NaturalId,
}


def _column(columns: Columns, name: str) -> np.ndarray:
    if name not in columns:
        raise CoreshotError(
            f"partition_by = {name!r}: the data has no such column; it has {', '.join(sorted(columns))}."
        )
    return columns[name]


def _check_enough(size: int, least: int) -> None:
    if size < least:
        raise CoreshotError(
            f"partition: {size} records are fewer than the {least} that the partitions need; "
            "lower num_partitions or min_partition_size."
        )


def _name_parts(parts: list[np.ndarray]) -> Partitions:
    return {f"client-{index}": part for index, part in enumerate(parts)}
