"""A file that is read in parts gives the records, the report and the errors of one that is read at once."""

import numpy as np
import pytest
from awkward import STUDY, make_rows, set_cells, to_csv, to_parquet
from test_awkward_files import STOP, WORK

from coreshot.data import files, parts
from coreshot.errors import CoreshotError
from coreshot.study.file import parse_study

ROWS = make_rows()
INPUTS = (parse_study(STUDY, "test").study.inputs, parse_study(STUDY, "test").study.target)


def encoded(path):
    try:
        return files.read_records(path, *INPUTS)
    except CoreshotError as error:
        return str(error)


@pytest.fixture
def in_parts(monkeypatch):
    """What was read in parts."""
    seen = []
    fill = parts.fill_in_parts

    def noted(some, encode):
        found = fill(some, encode)
        seen.append(found is not None and len(found[2]))
        return found

    for name, value in {"LARGE": 0, "LARGE_PARQUET": 0, "BLOCK": 700, "ROWS": 7}.items():
        monkeypatch.setattr(parts, name, value)
    monkeypatch.setattr(files, "fill_in_parts", noted)
    return seen


def same(one, other):
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    arrays = zip((one.x, one.y), (other.x, other.y), strict=True)
    return all(np.array_equal(*pair) for pair in arrays) and (one.findings, one.read_as) == (
        other.findings,
        other.read_as,
    )


@pytest.mark.parametrize("name", [*WORK, *STOP])
def test_every_awkward_file(name, tmp_path, in_parts, monkeypatch):
    content = {**WORK, **STOP}[name][0]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = encoded(path)
    monkeypatch.undo()
    whole = encoded(path)
    assert same(found, whole), (found, whole)


@pytest.mark.parametrize("name", ["plain.csv", "plain.parquet", "outside.csv", "words.csv"])
def test_plain_files_are_read_in_parts(name, tmp_path, in_parts, monkeypatch):
    rows = {
        "outside.csv": set_cells("bmi", "999", 5),
        "words.csv": set_cells("age", "n/a", 3),
    }.get(name, ROWS)
    path = tmp_path / name
    path.write_bytes(to_parquet(rows) if name.endswith("parquet") else to_csv(rows).encode())
    found = encoded(path)
    assert in_parts[0] >= 2, "several parts"
    monkeypatch.undo()
    assert same(found, encoded(path))
    assert len(found.x) == len(rows)


def test_three_decimals_do_not_stop_it(tmp_path, in_parts):
    """1.234 could be a number of thousands: the study's ranges decide, in each part."""
    path = tmp_path / "decimals.csv"
    path.write_text(to_csv(set_cells("bmi", "31.234")))
    assert isinstance(encoded(path).x, np.ndarray)
    assert in_parts[0] >= 2
