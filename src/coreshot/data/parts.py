"""Large tables in parts, so that memory is that of the encoded records and not of the text.

Only a file that is written plainly is read so: UTF-8, whole lines, numbers that are written in the same way in each
part, and no cell that the study refuses. For any other file the answer is None, and the whole file is read at once: it
says what is wrong, with the numbers of records, or finds out how numbers are written. So a file gives the same records,
the same report and the same errors whichever way it is read.
"""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet

from coreshot.data.cells import Cells
from coreshot.data.large_arrays import empty_array, forget_pages
from coreshot.data.site_settings import DELIMITERS, SiteSettings
from coreshot.data.table import TableFile, check_header, named_columns
from coreshot.data.text_tables import (
    NUM_SAMPLED,
    detect_delimiter,
    encoding_name,
    first_lines,
    parse_settings,
    split_header,
)
from coreshot.errors import CoreshotError

LARGE = 32_000_000  # bytes of a text from which on it is read in parts
LARGE_PARQUET = 4_000_000  # the same of parquet, which is packed
BLOCK = 2_000_000  # bytes of text at once
ROWS = 20_000  # of parquet at once
SAMPLE = 1_000_000  # bytes at the beginning of a text that show how it is written


@dataclass(frozen=True)
class Parts:
    """Tables with the same columns, one after the other."""

    parts: Iterator[TableFile]
    most_rows: int  # of all parts together


def read_parts(path: Path, how: SiteSettings, known: Collection[str]) -> Parts | None:
    """None: this file is not read in parts."""
    reader = READERS.get(path.suffix.lower())
    try:
        return None if reader is None else reader(path, how, known)
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError, CoreshotError):
        return None


def fill_in_parts(
    parts: Parts, encode: Callable[[TableFile], tuple[np.ndarray, np.ndarray | None, Any]]
) -> tuple[np.ndarray, np.ndarray | None, list[Any]] | None:
    """The encoded records of all parts, and what was found in each; None where a part cannot be read so."""
    x: np.ndarray | None = None
    y: np.ndarray | None = None
    found, first = [], 0
    try:
        for part in parts.parts:
            inputs, targets, more = encode(part)
            if x is None:  # memory that is not written to is not used
                x = empty_array((parts.most_rows, *inputs.shape[1:]), inputs.dtype)
                y = None if targets is None else np.empty((parts.most_rows, *targets.shape[1:]), targets.dtype)
            x[first : first + len(inputs)] = inputs
            forget_pages(x)
            if y is not None and targets is not None:
                y[first : first + len(inputs)] = targets
            first += len(inputs)
            found.append(more)
            pyarrow.default_memory_pool().release_unused()  # it would keep the memory of many parts
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError, CoreshotError, NotPlainError):
        return None
    return None if x is None else (x[:first], None if y is None else y[:first], found)


class NotPlainError(Exception):
    """A part is written in a way that only the whole file explains."""


def _text_parts(path: Path, how: SiteSettings, known: Collection[str]) -> Parts | None:
    if path.stat().st_size < LARGE or (how.encoding or "utf-8").lower() not in ("utf-8", "utf8"):
        return None
    with path.open("rb") as file:
        sample = file.read(SAMPLE).decode("utf-8", "ignore")
    if not sample.strip() or sample[0] in "\ufeff\n\r" or sample.lower().lstrip('"').startswith("sep="):
        return None
    plain = sample.replace("\r\n", "\n")
    facts = _look_through(path)
    if facts is None or (facts.has_quotes and facts.has_returns) or "\r" in plain:
        return None
    mark = how.mark or detect_delimiter(list(itertools.islice(first_lines(plain), NUM_SAMPLED)), known)
    header, body = split_header(plain, mark, path)
    num_lines = plain[: len(plain) - len(body)].count("\n")
    named_columns(header, [[]] * len(header), path, known)  # an error here is told of the whole file
    words = (encoding_name("utf-8"), f"separated by {DELIMITERS[mark]}")

    def tables() -> Iterator[TableFile]:
        with path.open("rb") as file:
            for _ in range(num_lines):
                file.readline()
            for batch in _batches(file, len(header), mark, facts.has_quotes):
                columns, notes = named_columns(header, batch.columns, path, known)
                yield TableFile(columns, words, tuple(notes), is_point_usual=mark == ",")

    return Parts(tables(), facts.num_lines)


@dataclass(frozen=True)
class _Facts:
    num_lines: int
    has_quotes: bool
    has_returns: bool


def _look_through(path: Path) -> _Facts | None:
    """Of all bytes; None where they are not plain UTF-8."""
    decoder, num_lines, has_quotes, has_returns = codecs.getincrementaldecoder("utf-8")(), 1, False, False
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            if b"\0" in block:
                return None
            decoder.decode(block)
            num_lines += block.count(b"\n")
            has_quotes, has_returns = has_quotes or b'"' in block, has_returns or b"\r" in block
    decoder.decode(b"", final=True)
    return _Facts(num_lines, has_quotes, has_returns)


def _batches(file: BinaryIO, width: int, mark: str, has_quotes: bool) -> Iterator[pyarrow.RecordBatch]:
    def refuse(row: Any) -> str:
        return "error"

    settings = parse_settings(width, mark, has_quotes, BLOCK, refuse)
    try:
        reader = pyarrow.csv.open_csv(file, **settings)
        for batch in reader:
            if len(batch) and all(not (column[-1].as_py() or "").strip() for column in batch.columns):
                raise NotPlainError  # lines of separators only, perhaps at the end of the file
            yield batch
    except StopIteration:
        return


def _parquet_parts(path: Path, how: SiteSettings, known: Collection[str]) -> Parts | None:
    if path.stat().st_size < LARGE_PARQUET:
        return None
    file = pyarrow.parquet.ParquetFile(path)
    names = check_header(file.schema_arrow.names, path)

    def tables() -> Iterator[TableFile]:
        for batch in file.iter_batches(ROWS):
            batch.validate(full=True)
            columns: Mapping[str, Cells] = {
                name: column
                for name, column in zip(names, batch.columns, strict=True)
                if not pyarrow.types.is_nested(column.type)
            }
            yield TableFile(columns, (path.suffix.lower().removeprefix("."),))

    return Parts(tables(), file.metadata.num_rows)


READERS: dict[str, Callable[[Path, SiteSettings, Collection[str]], Parts | None]] = {
    ".csv": _text_parts,
    ".tsv": _text_parts,
    ".txt": _text_parts,
    ".parquet": _parquet_parts,
}
