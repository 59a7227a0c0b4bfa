"""What a coordinator or a site wants to know of a study before any work: its inputs, open places, bytes and memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from coreshot.data.schema import Classes, Column, Quantity, Table
from coreshot.errors import CoreshotError
from coreshot.study.study import Study
from coreshot.study.template import FILL_IN, GUESSED
from coreshot.wire.messages import encode_message

MAX_MEMORY = 8.0  # GB that a study may take at a site, unless the site says otherwise
PROGRAM_BYTES = 300_000_000  # of coreshot itself, with the libraries that it loads; measured with a small study

_OUTSIDE = {"refuse": "refused", "missing": "missing", "clip": "clipped"}
# A comment begins at the first # outside of quotation marks.
_COMMENT = re.compile(r"""(?:[^#"']|"(?:\\.|[^"\\])*"|'[^']*')*(?:#(.*))?""")
_WHAT = re.compile(r"\s*(?:#\s*)?([A-Za-z_]+)\s*=")


@dataclass(frozen=True)
class Mark:
    """A line of a study file with a comment that asks for a person's attention."""

    line: int
    word: str  # FILL_IN or GUESSED
    what: str  # the setting of this line, and whose


def find_marks(text: str) -> list[Mark]:
    """Only in comments: a column may be called "guessed"."""
    found, owner = [], ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("["):
            owner = "target" if line.startswith("[target]") else ""
        if owner != "target" and (name := re.match(r"""name = (?:"([^"\\]*)"|'([^']*)')""", line)):
            owner = name.group(1) or name.group(2)
        comment = (match.group(1) if (match := _COMMENT.match(line)) else None) or ""
        word = next((word for word in (FILL_IN, GUESSED) if word in comment), None)
        if word is not None:
            setting = match.group(1) if (match := _WHAT.match(line)) else "comment"
            found.append(Mark(number, word, f"{setting} of {owner}" if owner else setting))
    return found


@dataclass(frozen=True)
class SiteNeeds:
    """Of a site with so many records."""

    num_records: int
    file_bytes: int  # about; few records need fewer
    data_bytes: int  # of memory, about, besides the program
    kept_in: str


def site_needs(study: Study, num_records: int) -> SiteNeeds:
    """From the method's own estimate, and the encoded records in single precision."""
    cost = study.method.cost(study.model, [num_records])
    _, answer = cost.exchanges[0][0]
    encoded = encode_message(answer, study_hash=study.hash, client="site", releases=study.releases)
    size = 4 * num_records
    for side in study.agreement.input_shape:
        size *= side
    return SiteNeeds(num_records, len(encoded), size + cost.num_bytes, cost.kept_in)


def refuse_large(study: Study, num_records: int, max_bytes: float, how: str) -> None:
    """A CoreshotError where so many records need more memory than the site gives; `how` to raise it."""
    needed = PROGRAM_BYTES + site_needs(study, num_records).data_bytes
    if needed > max_bytes:
        raise CoreshotError(
            f"study: needs about {needed / 1e9:,.1f} GB of memory or disk for {num_records:,} records, and this site's "
            f"limit is {max_bytes / 1e9:,.1f} GB; {how}."
        )


def describe_inputs(table: Table) -> Iterator[tuple[str, str, str, int, str, str]]:
    """For each column: name, kind, its range or the number of its values, inputs, what happens to other values, and
    whether most cells may be missing."""
    indicator = 1 if table.has_indicators else 0
    for column in table.columns:
        yield (
            column.name,
            column.kind,
            _extent(column),
            column.width + indicator,
            _OUTSIDE[column.outside],
            "yes" if column.may_be_missing else "no",
        )


def _extent(column: Column) -> str:
    if column.range is not None:
        low, high = column.range
        return f"{_plain(low)} to {_plain(high)}"
    return f"{len(column.values)} values" if column.values else ""


def describe_target(target: Classes | Quantity) -> str:
    if isinstance(target, Classes) and target.ends:
        return (
            f"{target.name} = {target.classes[1]}: an event, by {target.time} in {len(target.ends)} periods; "
            "a person is a record for each period at risk"
        )
    if isinstance(target, Classes):
        return f"{target.name}: {len(target.classes)} classes: {', '.join(target.classes)}"
    if target.counts:
        return f"{target.name}: counts from 0 to {_plain(target.range[1])}"
    return f"{target.name}: a quantity from {_plain(target.range[0])} to {_plain(target.range[1])}"


def _plain(end: float | str) -> str:
    return end if isinstance(end, str) else f"{end:,.6g}"
