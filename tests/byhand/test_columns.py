"""Each kind of column by hand: spellings, words for missing, dates, and the same cells in any form of a file."""

import datetime
import math

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coreshot.config import decode
from coreshot.data.broken_columns import describe_broken, refuse_broken
from coreshot.data.cells import as_text
from coreshot.data.columns import Finding, Reading, encode_column
from coreshot.data.schema import Classes, Column, Quantity, Table
from coreshot.errors import CoreshotError


def column(**values):
    return decode(Column, {"name": "a", **values}, "study")


SMOKER = column(kind="yes_no", aliases={"yes": ["raucht"]})
PAIN = column(kind="category", values=["none", "mild", "Mild"], aliases={"none": ["keine"]}, outside="missing")
SEEN = column(kind="date", range=["2000-01-01", "2000-12-31"], outside="missing")
BMI = column(kind="number", range=[10, 70], outside="clip")


def test_yes_and_no_in_any_spelling():
    cells = ["Yes", "NO", "true", "F", "1", "0", " ja ", "NEIN", "Raucht", "", "NA"]
    x, is_missing, finding = encode_column(SMOKER, cells, "site")
    assert x[:, 0].tolist() == [1, -1, 1, -1, 1, -1, 1, -1, 1, 0, 0]
    assert is_missing.tolist() == [False] * 9 + [True] * 2
    assert finding.words == (("na", 1),)
    for typed in ([True, False, None], [1, 0, None], [1.0, 0.0, math.nan]):
        assert encode_column(SMOKER, typed, "site")[0][:, 0].tolist() == [1, -1, 0]
    with pytest.raises(
        CoreshotError, match=r"record 2 has a cell in 'a' that the study does not know \(it knows no, yes\)"
    ):
        encode_column(SMOKER, ["yes", "perhaps"], "site")


def test_a_category_is_matched_as_written_and_then_in_any_case():
    x, is_missing, finding = encode_column(PAIN, ["none", "NONE", "mild", "Mild", "MILD", "Keine", "", None], "site")
    assert np.argmax(x, axis=1).tolist()[:4] == [0, 0, 1, 2]
    assert x[5].tolist() == [1, 0, 0]
    assert is_missing.tolist() == [False] * 4 + [True, False, True, True]  # MILD could be either
    assert (finding.num_present, finding.num_missing, finding.num_outside) == (5, 2, 1)
    assert finding.commonest == (("MILD", 1),)
    assert "MILD" not in repr(finding)


def test_a_word_for_missing_is_a_value_of_a_category_unless_the_study_says_otherwise():
    free = column(kind="category", values=["none", "NA"])
    assert not encode_column(free, ["none", "NA", "None"], "site")[1].any()
    agreed = Table(columns=(column(kind="category", values=["mild"]),), missing_words=("None", "-9"))
    x, findings = agreed.encode({"a": ["mild", "none", "-9"]}, "site")
    assert x.tolist() == [[1, 0], [0, 1], [0, 1]]
    assert findings[0].words == (("-9", 1), ("None", 1))
    with pytest.raises(CoreshotError, match="read as missing, so no value can be called that"):
        decode(Table, {"columns": [{"name": "a", "kind": "category", "values": ["NA"]}], "missing_words": ["NA"]}, "")
    with pytest.raises(CoreshotError, match="'na' 1 of them: if these mean missing, agree on missing_words"):
        encode_column(column(kind="category", values=["mild"]), ["NA", "mild"], "site")


def test_words_for_missing_in_numbers_are_counted_and_codes_are_numbers():
    cells = ["20", "NA", "n/a", "-", "?", ".", "na", "-9", "-9.0", None]
    _, is_missing, finding = encode_column(BMI, cells, "site", ("-9",))
    assert is_missing.tolist() == [False] + [True] * 9
    assert finding.words == (("-", 1), ("-9", 2), (".", 1), ("?", 1), ("n/a", 1), ("na", 2))
    assert finding.num_missing == 9
    typed = encode_column(BMI, np.asarray([20.0, -9.0, np.nan]), "site", ("-9",))
    assert typed[1].tolist() == [False, True, True]


def test_dates_are_numbers_between_two_public_dates():
    cells = ["2000-01-01", "2000-12-31", "2000-07-01T12:00", "1999-12-31", "", "NA"]
    x, _, finding = encode_column(SEEN, cells, "site")
    assert np.allclose(x[:, 0], [-1, 1, 2 * 182 / 365 - 1, 0, 0, 0], atol=1e-6)
    assert (finding.num_present, finding.num_missing, finding.num_outside) == (3, 2, 1)
    typed = [datetime.date(2000, 1, 1), datetime.date(2000, 12, 31)]
    for form in (typed, pyarrow.array(typed).cast(pyarrow.timestamp("ns"))):
        assert encode_column(SEEN, form, "site")[0][:, 0].tolist() == [-1, 1]
    german = column(kind="date", range=["2000-01-01", "2000-12-31"], format="%d.%m.%Y")
    assert encode_column(german, ["1.1.2000"], "site")[0].tolist() == [[-1]]
    assert encode_column(SEEN, ["31.12.2000"], "site", (), Reading(date_format="%d.%m.%Y"))[0].tolist() == [[1]]
    assert Table(columns=(SEEN,)).decode(np.asarray([[-1.0], [1.0]])) == {"a": ["2000-01-01", "2000-12-31"]}
    for cell in ("31.02.2000", "2000-02-31", "2000-01-011", "soon"):
        with pytest.raises(CoreshotError, match="record 1 has a cell in 'a' that is not a date"):
            encode_column(SEEN, [cell], "site")


def test_unreadable_cells_count_as_missing_only_where_the_site_allows_it():
    _, is_missing, finding = encode_column(BMI, ["20", "heavy"], "site", (), Reading(allow=frozenset("a")))
    assert is_missing.tolist() == [False, True]
    assert (finding.num_present, finding.num_missing, finding.num_outside) == (1, 0, 1)
    strict = column(kind="number", range=[10, 70])
    with pytest.raises(CoreshotError, match="outside the study's 10 to 70"):  # what is agreed on is not the site's
        encode_column(strict, ["200"], "site", (), Reading(allow=frozenset("a")))


def test_errors_show_cells_only_where_the_site_asks():
    cells = ["heavy", "heavy", "light"]
    with pytest.raises(CoreshotError) as caught:
        encode_column(BMI, cells, "site")
    assert "heavy" not in str(caught.value)
    with pytest.raises(
        CoreshotError, match=r"record 1 and 2 more have a cell in 'a' \('heavy' 2 times, 'light' once\)"
    ):
        encode_column(BMI, cells, "site", (), Reading(show_values=True))


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "yes_no", "range": [0, 1]},
        {"kind": "yes_no", "aliases": {"maybe": ["x"]}},
        {"kind": "yes_no", "outside": "clip"},
        {"kind": "date", "range": [1.0, 2.0]},
        {"kind": "date", "range": ["2001-01-01", "2000-01-01"]},
        {"kind": "date", "range": ["yesterday", "today"]},
        {"kind": "date", "range": ["2000-01-01", "2001-01-01"], "format": "DD.MM.YYYY"},
        {"kind": "number", "range": ["2000-01-01", "2001-01-01"]},
        {"kind": "number", "range": [1, "2001-01-01"]},
        {"kind": "number", "range": [0, 1], "format": "%d"},
        {"kind": "category", "values": ["a", "b"], "aliases": {"a": ["x"], "b": ["x"]}},
        {"kind": "category", "values": ["a", "b"], "aliases": {"a": ["b"]}},
        {"kind": "category", "values": ["a"], "aliases": {"a": ["1.0"]}},
    ],
)
def test_columns_that_make_no_sense(bad):
    with pytest.raises(CoreshotError, match="column 'a'"):
        column(**bad)


def test_two_columns_of_one_name_are_refused():
    columns = [{"name": "bmi", "kind": "yes_no"}, {"name": "b", "kind": "yes_no", "names": ["bmi"]}]
    with pytest.raises(CoreshotError, match="'bmi' is there twice"):
        decode(Table, {"columns": columns}, "study")


def test_a_target_may_be_clipped_and_classes_in_any_case():
    y, finding = Quantity(name="days", range=(0.0, 10.0), outside="clip").encode(["5", "20"], "site")
    assert y[:, 0].tolist() == [0, 1]
    assert finding.num_outside == 1
    assert Classes(name="ill", classes=("No", "none")).encode(["NO", "None"], "site")[0].tolist() == [0, 1]


def finding(present, missing, outside, **changes):
    values = {"kind": "number", "may_be_missing": False, "num_records": 100, **changes}
    return Finding("bmi", present, missing, outside, **values)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (finding(100, 0, 100), "100 of 100 cells are outside the study's range (is it in another unit?)"),  # clipped
        (finding(0, 0, 100), "100 of 100 cells are outside"),  # missing
        (finding(0, 0, 100, kind="category"), "outside the study's values (are its values spelled in another way?)"),
        (finding(89, 0, 11), "11 of 100 cells are outside"),
        (finding(90, 0, 10), None),
        (finding(0, 90, 10), "10 of 10 cells are outside"),  # of the cells that are there
        (finding(0, 90, 10, may_be_missing=True), "10 of 10 cells are outside"),
        (finding(40, 60, 0), "60 of 100 cells are missing"),
        (finding(50, 50, 0), None),
        (finding(0, 100, 0, may_be_missing=True), None),
        (finding(0, 2, 0, num_records=2), None),  # too few to tell
        (finding(0, 0, 2, num_records=2), None),
    ],
)
def test_a_broken_column_by_its_counts(found, reason):
    if reason is None:
        assert describe_broken([found]) == {}
        refuse_broken([found], "site.csv")
        return
    assert reason in describe_broken([found])["bmi"]
    with pytest.raises(CoreshotError, match="the column 'bmi' is broken"):
        refuse_broken([found], "site.csv")
    refuse_broken([found], "site.csv", ["bmi"])
    with pytest.raises(CoreshotError, match="--allow age: the study has no such column"):
        refuse_broken([found], "site.csv", ["age"])


CELLS = st.lists(
    st.one_of(
        st.none(),
        st.sampled_from(["", " ", "f", "m", "F", "x", "1", "1.0", "01", "NA", "nan", "-3", "2.5", "1e1", " 7 ", "+4"]),
        st.floats(-50, 50, allow_nan=False).map(lambda value: f"{value:.3f}"),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(CELLS)
def test_columns_are_read_as_a_loop_over_cells_would(cells):
    """The slow way, cell by cell, for numbers and for categories."""
    reading = Reading(allow=frozenset("a"))
    scale = column(kind="number", range=[-20, 20], outside="clip")
    x, is_missing, _ = encode_column(scale, cells, "site", (), reading)
    for cell, number, missing in zip(cells, x[:, 0], is_missing, strict=True):
        text = as_text(cell)
        try:
            value = math.nan if text is None else float(text)
        except ValueError:
            value = math.nan
        assert missing == math.isnan(value)
        assert number == pytest.approx(0 if missing else np.clip(value, -20, 20) / 20, abs=1e-6)
    choice = column(kind="category", values=["1", "f", "m"], outside="missing")
    hot, is_missing, _ = encode_column(choice, cells, "site")
    for cell, line, missing in zip(cells, hot, is_missing, strict=True):
        text = as_text(cell)
        expected = [text is not None and text.lower() == value for value in ("1", "f", "m")]
        assert line.tolist() == expected
        assert missing == (not any(expected))
