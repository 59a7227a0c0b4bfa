"""A site's file as the records of a study: a table, an npz file or a folder of images; read, checked and encoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from jaxtyping import Float

from coreshot.data.cells import Cells, as_array, is_text
from coreshot.data.columns import Finding, Reading, encode_column, list_names, merge_findings
from coreshot.data.image_files import decode_image
from coreshot.data.number_format import NumberColumn, NumberFormat, detect_format
from coreshot.data.parts import NotPlainError, fill_in_parts, read_parts
from coreshot.data.periods import at_risk, every_period, last_time, period_names, time_column
from coreshot.data.readers.npz import INPUT_KEYS, LABEL_KEYS
from coreshot.data.readers.npz_archive import load_arrays
from coreshot.data.schema import Classes, Column, Images, Quantity, Table
from coreshot.data.site_settings import DETECT, SiteSettings
from coreshot.data.table import TableFile, check_header
from coreshot.data.table_files import read_columns, read_table, rename_columns
from coreshot.errors import CoreshotError

__all__ = ["EncodedRecords", "check_header", "read_arrays", "read_columns", "read_records"]

MAX_SHOWN = 40  # letters of the name of a column
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")


@dataclass(frozen=True)
class EncodedRecords:
    """Inputs and targets for a model; y is None if no targets were asked for."""

    x: Float[np.ndarray, "n ..."]
    y: Any
    findings: list[Finding]
    read_as: str = ""  # how the file is written, in words
    owner: Any = None  # of a time to an event, whose record in the file each of these is


def read_records(
    path: Path,
    inputs: Table | Images,
    target: Classes | Quantity,
    *,
    needs_target: bool = True,
    how: SiteSettings = DETECT,
    show_values: bool = False,
) -> EncodedRecords:
    where = str(path)
    if not path.exists():
        raise CoreshotError(
            f"{where}: there is no such file or folder; give CSV, Excel, parquet, npz, or a folder of images."
        )
    if isinstance(inputs, Images):
        images, labels = _read_images(path, inputs, target)
        x, findings = inputs.encode(images, where)
        cells: Mapping[str, Any] = {target.name: labels} if labels is not None else {}
        reading, read_as = Reading(show_values=show_values), ""
    elif (large := _read_in_parts(path, inputs, target, needs_target, how, show_values)) is not None:
        return large
    else:
        table, sources = _find_columns(path, inputs, target, how, needs_target)
        cells = table.columns
        numbers = _number_format(table, inputs, target if needs_target else None, how, where)
        reading = Reading(numbers, how.date_format, frozenset(how.allow), show_values)
        marks = (numbers.words,) if any(is_text(as_array(column)) for column in cells.values()) else ()
        read_as = "; ".join([", ".join((*table.read_as, *marks)), *table.notes])
        if isinstance(target, Classes) and target.ends:
            found = _read_periods(where, inputs, target, cells, reading, needs_target)
            return replace(found, findings=[_with_source(one, sources) for one in found.findings], read_as=read_as)
        x, findings = inputs.encode(cells, where, reading)
        findings = [_with_source(finding, sources) for finding in findings]
    if len(x) == 0:
        raise CoreshotError(f"{where}: holds no records; give a file with at least one.")
    if not needs_target:
        return EncodedRecords(x, None, findings, read_as)
    if target.name not in cells:
        raise CoreshotError(f"{where}: there is no column {target.name!r}, which is what is to be learned; add it.")
    y, finding = target.encode(cells[target.name], where, reading)
    return EncodedRecords(x, y, [*findings, finding], read_as)


def _read_periods(
    where: str, inputs: Table, target: Classes, cells: Mapping[str, Cells], reading: Reading, needs_target: bool
) -> EncodedRecords:
    """A record for each person and period; without times, for all periods."""
    assert target.time is not None
    num_people = len(next(iter(cells.values())))
    y, findings = None, list[Finding]()
    if needs_target:
        events, found = target.encode(cells[target.name], where, reading)
        times, is_missing, of_time = encode_column(time_column(target), cells[target.time], where, (), reading)
        if np.any(is_missing) or np.any(times < 0):
            line = int(np.flatnonzero(is_missing | (times[:, 0] < 0))[0]) + 1
            raise CoreshotError(
                f"{where}: record {line} has no {target.time!r}, or one below 0, which is what is to be learned; "
                "mend it or drop the record."
            )
        owner, period, y = at_risk(times[:, 0].astype(np.float64) * last_time(target), events, target.ends)
        findings = [replace(of_time, num_outside=0), found]  # after the last end is no mistake
    else:
        owner, period = every_period(num_people, len(target.ends))
    if not len(owner):
        why = f"has nobody who was seen to the end of the first period, {target.ends[0]:g}; agree on shorter periods."
        raise CoreshotError(f"{where}: {why if num_people else 'holds no records; give a file with at least one.'}")
    rows, names = pyarrow.array(owner), np.asarray(period_names(target.ends))
    taken = {column.name: as_array(cells[column.name]).take(rows) for column in inputs.columns[:-1]}
    x, of_columns = inputs.encode({**taken, target.time: names[period].tolist()}, where, reading)
    return EncodedRecords(x, y, [*of_columns[:-1], *findings], owner=owner)


def _read_in_parts(
    path: Path, inputs: Table, target: Classes | Quantity, needs_target: bool, how: SiteSettings, show_values: bool
) -> EncodedRecords | None:
    """A large table; None where the file has to be read as a whole."""
    if isinstance(target, Classes) and target.ends:  # a person has several records
        return None
    parts = read_parts(path, how, _known_names(inputs, target, how))
    if parts is None:
        return None
    told: list[tuple[dict[str, str], str]] = []

    def encode(part: TableFile) -> tuple[np.ndarray, np.ndarray | None, list[Finding]]:
        table, sources = _choose_columns(part, path, inputs, target, how, needs_target)
        of_numbers = target if needs_target else None
        numbers = _number_format(table, inputs, of_numbers, how, str(path))
        reading = Reading(numbers, how.date_format, frozenset(how.allow), show_values, is_part=True)
        x, findings = inputs.encode(table.columns, str(path), reading)
        marks = (numbers.words,) if any(is_text(as_array(column)) for column in table.columns.values()) else ()
        told.append((sources, "; ".join([", ".join((*table.read_as, *marks)), *table.notes])))
        if not needs_target:
            return x, None, findings
        if target.name not in table.columns:
            raise NotPlainError
        y, finding = target.encode(table.columns[target.name], str(path), reading)
        return x, y, [*findings, finding]

    read = fill_in_parts(parts, encode)
    if read is None or len({words for _, words in told}) > 1:
        return None
    x, y, found = read
    findings = [merge_findings(column) for column in zip(*found, strict=True)]
    findings = [_with_source(finding, told[0][0]) for finding in findings[: len(inputs.columns)]] + findings[
        len(inputs.columns) :
    ]
    if y is not None and isinstance(target, Classes):
        findings[-1] = target.count(y)
    return EncodedRecords(x, y, findings, told[0][1])


def _known_names(inputs: Table, target: Classes | Quantity, how: SiteSettings) -> set[str]:
    wanted: list[Column | Classes | Quantity] = [*inputs.columns, target]
    return {name for column in wanted for name in (column.name, *column.names)} | set(how.columns or {})


def _find_columns(
    path: Path, inputs: Table, target: Classes | Quantity, how: SiteSettings, needs_target: bool
) -> tuple[TableFile, dict[str, str]]:
    table = read_table(path, how, _known_names(inputs, target, how))
    return _choose_columns(table, path, inputs, target, how, needs_target)


def _choose_columns(
    table: TableFile, path: Path, inputs: Table, target: Classes | Quantity, how: SiteSettings, needs_target: bool
) -> tuple[TableFile, dict[str, str]]:
    """The study's columns of a file by the study's names; and, where it has another name in the file, that name."""
    wanted: list[Column | Classes | Quantity] = [*inputs.columns, target]
    columns = rename_columns(table.columns, how.columns or {}, path)
    sources = {column.name: source for column in wanted if (source := _source(column, columns, path)) is not None}
    if not sources:
        raise CoreshotError(
            f"{path}: its first line names none of the study's columns ({', '.join(c.name for c in wanted)}); "
            "add a header, or give the study's names in the [columns] of --site-settings."
        )
    for name, source in sources.items():
        other = next((one for one in sources if one != name and sources[one] == source), None)
        if other is not None:
            raise CoreshotError(f"{path}: {source!r} is both {name!r} and {other!r} of the study; rename it.")
    known_later = {target.name, getattr(target, "time", None)}
    lost = [one.name for one in wanted if one.name not in sources and (needs_target or one.name not in known_later)]
    if lost:
        # With a quotation mark that is not closed, a name goes on over the records: only its first line is shown.
        unused = [name.partition("\n")[0][:MAX_SHOWN] for name in columns if name not in sources.values()]
        raise CoreshotError(
            f"{path}: there is no column {lost[0]!r}; it has {list_names(unused)} besides the study's: rename one, "
            "or add it, empty where it is unknown."
        )
    found = {name: as_array(columns[source]) for name, source in sources.items()}
    return replace(table, columns=found), {name: source for name, source in sources.items() if name != source}


def _source(column: Column | Classes | Quantity, columns: Mapping[str, Cells], path: Path) -> str | None:
    """The name in the file: one of the names agreed on, or else one that differs from them in case only."""
    names = (column.name, *column.names)
    found = [name for name in names if name in columns]
    folded = {name.casefold() for name in names}
    found = found or [name for name in columns if name.casefold() in folded]
    if len(found) > 1:
        raise CoreshotError(
            f"{path}: {' and '.join(map(repr, found))} are both names of {column.name!r}; remove or rename one."
        )
    return found[0] if found else None


def _with_source(finding: Finding, sources: Mapping[str, str]) -> Finding:
    if finding.name not in sources:
        return finding
    note = f"in the file: {sources[finding.name]}"
    return replace(finding, note=f"{note}; {finding.note}" if finding.note else note)


def _number_format(
    table: TableFile, inputs: Table, target: Classes | Quantity | None, how: SiteSettings, where: str
) -> NumberFormat:
    numbers = [column for column in inputs.columns if column.kind == "number"]
    numbers += [target.as_column] if isinstance(target, Quantity) else []
    numbers += [time_column(target)] if isinstance(target, Classes) and target.ends else []
    columns = [
        NumberColumn(column.name, table.columns[column.name], *column.bounds)
        for column in numbers
        if is_text(as_array(table.columns[column.name]))
    ]
    return detect_format(
        columns, where, decimal=how.decimal, thousands=how.thousands, is_point_usual=table.is_point_usual
    )


def read_arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of a study without a schema, whose records are arrays: an npz file."""
    if not path.exists():
        raise CoreshotError(f"{path}: there is no such file; give an npz file.")
    arrays = load_arrays(path, str(path))
    inputs, labels = (next((arrays[key] for key in keys if key in arrays), None) for keys in (INPUT_KEYS, LABEL_KEYS))
    if inputs is None or labels is None:
        names = ", ".join(arrays) or "none"
        raise CoreshotError(
            f"{path}: has arrays {names}; save inputs as {' or '.join(INPUT_KEYS)} "
            f"and targets as {' or '.join(LABEL_KEYS)}."
        )
    return inputs, labels


def _read_images(path: Path, inputs: Images, target: Classes | Quantity) -> tuple[np.ndarray, Cells | None]:
    if path.is_dir():
        return _read_image_folder(path, inputs)
    if path.suffix.lower() != ".npz":
        raise CoreshotError(
            f"{path}: images are an npz file with {' or '.join(INPUT_KEYS)}, "
            "or a folder with one folder a class; give one of these."
        )
    arrays = load_arrays(path, str(path))
    key = next((key for key in INPUT_KEYS if key in arrays), None)
    if key is None:
        raise CoreshotError(
            f"{path}: has arrays {', '.join(arrays) or 'none'}, but none called {' or '.join(INPUT_KEYS)}; "
            "save the images as one."
        )
    label_key = next((name for name in (target.name, *LABEL_KEYS) if name in arrays), None)
    labels = arrays[label_key] if label_key else None
    if arrays[key].ndim < 3 or arrays[key].dtype.kind not in "buif" or (labels is not None and labels.ndim != 1):
        raise CoreshotError(
            f"{path}: images are an array [number, lines, columns(, channels)] of numbers, "
            "labels one of [number]; save them so."
        )
    if labels is not None and len(labels) != len(arrays[key]):
        raise CoreshotError(f"{path}: has {len(arrays[key])} images and {len(labels)} labels; give one for each.")
    return arrays[key], None if labels is None else labels.tolist()


def _read_image_folder(path: Path, inputs: Images) -> tuple[np.ndarray, Cells | None]:
    """path/CLASS/*.png, or path/*.png without classes."""
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
    if not files:
        raise CoreshotError(
            f"{path}: holds no images ({', '.join(IMAGE_SUFFIXES)}); give a folder with one folder a class."
        )
    images = np.stack([_read_image(file, inputs) for file in files])
    loose = [file for file in files if file.parent == path]
    if loose and len(loose) < len(files):
        raise CoreshotError(f"{loose[0]}: lies beside the folders of the classes; move it into one of them.")
    return images, None if loose else [file.relative_to(path).parts[0] for file in files]


def _read_image(file: Path, inputs: Images) -> np.ndarray:
    pixels = decode_image(file, str(file), 1 if inputs.shape[2] == 1 else 3)
    if pixels.shape != inputs.shape:
        raise CoreshotError(f"{file}: is {pixels.shape}, the study wants {inputs.shape}; resize it.")
    return pixels
