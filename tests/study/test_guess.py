"""`study new --guess` writes a public file: nothing that could name a person comes into it from any table."""

import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coreshot.data.broken_columns import describe_broken
from coreshot.errors import CoreshotError
from coreshot.study.draft import DraftColumn, LeftOut
from coreshot.study.file import parse_study
from coreshot.study.guess import MIN_RECORDS, guess_column, public_range
from coreshot.study.guess_target import TargetChoice, guess_target
from coreshot.study.looks import is_date_name, is_identifier_name, looks_like_date
from coreshot.study.new import Source, refuse_a_record
from coreshot.study.template import one_line, table_template

MARKER = "Zq7"


def private_columns(draws, count):
    """Columns whose every cell is private, as hospitals have them; each cell holds the marker, a date or a number."""
    day = [f"{draws.integers(1, 29):02}" for _ in range(count)]
    month = [f"{draws.integers(1, 13):02}" for _ in range(count)]
    year = draws.integers(1931, 2024, count)
    visits = draws.integers(0, max(count // 3, 2), count)
    return {
        "kennung": [f"P{MARKER}{9000000 + i}" for i in range(count)],
        "PatientID": [f"{MARKER}{i % 3}" for i in range(count)],
        "laufend": [str(700_000_000 + 37 * i) for i in range(count)],
        "visits": [f"{MARKER}-{4711 + visit:05}" for visit in visits],
        "postal": [f"0{draws.integers(1000, 9999)}" for _ in range(count)],
        "entry": [f"{y}-{m}-{d}" for y, m, d in zip(year, month, day, strict=True)],
        "geboren": [f"{d}.{m}.{y}" for y, m, d in zip(year, month, day, strict=True)],
        "seen": [f"{y}{m}{d}" for y, m, d in zip(year, month, day, strict=True)],
        "remark": [f"{MARKER} was seen by doctor {i % 7}, complains of {draws.integers(999)}" for i in range(count)],
        "short remark": [f"{MARKER}{draws.integers(10**6)}" if i % 2 else "well" for i in range(count)],
    }


def useful_columns(draws, count):
    """Columns with rare values that hold the marker, and numbers whose ends are records."""
    ward = ["north", "south"] * count
    age = draws.normal(61.37, 11.13, count).round(4)
    income = draws.lognormal(3, 1.3, count).round(3)
    visits = draws.integers(0, 40, count)
    rare = ["F", "m"] * count
    num_rare = int(draws.integers(1, min(MIN_RECORDS, 1 + count // 13)))
    return {
        "ward": [f"{MARKER} home"] * num_rare + ward[: count - num_rare],
        "sex": rare[: count - num_rare] + [f"{MARKER}{i}" for i in range(num_rare)],
        "age": [f"{value}" for value in age],
        "income": income.tolist(),
        "days": visits.tolist(),
        "smoker": ["yes"] * (count - 1) + ["No"],
    }


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(30, 90), missing=st.sampled_from([0.0, 0.3]))
def test_no_private_cell_no_rare_value_and_no_extreme_is_in_a_guessed_study(seed, count, missing):
    draws = np.random.default_rng(seed)
    private, useful = private_columns(draws, count), useful_columns(draws, count)
    for cells in private.values():
        cells[:] = ["" if draws.random() < missing else cell for cell in cells]
    price = draws.normal(500, 100, count).round(3).tolist()
    order = draws.permutation(count)
    table = {name: [cells[i] for i in order] for name, cells in {**private, **useful, "price": price}.items()}
    draft = Source(list(table), table).draft("study", "price", TargetChoice())
    text = table_template(draft)
    assert {one.name for one in draft.left_out} == set(private)
    assert [one.name for one in draft.kept] == list(useful)
    assert MARKER not in text
    for name, cells in private.items():
        assert f"# left out: {name} (" in text
        assert not any(cell in text for cell in cells if cell and cell != "well"), name
    values = tomllib.loads(text)
    written = {column["name"]: set(column.get("range", ())) - {0} for column in values["table"]["column"]}
    for name in ("age", "income", "days"):
        numbers = [float(cell) for cell in table[name]]
        assert written[name]
        assert not written[name] & {min(numbers), max(numbers)}, name
    low, high = draft.target.range
    assert low < min(price) < max(price) < high
    assert "F" in text, "negative control: a value that many records have is there"
    study = parse_study(text, "study").study
    _, findings = study.inputs.encode(table, "site")
    _, finding = study.target.encode(table["price"], "site")
    assert describe_broken([*findings, finding]) == {}, "the file that it was guessed from fits it"


CASES = {
    "nearly unique text": (["ab", "cd", "ef", *"abcdefghijklmn"], "has another value in nearly every record"),
    "whole numbers, all different": ([str(7 * i) for i in range(30)], "looks like an identifier"),
    "a running number": ([str(i) for i in range(1, 12)], "looks like an identifier"),
    "many digits, visits": ([str(1_234_567 + i % 9) for i in range(60)], "looks like an identifier"),
    "addresses": (["a@b.c", "d@e.f"] * 20, "looks like an identifier"),
    "timestamps": (["2020-01-01 10:11:12", "2020-01-02 10:11:12"] * 9, "looks like a date"),
    "months": (["March 2020", "Apr 2020"] * 9, "looks like a date"),
    "sentences": ([f"the patient has no {i % 20} and is well" for i in range(200)], "looks like free text"),
    "too many values": ([f"v{chr(97 + i % 60 // 8)}{i % 60 % 8}" for i in range(600)], "has 60 values"),
    "rare values only": (["a", "b", "c"] * 3, "has no two values that at least 5 records have"),
    "hardly common": (["a", "b"] * 6 + [f"c{i // 4}" for i in range(24)], "has too many values that fewer than 5"),
    "empty": (["", None, float("nan")] * 5, "is empty"),
    "constant": (["a"] * 20, "has the same value in every record"),
    "too large": (["1e308", "-1e308"] * 10 + ["5.5"], "has numbers that are too large"),
}


@pytest.mark.parametrize(("cells", "reason"), CASES.values(), ids=CASES)
def test_why_a_column_is_left_out(cells, reason):
    found = guess_column("column", cells)
    assert isinstance(found, LeftOut)
    assert found.reason.startswith(reason)


RARE = "1 cell with rare values, which are not copied and count as missing"
KEPT = {
    "yes and no": (["TRUE", "false", True, 0] * 3, DraftColumn("c", "yes_no", is_guessed=True)),
    "codes": (["3", "1", "2"] * 5, DraftColumn("c", "category", values=("1", "2", "3"), is_guessed=True)),
    "two spellings": (["F", "f", "m", "F"] * 5, DraftColumn("c", "category", values=("F", "m"), is_guessed=True)),
    "ages": ([str(20 + i % 40) for i in range(200)], DraftColumn("c", "number", (10.0, 70.0), is_guessed=True)),
    "few records, few numbers": (["3.5", "2.25", "4.0"], DraftColumn("c", "number", (1.0, 5.0), is_guessed=True)),
    "numbers with a word": (
        [str(20 + i % 40) for i in range(200)] + ["high"],
        DraftColumn("c", "number", (10.0, 70.0), is_guessed=True, note="1 cell that no site could read as a number"),
    ),
    "mostly missing": (
        ["3", "6"] * 5 + [""] * 9,
        DraftColumn("c", "category", values=("3", "6"), may_be_missing=True, is_guessed=True),
    ),
    "a code between two": (
        ["0", "2"] * 30 + ["1", "7"],
        DraftColumn("c", "category", values=("0", "1", "2"), is_guessed=True, note=RARE),
    ),
}


@pytest.mark.parametrize(("cells", "expected"), KEPT.values(), ids=KEPT)
def test_what_a_column_is_guessed_to_be(cells, expected):
    assert guess_column("c", cells) == expected


@pytest.mark.parametrize("word", ["PatientID", "patient_id", "MRN", "Pat-Nr.", "Vorname", "case no.", "uuid"])
def test_a_header_that_names_identifiers(word):
    assert is_identifier_name(word)
    assert isinstance(guess_column(word, ["a", "b"] * 20), LeftOut)


@pytest.mark.parametrize("word", ["uric_acid", "thyroid", "number_of_children", "num", "BMI", "kidney", "no"])
def test_a_header_that_does_not(word):
    assert not is_identifier_name(word)
    assert not is_date_name(word)


@pytest.mark.parametrize("text", ["decile 10", "120/80", "2.10", "stage 3", "2020", "1990-2000", "May", "12"])
def test_what_is_no_date(text):
    assert not looks_like_date(text)


@given(st.lists(st.floats(-1e9, 1e9).map(lambda number: round(number, 3)), min_size=2, max_size=40), st.booleans())
def test_a_public_range_is_wider_and_never_ends_at_a_record(numbers, with_all):
    found = public_range(np.asarray(numbers), with_all=with_all)
    if found is None:
        assert max(numbers) - min(numbers) < 1e-1
        return
    low, high = found
    assert low < high
    assert not {low, high} & ({min(numbers), max(numbers)} - {0.0})
    if with_all:
        assert low <= min(numbers)
        assert max(numbers) <= high
    assert len(f"{high - low:.12g}".replace(".", "").strip("0").split("e")[0]) <= 3, "round numbers"


def test_one_wrong_number_does_not_make_the_range_useless():
    numbers = np.asarray([20 + i % 40 for i in range(500)] + [99_999])
    assert public_range(numbers) == (10, 70)


def test_few_whole_numbers_ask_a_question_and_options_answer_it():
    cells = [str(i % 5) for i in range(100)]
    found = guess_target("stage", cells, TargetChoice())
    assert found.classes == ("0", "1", "2", "3", "4")
    assert "Which is meant?" in found.questions[0]
    assert [other.task for other in found.alternatives] == ["regression", "classification"]
    assert guess_target("stage", cells, TargetChoice(classes=list("01234"))).questions == ()
    assert guess_target("stage", cells, TargetChoice(is_quantity=True)).range[0] == 0
    two = guess_target("stage", cells, TargetChoice(positive=["3", "4"]))
    assert two.values == {"other": ["0", "1", "2"], "positive": ["3", "4"]}
    with pytest.raises(CoreshotError, match="no record has that"):
        guess_target("stage", cells, TargetChoice(positive=["7"]))


def test_rare_classes_are_copied_only_if_they_name_nobody():
    assert guess_target("ill", ["no"] * 50 + ["yes"], TargetChoice()).classes == ("no", "yes")
    assert guess_target("ill", ["True"] * 50 + ["False"], TargetChoice()).classes == ("False", "True")
    found = guess_target("ill", ["a"] * 50 + ["b"] * 50 + [f"{MARKER}"], TargetChoice())
    assert found.classes == ("a", "b")
    assert "1 of 101 records have other values" in found.questions[0]
    assert MARKER not in str(found)
    with pytest.raises(CoreshotError, match="name the classes with --classes") as error:
        guess_target("ill", ["a"] * 50 + [MARKER] * 2, TargetChoice())
    assert MARKER not in str(error.value)


@pytest.mark.parametrize(
    "cells",
    [
        [f"{MARKER}{i}" for i in range(40)],
        [f"2020-01-{i:02}" for i in range(1, 29)],
        ["20200101", "20200203"] * 9,
        ["7654321", "7654322"] * 9,
    ],
)
def test_a_target_that_names_records_is_refused_without_naming_them(cells):
    with pytest.raises(CoreshotError) as error:
        guess_target("ill", cells, TargetChoice())
    assert not any(cell in str(error.value) for cell in cells)


@pytest.mark.parametrize("header", [["34", "f", "120", "yes"], ["1950-03-01", "f"], ["f", "12.5"], ["a@b.c", "f"]])
def test_a_record_in_place_of_a_header_is_refused_without_its_cells(tmp_path, header):
    with pytest.raises(CoreshotError, match="add a first line with the names") as error:
        refuse_a_record(header, tmp_path / "site.csv")
    assert not any(cell in str(error.value).removeprefix(str(tmp_path)) for cell in header if len(cell) > 2)


def test_names_that_count_are_names(tmp_path):
    for header in (["0", "1", "2"], ["id", "1", "2", "ill"], ["V1", "age"], ["2019", "2020", "2021"]):
        assert refuse_a_record(header, tmp_path) == header


def test_a_name_in_a_comment_cannot_end_it():
    name = "note\nformat = 2\r\x00\x1b[31m\u2028\x85x"
    table = {name: [f"a text of many words {i}" for i in range(40)], "a": ["x", "y"] * 20, "b": ["u", "v"] * 20}
    text = table_template(Source(list(table), table).draft("s", "b", TargetChoice()))
    assert tomllib.loads(text)["format"] == 1
    assert f"# left out: {one_line(name)} (" in text
    assert "\x1b" not in text
