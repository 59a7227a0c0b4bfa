"""`study new` and `study check` through the command line: the file, the screen, the questions and their mistakes."""

import io
import json
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from coreshot.study.file import read_study
from coreshot.study.overview import find_marks

MARKER = "Zq7"
METHOD = "# What a site computes"  # the part of a study that is not tested here begins so


def patient_rows(count=120):
    draws = np.random.default_rng(5)
    yield ["PatientID", "seen", "note", "sex", "age", "crp", "smoker", "ward", "drug", "empty", "stage"]
    for index in range(count):
        age, crp = draws.normal(61, 11), draws.lognormal(1, 0.6)
        yield [
            f"{MARKER}{index}",
            f"2021-{1 + index % 12:02}-{1 + index % 27:02}",
            f"{MARKER} says that visit {index} went well",
            "fm"[index % 2],
            f"{age:.1f}",
            f"{crp:.2f}",
            ("yes", "No", "TRUE", "0")[index % 4],
            f"{MARKER} house" if index < 3 else ("north", "south")[index % 2],
            ("none", "A10", "?")[index % 3],
            "",
            str((0, 0, 1, 2, 3)[index % 5]),
        ]


@pytest.fixture
def patients(tmp_path):
    path = tmp_path / "patients.csv"
    path.write_text("\n".join(map(",".join, patient_rows())) + "\n")
    return path


@pytest.fixture
def answer(monkeypatch):
    def give(*lines):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))

    return give


def agreed(path):
    return path.read_text().split(METHOD)[0]


@pytest.mark.parametrize(("name", "options"), [("guessed", ["--guess"]), ("empty", [])])
def test_the_written_study_is_the_golden_one(coreshot, patients, project, tmp_path, name, options):
    coreshot("study", "new", f"{name}.toml", "--from", patients, "--target", "stage", *options)
    golden = project / "tests" / "study" / "written" / f"{name}.toml"
    assert agreed(tmp_path / f"{name}.toml") == golden.read_text()


def test_a_guess_shows_what_it_left_out_and_no_cell(coreshot, patients, tmp_path):
    told = coreshot("study", "new", "study.toml", "--from", patients, "--target", "stage", "--guess")
    assert MARKER not in told
    assert MARKER not in (tmp_path / "study.toml").read_text()
    for words in (
        "read as: UTF-8, separated by ','",
        "PatientID │ looks like an identifier",
        "seen │ looks like a date",
        "note │ looks like free text",
        "empty │ is empty",
        "3 cells with rare values, which are not copied and count as missing",
        "The study is public, and now holds 6 values of categories",
        "whole numbers, 0 to 3. Which is meant? - 4 classes",
    ):
        assert words in told, words
    shown = json.loads(coreshot("study", "new", "j.toml", "--from", patients, "--target", "stage", "--guess", "--json"))
    assert [one["name"] for one in shown["left_out"]] == ["PatientID", "seen", "note", "empty"]
    assert "stops" not in coreshot("distill", "study.toml", patients, "--out", "site.coreset")


@pytest.mark.parametrize("form", ["semicolon.csv", "latin.csv", "utf16.csv", "table.parquet"])
def test_the_same_study_from_other_forms_of_the_file(coreshot, patients, tmp_path, form):
    header, *rows = patient_rows()
    marked = "\n".join(";".join(cell.replace(".", ",") for cell in row) for row in (header, *rows)) + "\n"
    path = tmp_path / form
    if form == "table.parquet":
        cells = {name: pyarrow.array([row[at] or None for row in rows]) for at, name in enumerate(header)}
        cells["age"] = pyarrow.array([float(row[4]) for row in rows])
        pyarrow.parquet.write_table(pyarrow.table(cells), path)
    else:
        path.write_bytes(marked.encode({"l": "latin-1", "u": "utf-16"}.get(form[0], "utf-8")))
    for source in (patients, path):
        coreshot("study", "new", f"{source.stem}.toml", "--from", source, "--target", "stage", "--guess")
    expected = agreed(tmp_path / "patients.toml").replace('name = "patients"', f'name = "{path.stem}"')
    assert agreed(tmp_path / f"{path.stem}.toml") == expected


@pytest.mark.parametrize(
    ("options", "kind", "classes"),
    [
        (["--positive", "1,2,3"], "classification", ("0", "positive")),
        (["--positive", "3"], "classification", ("other", "3")),
        (["--classes", "3,2,1,0"], "classification", ("3", "2", "1", "0")),
        (["--regression"], "regression", None),
    ],
)
def test_options_decide_what_the_target_is(coreshot, patients, tmp_path, options, kind, classes):
    told = coreshot("study", "new", "s.toml", "--from", patients, "--target", "stage", "--guess", *options)
    assert "Which is meant" not in told
    study = read_study(tmp_path / "s.toml")
    assert study.agreement.kind == kind
    if classes:
        assert study.target.classes == classes
    else:
        assert (study.target.range[0], study.target.outside) == (0, "clip")
    coreshot("distill", "s.toml", patients, "--out", "s.coreset")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "give --from FILE and --target, or --interactive, or --image SHAPE"),
        (["--from", "patients.csv"], "--from needs --target"),
        (["--from", "patients.csv", "--target", "stage", "--positive", "1"], "--positive needs --guess"),
        (["--interactive", "--guess"], "--guess needs --from"),
        (["--image", "8,8,1", "--guess"], "--image goes with --classes only"),
        (["--from", "patients.csv", "--target", "stage", "--classes", "a"], "--classes wants at least 2 different"),
        (["--from", "patients.csv", "--target", "stage", "--classes", "a,b", "--regression"], "exclude each other"),
        (["--from", "patients.csv", "--target", "seen", "--guess"], "it looks like a date; name another column"),
        (["--from", "nowhere.csv", "--target", "seen"], "nowhere.csv: there is no such file"),
    ],
)
def test_options_that_do_not_fit_get_one_sentence(coreshot, patients, tmp_path, words, sentence):
    assert sentence in coreshot("study", "new", "x.toml", *words, code=2)
    assert not (tmp_path / "x.toml").exists()


@pytest.mark.parametrize("first", ["f,north,x", "who,P9000123,x", "who,ward,ill"])
def test_a_first_line_that_is_a_record_is_not_copied(coreshot, tmp_path, first):
    """With cells that come again, or that look like the others; the last has the header twice."""
    rows = [f"{'fm'[index % 2]},P90{index:05},{'uv'[index // 2 % 2]}" for index in range(40)]
    rows = [row.replace("P90", "north,", 1).rsplit(",", 2)[0] + ",u" if "north" in first else row for row in rows]
    (tmp_path / "a.csv").write_text("\n".join([first, *rows, "who,ward,ill"]) + "\n")
    for guess in ([], ["--guess"]):
        told = coreshot("study", "new", "x.toml", "--from", "a.csv", "--target", first[-1], *guess, code=2)
        assert "the line looks like a record" in told
        assert not {"north", "P9000123"} & set(told.replace(",", " ").split())


def test_numbers_that_can_be_read_in_two_ways_are_refused(coreshot, tmp_path):
    (tmp_path / "a.csv").write_text("dose;ill\n" + "".join(f'"{i},{i}50";{i % 2}\n' for i in range(1, 9)))
    told = coreshot("study", "new", "x.toml", "--from", "a.csv", "--target", "ill", "--guess", code=2)
    assert "can be read with a decimal comma, or with marks between thousands" in told


def test_an_interview_writes_a_study_and_checks_it(coreshot, answer, tmp_path):
    answer(
        *["My study", "age, sex, smoker, seen, id, ill", "nothing", "ill"],  # a column that is not there is asked again
        *["what?", "classes", "healthy, ill", "no", "0", "1, 2"],
        *["number", "100", "20", "20", "about 100", "100", "no"],
        *["cat", "f", 'f, "m, or d"', "", "y"],
        *["yes/no", ""],
        *["date", "2030-01-01", "1999", "", "date", "", "", ""],
        *["leave"],
    )
    told = coreshot("study", "new", "study.toml", "--interactive")
    for words in (
        "Please type one of the columns: age, sex, smoker, seen, id, ill.",
        "Please type one of: classes, quantity.",
        "The smallest must be below the largest.",
        "Please type a number",
        "a date has range",
        "Kind of 'id' (looks like an identifier: its name does)",
        "inputs: 9",
        "No promise of privacy",
    ):
        assert words in told, words
    study = read_study(tmp_path / "study.toml")
    assert study.agreement.task == "My study"
    assert study.target.values == {"healthy": ("0",), "ill": ("1", "2")}
    age, sex, smoker, seen = study.inputs.columns
    assert (age.range, age.may_be_missing) == ((20, 100), False)
    assert (sex.values, sex.may_be_missing) == (("f", "m, or d"), True)
    assert smoker.kind == "yes_no"
    assert seen.range == ("1930-01-01", "2030-12-31")


def test_empty_answers_take_the_guesses(coreshot, answer, patients, tmp_path):
    answer(*[""] * 40)
    told = coreshot("study", "new", "asked.toml", "--interactive", "--from", patients, "--guess")
    assert MARKER not in told
    coreshot("study", "new", "guessed.toml", "--from", patients, "--target", "stage", "--guess")
    asked, guessed = (read_study(tmp_path / name) for name in ("asked.toml", "guessed.toml"))
    assert (asked.inputs, asked.target) == (guessed.inputs, guessed.target)


@pytest.mark.parametrize("lines", [[], ["name"], ["name", "a,b", "b", "classes", "x,y"]])
def test_an_interview_that_ends_early_writes_nothing(coreshot, answer, tmp_path, lines):
    answer(*lines)
    assert "ended before the last question" in coreshot("study", "new", "x.toml", "--interactive", code=2)
    assert list(tmp_path.iterdir()) == []


def test_check_prints_columns_marks_bytes_and_memory(coreshot, patients):
    coreshot("study", "new", "s.toml", "--from", patients, "--target", "stage", "--guess")
    told = coreshot("study", "check", "s.toml")
    for words in (
        "target: stage: 4 classes: 0, 1, 2, 3",
        "sex │ category │ 2 values │ 3 │ missing │ no",
        "inputs: 15",
        "guessed │ range of age",
        "a site's file: about ",
        "a site of 100,000 records: about",
        "No promise of privacy is made",
    ):
        assert words in told, words
    facts = json.loads(coreshot("study", "check", "s.toml", "--json"))
    assert sum(column["num_inputs"] for column in facts["columns"]) == facts["input_shape"][0] == 15
    few, many = facts["site_needs"]
    assert few["data_bytes"] < many["data_bytes"]


@pytest.mark.parametrize("count", [200, 1000])  # the second has all groups of records with similar scores
def test_check_counts_bytes_as_a_site_does(coreshot, study_path, write_site, tmp_path, count):
    study_path.write_text(study_path.read_text().replace("max_bytes = 2_000\n", ""))
    most = json.loads(coreshot("study", "check", study_path, "--json"))["site_needs"][0]["file_bytes"]
    coreshot("distill", study_path, write_site("a", count=count), "--out", "a.coreset", "--client", "site")
    assert 0.5 * most < (tmp_path / "a.coreset").stat().st_size <= most


def test_what_is_to_be_filled_in_is_an_error_after_the_rest(coreshot, study_path):
    text = study_path.read_text()
    study_path.write_text(text.replace("range = [20, 100]", "range = [20, 100] # FILL IN"))
    assert "1 line still says FILL IN: 17 (range of age)" in coreshot("study", "check", study_path, code=2)
    coreshot("study", "check", study_path, "--json", code=2)
    study_path.write_text(text.replace('name = "small"', 'name = "FILL IN # guessed" # a name'))
    assert json.loads(coreshot("study", "check", study_path, "--json"))["marked"] == []


def test_marks_are_found_in_comments_only():
    text = (
        'a = "# guessed"\n# guessed\nb = \'# FILL IN\' # FILL IN\n[target]\nname = "x"\nrange = [0, 1] # guessed: y\n'
    )
    assert [(mark.line, mark.word, mark.what) for mark in find_marks(text)] == [
        (2, "guessed", "comment"),
        (3, "FILL IN", "b"),
        (6, "guessed", "range of target"),
    ]


def test_nothing_from_a_file_steers_the_terminal(coreshot, tmp_path, monkeypatch, capsys):
    """Names with escape sequences are refused, in one sentence that shows none of them."""
    name = "\x1b[31mred\u202e\x07"
    rows = [f"{'fm'[index % 2]},{index % 7}.5,{'xy'[index // 2 % 2]}" for index in range(60)]
    (tmp_path / "a.csv").write_text(f"{name},{name}2,ill\n" + "\n".join(rows) + "\n")
    for words in (("--target", "ill", "--guess"), ("--target", "nothing"), ("--guess", "--interactive")):
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n" * 30))
        told = coreshot("study", "new", "s.toml", "--from", "a.csv", *words, code=2)
        assert "U+001B" in told
        assert not set(told) & set("\x1b\u202e\x07")
    assert not (tmp_path / "s.toml").exists()
