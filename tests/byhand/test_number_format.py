"""How numbers are written is found from all cells together, then from the study's ranges; else the site is asked."""

import numpy as np
import pyarrow
import pytest

from coreshot.data.number_format import FORMATS, POINT, NumberColumn, NumberFormat, detect_format, parse_numbers
from coreshot.errors import CoreshotError

GERMAN, ENGLISH, COMMA = NumberFormat(",", "."), NumberFormat(".", ","), NumberFormat(",")


def texts(*cells):
    return pyarrow.array(cells, pyarrow.string())


def detect(*cells, low=0.0, high=1e9, **options):
    return detect_format([NumberColumn("income", texts(*cells), low, high)], "site.csv", **options)


@pytest.mark.parametrize(
    ("form", "cell", "value"),
    [
        (POINT, "1234.5", 1234.5),
        (POINT, "-.5e3", -500),
        (POINT, "+7.", 7),
        (POINT, "1 234.5", 1234.5),
        (POINT, "1\u202f234", 1234),
        (POINT, "1'234'567", 1234567),
        (POINT, "1,5", np.nan),
        (POINT, "12 34", np.nan),
        (POINT, "0x10", np.nan),
        (POINT, "1_000", np.nan),
        (POINT, "5 kg", np.nan),
        (ENGLISH, "1,234.5", 1234.5),
        (ENGLISH, "12,34.5", np.nan),
        (COMMA, "1234,5", 1234.5),
        (COMMA, "1.5", np.nan),
        (GERMAN, "1.234.567,8", 1234567.8),
        (GERMAN, "1.5", np.nan),
    ],
)
def test_a_cell_in_a_format(form, cell, value):
    assert np.array_equal(parse_numbers(texts(cell, None, "x"), form), [value, np.nan, np.nan], equal_nan=True)


@pytest.mark.parametrize(
    ("cells", "form"),
    [
        (["12", "7.5"], POINT),
        (["12", "7,5"], COMMA),
        (["1.234", "7,5"], GERMAN),
        (["1,234", "7.5"], ENGLISH),
        (["1,234,567"], ENGLISH),
        (["1.234.567"], GERMAN),
        (["old", "7,25", "NA"], COMMA),
        ([], POINT),
    ],
)
def test_cells_that_can_be_read_in_one_way_only(cells, form):
    assert detect(*cells, is_point_usual=False) == form


@pytest.mark.parametrize(
    ("cell", "low", "high", "form"),
    [
        ("1.234", 0, 10, POINT),
        ("1.234", 100, 5000, GERMAN),
        ("1,234", 0, 10, COMMA),
        ("1,234", 100, 5000, ENGLISH),
    ],
)
def test_the_studys_range_decides_between_two_ways(cell, low, high, form):
    assert detect(cell, "5" if high == 10 else "500", low=low, high=high, is_point_usual=False) == form


def test_where_nothing_decides_a_point_is_usual_in_some_files_and_the_others_are_refused():
    assert detect("1.234", is_point_usual=True) == POINT
    for cell, usual in (("1.234", False), ("1,234", True), ("1,234", False)):
        with pytest.raises(CoreshotError, match=r"the numbers of income can be read with .* do not decide") as caught:
            detect(cell, is_point_usual=usual)
        assert cell not in str(caught.value)
    assert detect("1,234", decimal=",") == COMMA
    assert detect("1,234", decimal=".") == ENGLISH
    assert detect("1.234", decimal=",", thousands=".") == GERMAN
    with pytest.raises(CoreshotError, match="numbers cannot have ',' before the decimals and ',' between thousands"):
        detect("1", decimal=",", thousands=",")


@pytest.mark.parametrize("form", FORMATS)
def test_numbers_come_back_from_every_format(form):
    values = [0.5, 12.25, 1234.75, 1234567.5]
    marks = str.maketrans({",": form.thousands, ".": form.decimal})
    assert parse_numbers(texts(*(f"{value:,}".translate(marks) for value in values)), form).tolist() == values
