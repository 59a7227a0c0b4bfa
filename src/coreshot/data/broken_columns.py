"""Columns that cannot be what the study means: most cells empty, or many outside its ranges and values."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from coreshot.data.columns import Finding, allow_words, show_commonest
from coreshot.errors import CoreshotError

# With half of its cells empty a column says less about a site's records than the word "missing" does, and the usual
# cause is another name or an export without it. Two fifths, as in many real tables, still pass.
MAX_MISSING_SHARE = 0.5
# Typing mistakes are some cells in a hundred; another unit or spelling is nearly all of them, or those of one value.
MAX_OUTSIDE_SHARE = 0.1
MIN_CELLS = 3  # fewer are typing mistakes, whatever their share of a small file

CAUSES = {
    "number": "is it in another unit?",
    "date": "are the dates what the study means?",
    "category": "are its values spelled in another way?",
    "yes_no": "are yes and no spelled in another way?",
}


def broken_reason(finding: Finding) -> str | None:
    """In words, with counts and without cells, why a column is broken; None if it is not."""
    if not finding.kind:
        return None
    num_filled = finding.num_records - finding.num_missing
    if finding.num_outside >= MIN_CELLS and finding.num_outside > MAX_OUTSIDE_SHARE * num_filled:
        ranges = "range" if finding.kind in ("number", "date") else "values"
        return (
            f"{finding.num_outside:,} of {num_filled:,} cells are outside the study's {ranges} ({CAUSES[finding.kind]})"
        )
    is_expected = finding.may_be_missing or finding.num_missing < MIN_CELLS
    if not is_expected and finding.num_missing > MAX_MISSING_SHARE * finding.num_records:
        return (
            f"{finding.num_missing:,} of {finding.num_records:,} cells are missing (does the file have it elsewhere?)"
        )
    return None


def describe_broken(findings: Sequence[Finding]) -> dict[str, str]:
    """The reason for each broken column."""
    return {finding.name: reason for finding in findings if (reason := broken_reason(finding)) is not None}


def refuse_broken(findings: Sequence[Finding], where: str, allow: Collection[str] = ()) -> None:
    """A CoreshotError where a column is broken and the site has not said that it may be."""
    names = [finding.name for finding in findings]
    unknown = next((name for name in allow if name not in names), None)
    if unknown is not None:
        raise CoreshotError(f"--allow {unknown}: the study has no such column; it has {', '.join(names)}.")
    broken = {name: reason for name, reason in describe_broken(findings).items() if name not in allow}
    if not broken:
        return
    first, *others = broken
    more = f" (so are {', '.join(others)})" if others else ""
    raise CoreshotError(
        f"{where}: the column {first!r} is broken{more}: {broken[first]}; mend the file, "
        f"look at the cells with `distill --show-values`, or go on with {allow_words(list(broken))}."
    )


def offending_lines(findings: Sequence[Finding]) -> list[str]:
    """Cells of the site, for a site that asked to see them: the commonest that are outside, for each column."""
    return [
        f"{finding.name}: outside are {show_commonest(finding.commonest)}" for finding in findings if finding.commonest
    ]
