"""Rows of benchmarks/tables.py as a table of means over the splits, and what of the promise they keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

KEYS = ("table", "split", "seed", "widen", "max_bytes", "rows")
ACCURACY, NLL, AUC, OFFSET = 0.005, 0.01, 0.005, 0.01  # how much worse than the pooled linear model
RMSE = 0.01  # share of the pooled ridge regression's
CLEARLY_NLL, CLEARLY_RMSE = 0.03, 0.05  # gradient boosting is clearly better than the linear model by more than this
WIDENED = 0.005  # change of accuracy, or of RMSE as a share, with wider ranges
FILE_BYTES = 40_000  # at most, of a site of the logistic data, which has 20 columns
LIMIT, LIMITED_ACCURACY = 9_000, 0.72  # with this max_bytes the logistic data keep at least this accuracy
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Check:
    """`margin` is how much is left, over the splits; below 0 the row fails."""

    name: str
    margin: float
    error: float  # standard error of the margin; NaN of one split

    @property
    def is_kept(self) -> bool:
        return self.margin >= 0

    @property
    def shortfall(self) -> str:
        error = "" if np.isnan(self.error) else f" ± {self.error:.4f}"
        return f"{-self.margin:.4f}{error}"


@dataclass(frozen=True)
class Group:
    """All splits of one kind of one table."""

    table: str
    split: str
    rows: Sequence[Row]

    @property
    def name(self) -> str:
        return f"{self.table}, {self.split}"

    @property
    def is_regression(self) -> bool:
        return self.rows[0]["task"] == "regression"

    def values(self, who: str, what: str) -> np.ndarray:
        return np.asarray([row[who][what] for row in self.rows])

    def mean(self, who: str, what: str) -> float:
        return float(np.mean(self.values(who, what)))

    def offset(self, who: str, where: str) -> float:
        """Mean over the splits of the largest difference of a class."""
        return float(np.mean([np.max(np.abs(row[who][where])) for row in self.rows]))

    def checks(self) -> list[Check]:
        """Every line of the promise; a positive margin keeps it."""
        ours, linear, alone = (lambda what, who=who: self.values(who, what) for who in ("ours", "linear", "alone"))
        offsets = np.asarray([np.max(np.abs(row["ours"]["offset_train"])) for row in self.rows])
        if self.is_regression:
            margins = {
                "RMSE": (1 + RMSE) - ours("rmse") / linear("rmse"),
                "NLL": linear("nll") + NLL - ours("nll"),
                "mean": OFFSET - offsets,
                "site alone": alone("rmse") / ours("rmse") - 1,
                "site alone, NLL": alone("nll") - ours("nll"),
            }
        else:
            margins = {
                "accuracy": ours("accuracy") - linear("accuracy") + ACCURACY,
                "NLL": linear("nll") + NLL - ours("nll"),
                "AUC": ours("auc") - linear("auc") + AUC,
                "mean probability": OFFSET - offsets,
                "site alone": ours("accuracy") - alone("accuracy"),
                "site alone, NLL": alone("nll") - ours("nll"),
            }
        # Half a unit of the third digit: sites of 200,000 records are as good alone, up to chance.
        slack = {"site alone": 0.0005, "site alone, NLL": 0.0005}
        return [
            Check(name, float(np.mean(values)) + slack.get(name, 0.0), _standard_error(values))
            for name, values in margins.items()
        ]

    def is_boosting_clearly_better(self) -> bool:
        if self.is_regression:
            return self.mean("boosting", "rmse") < (1 - CLEARLY_RMSE) * self.mean("linear", "rmse")
        return self.mean("boosting", "nll") < self.mean("linear", "nll") - CLEARLY_NLL

    def is_above_linear(self) -> bool:
        what = "rmse" if self.is_regression else "nll"
        return self.mean("ours", what) < self.mean("linear", what)


def _standard_error(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def summarise(rows: Iterable[Row], wanted: Mapping[str, Sequence[str]]) -> str:
    """Markdown: means, verdicts, and what wider ranges and a limit of bytes change. Tables are in the order wanted."""
    rows = list(rows)
    if not rows:
        return "There are no rows yet."
    parts = []
    for size in sorted({row["rows"] for row in rows}, reverse=True):
        same = [row for row in rows if row["rows"] == size]
        plain = _groups([row for row in same if row["widen"] == 1 and row["max_bytes"] is None], wanted)
        if plain:
            parts += [_means(plain), _verdicts(plain, _absent(plain, wanted))]
        for factor, limit in sorted({(row["widen"], row["max_bytes"] or 0) for row in same}):
            if (factor, limit) != (1, 0):
                changed = [row for row in same if (row["widen"], row["max_bytes"] or 0) == (factor, limit)]
                parts.append(_changes(_groups(changed, wanted), plain, factor, limit))
    return "\n\n".join(parts)


def _groups(rows: Sequence[Row], wanted: Mapping[str, Sequence[str]]) -> list[Group]:
    found = []
    for table, splits in wanted.items():
        for split in splits:
            same = sorted(
                (row for row in rows if (row["table"], row["split"]) == (table, split)), key=lambda row: row["seed"]
            )
            if same:
                found.append(Group(table, split, same))
    return found


def _absent(groups: Sequence[Group], wanted: Mapping[str, Sequence[str]]) -> list[str]:
    there = {group.name for group in groups}
    return [name for table, splits in wanted.items() for split in splits if (name := f"{table}, {split}") not in there]


def _means(groups: Sequence[Group]) -> str:
    lines = [
        "| table, split | splits | coreshot | pooled linear | pooled boosting | mean site alone "
        "| mean probability less base rate: sites, test | bytes of a site | fails |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for group in groups:
        quality = " | ".join(_quality(group, who) for who in ("ours", "linear", "boosting", "alone"))
        signed = np.mean([row["ours"]["offset_test"] for row in group.rows], axis=0)
        offsets = f"{group.offset('ours', 'offset_train'):.3f}, {float(np.max(np.abs(signed))):.3f}"
        size = max(row["bytes"] for row in group.rows)
        failed = ", ".join(check.name for check in group.checks() if not check.is_kept)
        lines.append(f"| {group.name} | {len(group.rows)} | {quality} | {offsets} | {size:,} | {failed} |")
    note = (
        "Accuracy / NLL / AUC, or RMSE in the target's units / NLL of targets in their deviations; means over splits. "
        "The difference at the sites is the largest of a class, on average over the splits; on the test it is the mean "
        "over the splits, of which the largest of a class is shown."
    )
    return "\n".join([*lines, "", note])


def _quality(group: Group, who: str) -> str:
    names = ("rmse", "nll") if group.is_regression else ("accuracy", "nll", "auc")
    shown = []
    for name in names:
        if name in group.rows[0][who]:
            value = group.mean(who, name)
            shown.append(f"{value:.4g}" if name == "rmse" else f"{value:.3f}")
    return " / ".join(shown)


def _verdicts(groups: Sequence[Group], absent: Sequence[str]) -> str:
    kept = [group for group in groups if all(check.is_kept for check in group.checks())]
    lines = [f"**{len(kept)} of {len(groups) + len(absent)} keep every line.**", ""]
    lines += [f"- Not computed, or refused: {'; '.join(absent)}."] * bool(absent)
    each: dict[str, list[bool]] = {}
    for group in groups:
        for check in group.checks():
            each.setdefault(check.name, []).append(check.is_kept)
    lines += [f"- {name}: {sum(found)} of {len(found)}." for name, found in each.items()]
    better = [group for group in groups if group.is_boosting_clearly_better()]
    above = [group for group in better if group.is_above_linear()]
    lines.append(
        f"- Gradient boosting is clearly better than the linear model in {len(better)}; "
        f"there coreshot is above the linear model in {len(above)}."
    )
    lines += [f"  - Not above it: {group.name}." for group in better if group not in above]
    for group in groups:
        if group.table == "logistic":
            size = max(row["bytes"] for row in group.rows)
            kept_or_not = "kept" if size <= FILE_BYTES else "not kept"
            lines.append(f"- A file of 20 columns has at most {FILE_BYTES:,} bytes: {kept_or_not}, {size:,}.")
    failures = [
        f"- {group.name}: " + "; ".join(f"{check.name} by {check.shortfall}" for check in failed) + "."
        for group in groups
        if (failed := [check for check in group.checks() if not check.is_kept])
    ]
    return "\n".join(
        [*lines, *(["", "Failures, with the standard error over the splits:", "", *failures] * bool(failures))]
    )


def _changes(changed: Sequence[Group], plain: Sequence[Group], factor: float, limit: int) -> str:
    """Accuracy, or RMSE as a share, less that of the same splits without the change."""
    known = {group.name: {row["seed"]: row for row in group.rows} for group in plain}
    lines, worst = [], []
    for group in changed:
        pairs = [
            (row["ours"], known[group.name][row["seed"]]["ours"])
            for row in group.rows
            if row["seed"] in known.get(group.name, {})
        ]
        if not pairs:
            continue
        differences = [
            new["rmse"] / old["rmse"] - 1 if group.is_regression else new["accuracy"] - old["accuracy"]
            for new, old in pairs
        ]
        change = float(np.mean(differences))
        worst.append(abs(change) < WIDENED)
        what = "RMSE as a share" if group.is_regression else "accuracy"
        now = group.mean("ours", "rmse" if group.is_regression else "accuracy")
        mark = "" if worst[-1] else f" (not below {WIDENED:g})"
        if (group.table, limit) == ("logistic", LIMIT):
            mark += f"; at least {LIMITED_ACCURACY:g}: {'kept' if now >= LIMITED_ACCURACY else 'not kept'}"
        lines.append(f"- {group.name}: {what} {change:+.4f}, now {now:.4g}, {_bytes(group)} bytes{mark}.")
    name = f"max_bytes = {limit:,}" if limit else f"Ranges {factor:g} times as wide"
    return "\n".join([f"**{name}: {sum(worst)} of {len(worst)} change by less than {WIDENED:g}.**", "", *lines])


def _bytes(group: Group) -> str:
    return f"{max(row['bytes'] for row in group.rows):,}"
