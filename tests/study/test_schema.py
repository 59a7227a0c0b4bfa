"""Cells become numbers by public constants alone; what is missing or outside is counted, or refused."""

import numpy as np
import pytest

from coreshot.config import canonical, decode
from coreshot.data.schema import Classes, Column, Images, Quantity, Table, as_text
from coreshot.errors import CoreshotError

AGE = Column(name="age", kind="number", range=(20.0, 100.0))
SEX = Column(name="sex", kind="category", values=("f", "m"))


def table(**changes):
    return Table(**{"columns": (AGE, SEX), **changes})


def test_numbers_by_range_categories_by_value_and_indicators():
    x, findings = table().encode({"age": ["20", "60", None, "100"], "sex": ["f", "", "m", "m"]}, "site")
    assert x.dtype == np.float32
    assert np.array_equal(x, [[-1, 1, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 1, 1, 0], [1, 0, 1, 0, 0]])
    assert [(finding.num_present, finding.num_missing, finding.num_outside) for finding in findings] == [
        (3, 1, 0),
        (3, 1, 0),
    ]
    assert table().input_shape == (5,)
    assert table(missing="zero").input_shape == (3,)


def test_a_record_is_encoded_the_same_whoever_else_is_there():
    """Nothing is scaled by what the file holds."""
    cells = {"age": ["25", "60", "99"], "sex": ["f", "m", "m"]}
    whole, _ = table().encode(cells, "site")
    for line in range(3):
        alone, _ = table().encode({name: [values[line]] for name, values in cells.items()}, "site")
        assert np.array_equal(alone[0], whole[line])


@pytest.mark.parametrize(("outside", "expected"), [("missing", [0.0, 1.0]), ("clip", [1.0, 0.0])])
def test_outside_the_range(outside, expected):
    column = Column(name="age", kind="number", range=(20.0, 100.0), outside=outside)
    x, findings = Table(columns=(column,)).encode({"age": ["150"]}, "site")
    assert x[0].tolist() == expected
    assert findings[0].num_outside == 1
    assert findings[0].note


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"age": ["150"], "sex": ["f"]}, "site.csv: record 1 has a cell in 'age' outside the study's 20 to 100"),
        ({"age": ["old"], "sex": ["f"]}, "record 1 has a cell in 'age' that is not a number"),
        ({"age": ["inf"], "sex": ["f"]}, "not a number"),
        ({"age": ["30"], "sex": ["x"]}, "record 1 has a cell in 'sex' that the study does not know (it knows f, m)"),
        ({"age": ["30"]}, "there is no column 'sex'; it has age"),
    ],
)
def test_bad_cells_are_named(cells, message):
    with pytest.raises(CoreshotError) as caught:
        table().encode(cells, "site.csv")
    assert message in str(caught.value)


def test_missing_refused():
    with pytest.raises(CoreshotError, match="record 2 has no 'age'"):
        table(missing="refuse").encode({"age": ["30", ""], "sex": ["f", "m"]}, "site")


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (1.0, "1"),
        ("1.0", "1"),
        (" 2 ", "2"),
        ("2.5", "2.5"),
        (None, None),
        ("", None),
        ("NA", None),
        ("?", None),
        (float("nan"), None),
        (True, "true"),
    ],
)
def test_as_a_person_would_type_it(cell, text):
    assert as_text(cell) == text


def test_decoding_gives_units_back():
    cells = {"age": ["20", "60", "90"], "sex": ["f", "m", "m"]}
    x, _ = table().encode(cells, "site")
    back = table().decode(x)
    assert np.allclose(back["age"], [20, 60, 90])
    assert back["sex"] == ["f", "m", "m"]


def test_classes_and_their_values():
    target = Classes(name="ill", classes=("no", "yes"), values={"no": ("0",), "yes": ("1", "2")})
    labels, finding = target.encode(["0", "2.0", 1], "site")
    assert labels.tolist() == [0, 1, 1]
    assert finding.note == "no 1, yes 2"
    for cells, message in (
        (["3"], "record 1 has a cell in 'ill' that the study does not know"),
        (["3"], r'agree on all spellings: values = { no = \["0", "..."\], ... } in \[target\]'),
        (["0", None], "record 2 has no 'ill'"),
    ):
        with pytest.raises(CoreshotError, match=message):
            target.encode(cells, "site")


def test_a_quantity_goes_to_its_range_and_back():
    target = Quantity(name="days", range=(0.0, 10.0))
    y, _ = target.encode(["0", "5", "10"], "site")
    assert y[:, 0].tolist() == [-1, 0, 1]
    assert target.in_units(y)[:, 0].tolist() == [0, 5, 10]
    assert target.in_units(np.ones((1, 1)), is_deviation=True)[0, 0] == 5
    with pytest.raises(CoreshotError, match="record 1 has no 'days'"):
        target.encode([""], "site")


def test_images():
    inputs = Images(shape=(2, 2, 1))
    x, _ = inputs.encode(np.asarray([[[0, 255], [51, 102]]], np.uint8), "site")
    assert x.shape == (1, 2, 2, 1)
    assert np.allclose(x[0, :, :, 0], [[0, 1], [0.2, 0.4]])
    with pytest.raises(CoreshotError, match=r"images are \(3, 3, 1\)"):
        inputs.encode(np.zeros((1, 3, 3)), "site")
    with pytest.raises(CoreshotError, match="pixels go from 0 to 300"):
        inputs.encode(np.full((1, 2, 2), 300) * np.eye(2), "site")


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "number"},
        {"kind": "number", "range": (1.0, 1.0)},
        {"kind": "category"},
        {"kind": "category", "values": ("a", "a")},
        {"kind": "category", "values": ("a",), "outside": "clip"},
    ],
)
def test_columns_that_make_no_sense(bad):
    with pytest.raises(CoreshotError, match="column 'a'"):
        decode(Column, {"name": "a", **bad}, "study")


def test_a_schema_has_plain_values_although_it_encodes_cells():
    """A schema's `encode` is for cells; the values of its settings are found without it."""
    values = {"columns": [{"name": "age", "kind": "number", "range": [0.0, 9.0]}]}
    assert canonical(decode(Table, values, "test")) == values
