"""Tables as text: encoding and separator are detected and reported, and no error shows a line of the file."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.csv

from coreshot.data.site_settings import DELIMITERS, SiteSettings
from coreshot.data.table import TableFile, named_columns
from coreshot.errors import CoreshotError

NUM_SAMPLED = 50  # lines from which the separator is detected
LINE_END = b"\n"
MAX_BLOCK = 1 << 30  # pyarrow reads a file in blocks, and a cell may not go from one to another
NAMES = {"utf-8": "UTF-8", "utf-8-sig": "UTF-8 with a mark", "cp1252": "Windows-1252", "latin-1": "Latin-1"}


def read_text_table(path: Path, how: SiteSettings, known: Collection[str] = ()) -> TableFile:
    """The columns of a text file as text; names in `known` are public and may be in an error."""
    data = path.read_bytes()
    encoding = how.encoding or _detect_encoding(data)
    text = _decode(data, encoding, path)
    separator, text = _excel_hint(text)
    sample = list(itertools.islice(first_lines(text), NUM_SAMPLED))
    if not sample:
        raise CoreshotError(f"{path}: is empty; give a file whose first line names the columns.")
    mark = how.mark or separator or detect_delimiter(sample, known)
    header, body = split_header(text, mark, path)
    table, notes = _parse(body, len(header), mark, path)
    columns, more = named_columns(header, table.columns, path, known)
    notes += more
    columns, num_blank = _without_blank_end(columns)
    if num_blank:
        notes.append(f"{num_blank} empty lines at the end left out")
    words = [encoding_name(encoding), f"separated by {DELIMITERS[mark]}"]
    return TableFile(columns, tuple(words), tuple(notes), is_point_usual=mark == ",")


def _detect_encoding(data: bytes) -> str:
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            return name
    start = data[:2000]
    if len(start) >= 4 and start.count(0) > len(start) // 4:  # text in which every second byte is 0
        return "utf-16-le" if start[1::2].count(0) > start[::2].count(0) else "utf-16-be"
    for name in ("utf-8", "cp1252"):
        try:
            data.decode(name)
        except UnicodeDecodeError:
            continue
        return name
    return "latin-1"


def encoding_name(encoding: str) -> str:
    return NAMES.get(encoding.lower(), encoding.upper())


def _decode(data: bytes, encoding: str, path: Path) -> str:
    try:
        text = data.decode(encoding)
    except UnicodeError as error:
        start = error.start if isinstance(error, UnicodeDecodeError) else 0
        at = f"line {data.count(LINE_END, 0, start) + 1}"
        raise CoreshotError(f"{path}: is not {encoding}, see {at}; give its encoding with --encoding.") from None
    except LookupError:
        raise CoreshotError(f"{path}: {encoding!r} is no encoding of text; give another one with --encoding.") from None
    text = text.removeprefix("\ufeff")
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise CoreshotError(
            f"{path}: has NUL bytes (the first is in line {line}), so it is no text; save it as CSV anew."
        )
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.lstrip("\n")


def _excel_hint(text: str) -> tuple[str | None, str]:
    """Excel understands a first line "sep=;", which is no header."""
    first, _, rest = text.partition("\n")
    hint = first.strip().strip('"')
    is_hint = hint.lower().startswith("sep=") and hint[4:] in DELIMITERS
    return (hint[4:], rest) if is_hint else (None, text)


def first_lines(text: str) -> Any:
    """The first lines, without those that are blank."""
    return (line for line in io.StringIO(text[:1_000_000]) if line.strip())


def _cells(lines: Sequence[str], mark: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines, delimiter=mark))
    except csv.Error:
        return []


def detect_delimiter(sample: Sequence[str], known: Collection[str]) -> str:
    """The separator with which the header has most of the study's names, then with which most lines are alike."""

    def quality(mark: str) -> tuple[int, float, int]:
        rows = _cells(sample, mark) or [[""]]
        width = len(rows[0])
        num_known = len({name.strip().casefold() for name in rows[0]} & {name.casefold() for name in known})
        alike = Counter(len(row) for row in rows)[width] / len(rows) if width > 1 else 0.0
        return num_known, alike, width

    return max(DELIMITERS, key=quality)


def split_header(text: str, mark: str, path: Path) -> tuple[list[str], str]:
    """The names in the first record, and the text after it; a name may have a line break in quotes."""
    reader = csv.reader(io.StringIO(text), delimiter=mark)
    try:
        header = next(reader)
    except (csv.Error, StopIteration):
        raise CoreshotError(f"{path}: its first line cannot be read; give a line that names the columns.") from None
    body = text
    for _ in range(reader.line_num):
        body = body.partition("\n")[2]
    return header, body


def _parse(body: str, width: int, mark: str, path: Path) -> tuple[pyarrow.Table, list[str]]:
    """All cells as text. Lines that all end in one separator too many are read without it; any other line with
    too many or too few cells is an error with its number."""
    table, wrong = _parse_width(body, width, mark, path)
    if not wrong:
        return table, []
    if all(actual == width + 1 for _, actual in wrong) and len(table) == 0:
        longer, still_wrong = _parse_width(body, width + 1, mark, path)
        if not still_wrong and longer.column(width).null_count == len(longer):
            return longer.select(range(width)), ["a separator at the end of each line left out"]
    record, actual = wrong[0]
    more = f" ({len(wrong):,} such records)" if len(wrong) > 1 else ""
    at = f"record {record}" if record else "a record"
    raise CoreshotError(
        f"{path}: {at} has {actual} cells, the header has {width}{more}; mend it: a cell that contains "
        f"{DELIMITERS[mark]} needs quotes around it."
    )


def _parse_width(body: str, width: int, mark: str, path: Path) -> tuple[pyarrow.Table, list[tuple[int | None, int]]]:
    names = [str(index) for index in range(width)]
    wrong: list[tuple[int | None, int]] = []

    def note(row: Any) -> str:
        wrong.append((row.number, row.actual_columns))
        return "skip"

    data = body.encode()
    if not data.strip():
        return pyarrow.table({name: pyarrow.array([], pyarrow.string()) for name in names}), []
    try:
        table = pyarrow.csv.read_csv(
            io.BytesIO(data), **parse_settings(width, mark, '"' in body, min(len(data) + 1, MAX_BLOCK), note)
        )
    except pyarrow.ArrowException:  # its message may have a line of the file
        raise CoreshotError(f"{path}: cannot be read as CSV; look for a quotation mark that is not closed.") from None
    return table, wrong


def parse_settings(
    width: int, mark: str, has_quotes: bool, block_size: int, on_wrong_row: Callable[[Any], str]
) -> dict[str, Any]:
    """For pyarrow: columns of text called 0, 1, ..."""
    names = [str(index) for index in range(width)]
    return {
        # Rows have numbers only where one thread reads them.
        "read_options": pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=block_size),
        "parse_options": pyarrow.csv.ParseOptions(
            delimiter=mark, newlines_in_values=has_quotes, invalid_row_handler=on_wrong_row
        ),
        "convert_options": pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pyarrow.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    }


def _without_blank_end(columns: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Spreadsheets write lines of separators only after the last record."""
    if not columns:
        return columns, 0
    size = last = len(next(iter(columns.values())))
    while last and all(not (column[last - 1].as_py() or "").strip() for column in columns.values()):
        last -= 1
    return {name: column.slice(0, last) for name, column in columns.items()} if last < size else columns, size - last
