"""A folder of awkward files: each works and says how it was read, or stops with one sentence. No cell is printed."""

import io
import sys

import jax
import pytest
from awkward import MARK, ODD, STUDY, german, make_rows, set_cells, to_csv, to_excel, to_parquet

from coreshot.cli.commands import main
from coreshot.runtime.worker_main import answer_job, key_words
from coreshot.runtime.worker_process import read_frame
from coreshot.study.file import read_study
from coreshot.wire.messages import Message, encode_message

ROWS = make_rows()
PLAIN = to_csv(ROWS)
HEADER = ",".join(ROWS[0])
BROKEN = "go on with --allow"


def without(column):
    return [{key: value for key, value in row.items() if key != column} for row in ROWS]


def with_column(name, value):
    return [{**row, name: value(number)} for number, row in enumerate(ROWS)]


def renamed(**names):
    return [{names.get(key, key): value for key, value in row.items()} for row in ROWS]


# name of the file: (its content, what is said on the way)
WORK = {
    "plain.csv": (PLAIN, "read as: UTF-8, separated by ',', decimal point"),
    "bom.csv": (PLAIN.encode("utf-8-sig"), "read as: UTF-8 with a mark, separated by ','"),
    "latin.csv": (PLAIN.encode("latin-1"), "read as: Windows-1252, separated by ','"),
    "utf16.csv": (to_csv(ROWS, ";").encode("utf-16"), "read as: UTF-16, separated by ';', decimal point"),
    "utf16-without-mark.csv": (PLAIN.encode("utf-16-le"), "read as: UTF-16-LE, separated by ','"),
    "tabs.tsv": (to_csv(ROWS, "\t"), "separated by tabs"),
    "pipes.txt": (to_csv(ROWS, "|", "\r\n"), "separated by '|'"),
    "old-mac.csv": (to_csv(ROWS, end="\r"), "separated by ','"),
    "excel-hint.csv": ("sep=;\n" + to_csv(ROWS, ";"), "separated by ';'"),
    "german.csv": (german(ROWS), "decimal comma, points between thousands"),
    "thousands.csv": (
        to_csv(set_cells("income", lambda cell: f'"{int(cell):,}"')),
        "decimal point, commas between thousands",
    ),
    "spaces.csv": (to_csv(set_cells("income", lambda cell: f"{int(cell):,}".replace(",", "\u202f"))), "decimal point"),
    "booleans.csv": (to_csv(set_cells("smoker", "TRUE", 2)), "│ smoker │ 24 │ 0 │ 0 │"),
    "aliases.csv": (to_csv(set_cells("smoker", "Raucht", 3)), "│ smoker │ 24 │ 0 │ 0 │"),
    "case.csv": (to_csv(set_cells("pain", str.upper)), "│ pain │ 24 │ 0 │ 0 │"),
    "names.csv": (to_csv(renamed(age="Alter", bmi="BMI_kg_m2", ill="ILL")), "in the file: Alter"),
    "times.csv": (to_csv(set_cells("seen", lambda cell: f"{cell}T10:00:00")), "│ seen │ 24 │ 0 │ 0 │"),
    "words.csv": (to_csv(set_cells("age", "n/a", 3)), "│ age │ 16 │ 8 │ 0 │ read as missing: 'n/a' 8 │"),
    "agreed-word.csv": (to_csv(set_cells("pain", "k.A.", 4)), "│ pain │ 18 │ 6 │ 0 │ read as missing: 'k.A.' 6 │"),
    "forty-percent.csv": (to_csv(set_cells("bmi", "", 2)[:20] + ROWS[:5]), "│ bmi │ 15 │ 10 │ 0 │"),
    "constant.csv": (to_csv(set_cells("age", "50")), "│ age │ 24 │ 0 │ 0 │"),
    "ids.csv": (to_csv(with_column("id", lambda number: f"{MARK}{number}")), "│ age │ 24"),
    "text.csv": (to_csv(with_column("note", lambda _: f'"{MARK}, said: ""ouch""\nand left"')), "│ age │ 24"),
    "index.csv": (to_csv(with_column("", str)), "column 9 without a name left out"),
    "trailing.csv": (PLAIN.replace("\n", ",\n").replace(",\n", "\n", 1), "separator at the end of each line left out"),
    "blank-end.csv": (PLAIN + ",,,,,,,\n" * 3 + "\n\n", "3 empty lines at the end left out"),
    "one-class.csv": (to_csv(set_cells("ill", "no")), "no 24, yes 0"),
    "typed.parquet": (to_parquet(ROWS), "read as: parquet"),
    "book.xlsx": (to_excel(ROWS), "read as: Excel, sheet 'patients'"),
    "one-typing-mistake.csv": (to_csv(set_cells("bmi", ODD, 24)), "outside is set to the nearer end"),
}

# name of the file: (its content, the sentence)
STOP = {
    "units.csv": (
        to_csv(set_cells("bmi", lambda cell: str(float(cell) * 1000))),
        "the column 'bmi' is broken: 24 of 24 cells are outside the study's range (is it in another unit?)",
    ),
    "spelling.csv": (to_csv(set_cells("smoker", f"{MARK}?")), "have a cell in 'smoker' that the study does not know"),
    "word-in-a-category.csv": (to_csv(set_cells("pain", "NA", 4)), "'na' 6 of them: if these mean missing, agree on"),
    "empty-column.csv": (
        to_csv(set_cells("income", "")),
        "the column 'income' is broken: 24 of 24 cells are missing (does the file have it elsewhere?)",
    ),
    "no-column.csv": (to_csv(without("bmi")), "there is no column 'bmi'; it has name besides the study's"),
    "two-names.csv": (to_csv(with_column("Alter", str)), "'age' and 'Alter' are both names of 'age'"),
    "twice.csv": (PLAIN.replace("income", "bmi", 1), "two columns are called 'bmi'; rename one"),
    "no-header.csv": (PLAIN.partition("\n")[2], "its first line names none of the study's columns"),
    "no-header-twice.csv": (f"{MARK},{MARK}\n" * 3, "columns 1 and 2 have the same name"),
    "categories.csv": (
        to_csv([{**row, "pain": f"{MARK}{number}"} for number, row in enumerate(make_rows(10_000))]),
        "record 1 and 9,999 more have a cell in 'pain' that the study does not know (it knows none, mild, Größe)",
    ),
    "german-dates.csv": (
        to_csv(set_cells("seen", lambda cell: ".".join(reversed(cell.split("-"))))),
        "a cell in 'seen' that is not a date; mend the cell, leave it empty, or say how dates are written with",
    ),
    "text-for-number.csv": (to_csv(set_cells("age", f"{MARK} 50", 12)), "record 1 and 1 more have a cell in 'age'"),
    "huge.csv": (to_csv(set_cells("age", "9" * 400, 24)), "record 1 has a cell in 'age' that is not a number"),
    "outside.csv": (to_csv(set_cells("age", ODD, 24)), "record 1 has a cell in 'age' outside the study's 0 to 120"),
    "target.csv": (to_csv(set_cells("ill", MARK, 24)), "record 1 has a cell in 'ill' that the study does not know"),
    "no-target.csv": (to_csv(set_cells("ill", "", 24)), "record 1 has no 'ill'"),
    "ragged.csv": (f"{PLAIN}{MARK},{ODD},{MARK}\n", "record 25 has 3 cells, the header has 8"),
    "comma-in-a-cell.csv": (
        PLAIN.replace(MARK, f"{MARK},", 5),
        "record 1 has 9 cells, the header has 8 (5 such records)",
    ),
    "open-quote.csv": (PLAIN.replace(MARK, f'"{MARK}', 1), "cells, the header has 8"),
    "header-only.csv": (f"{HEADER}\n", "holds no records"),
    "nothing.csv": ("", "is empty; give a file whose first line names the columns"),
    "nul.csv": (PLAIN.replace(" 7,", " 7\0,"), "has NUL bytes (the first is in line 9)"),
    "two-readings.csv": (
        to_csv([{**row, "bmi": "30", "income": "7.531"} for row in ROWS], ";"),
        "the numbers of income can be read with decimal point or with decimal comma, points between thousands",
    ),
    "two-sheets.xlsx": (to_excel(ROWS, ("a", "b")), "has the sheets 'a', 'b'; choose one with --sheet"),
    "no-excel.xlsx": (PLAIN, "cannot be read as an Excel file"),
    "cut.parquet": (to_parquet(ROWS)[:-30], "cannot be read; give a whole .parquet file"),
    "table.sas7bdat": (PLAIN, "a table is a file ending in .csv, "),
}


@pytest.fixture
def distill(tmp_path, monkeypatch, capsys):
    """Run `distill` on a file in a folder of its own; its exit code and what it printed, without the frames of tables'
    spaces."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)

    def run(name, content, *options):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        words = ["coreshot", "distill", "study.toml", name, "--out", "site.coreset", *options]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return ended.value.code or 0, " ".join(told.out.split()), told.err

    return run


def assert_private(text):
    assert MARK not in text
    assert ODD not in text
    assert "Traceback" not in text


@pytest.mark.parametrize("name", WORK)
def test_an_awkward_file_works_and_says_how_it_was_read(distill, tmp_path, name):
    content, said = WORK[name]
    code, out, err = distill(name, content)
    assert code == 0, err
    assert said in out
    assert "records: 2" in out
    assert_private(out + err)
    assert (tmp_path / "site.coreset").exists()


@pytest.mark.parametrize("name", STOP)
def test_an_awkward_file_stops_with_one_sentence(distill, tmp_path, name):
    content, sentence = STOP[name]
    code, out, err = distill(name, content)
    assert code == 2, out
    assert sentence in err
    assert err.startswith("coreshot: ")
    assert err.endswith(".\n")
    assert err.count("\n") == 1
    assert_private(out + err)
    assert not (tmp_path / "site.coreset").exists()


def test_there_are_at_least_25_awkward_files():
    assert len(WORK) >= 25
    assert len(STOP) >= 25


def test_negative_control_values_are_shown_to_a_site_that_asks(distill):
    rows = [{**row, "bmi": ODD, "smoker": "yes"} for row in ROWS]
    code, out, err = distill("units.csv", to_csv(rows), "--show-values")
    assert code == 2
    assert f"bmi: outside are '{ODD}' 24 times" in out
    code, _, err = distill("target.csv", STOP["target.csv"][0], "--show-values")
    assert (code, f"'{MARK}' once" in err) == (2, True)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("units.csv", ["--allow", "bmi"]),
        ("empty-column.csv", ["--allow", "income"]),
        ("text-for-number.csv", ["--allow", "age"]),
        ("two-readings.csv", ["--decimal", "."]),
        ("two-readings.csv", ["--decimal", ",", "--thousands", "."]),
        ("two-sheets.xlsx", ["--sheet", "b"]),
    ],
)
def test_a_site_can_go_on(distill, name, options):
    code, out, err = distill(name, STOP[name][0], *options)
    assert code == 0, err
    assert_private(out + err)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--allow", "weight"], "--allow weight: the study has no such column"),
        (["--delimiter", "x"], "delimiter 'x': cells are separated by one of"),
        (["--encoding", "klingon"], "encoding 'klingon': there is no such encoding"),
        (["--encoding", "ascii"], "is not ascii, see line 4"),
        (["--decimal", "x"], "decimal = 'x'"),
        (["--decimal", ",", "--thousands", ","], "numbers cannot have ',' before the decimals and ',' between"),
        (["--site-settings", "none.toml"], "none.toml: cannot be read"),
    ],
)
def test_an_option_that_makes_no_sense_is_one_sentence(distill, options, sentence):
    code, out, err = distill("plain.csv", PLAIN, *options)
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert_private(out + err)


def test_a_site_says_in_its_own_settings_how_its_file_is_written(distill, tmp_path):
    rows = [{**row, "seen": ".".join(reversed(row["seen"].split("-"))), "age": ""} for row in ROWS]
    rows = [{{"bmi": "Body mass"}.get(key, key): cell for key, cell in row.items()} for row in rows]
    settings = 'date_format = "%d.%m.%Y"\nallow = ["age"]\n[columns]\n"Body mass" = "bmi"\n'
    (tmp_path / "site.toml").write_text(settings)
    code, out, err = distill("own.csv", to_csv(rows, "|"), "--site-settings", "site.toml")
    assert code == 0, err
    assert "│ seen │ 24 │ 0 │ 0 │" in out
    (tmp_path / "site.coreset").unlink()
    (tmp_path / "site.toml").write_text(settings.replace("Body mass", "Weight"))
    code, _, err = distill("own.csv", to_csv(rows, "|"), "--site-settings", "site.toml")
    assert (code, "has no column 'Weight', which the site's settings rename" in err) == (2, True)
    (tmp_path / "site.toml").write_text("delimitr = ','\n")
    code, _, err = distill("own.csv", to_csv(rows, "|"), "--site-settings", "site.toml")
    assert (code, "unknown key 'delimitr' (did you mean 'delimiter'?)" in err) == (2, True)


def test_without_the_extra_an_excel_file_says_what_to_install(distill, monkeypatch):
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    code, _, err = distill("book.xlsx", WORK["book.xlsx"][0])
    assert code == 2
    assert "install it with `pip install 'coreshot[excel]'`, or save the sheet as CSV" in err


def test_records_in_another_order_give_the_same_report(distill, tmp_path):
    rows = set_cells("bmi", ODD, 12)
    reports = []
    for number, order in enumerate((rows, rows[::-1])):
        code, out, _ = distill("same.csv", to_csv(order), "--show-values")
        assert code == 0
        (tmp_path / "site.coreset").rename(tmp_path / f"{number}.coreset")
        reports.append(out)
    assert reports[0] == reports[1]


def test_a_site_of_a_network_stops_too_unless_its_own_settings_allow_it(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "site.toml").write_text('allow = ["bmi"]\n')
    (tmp_path / "units.csv").write_text(STOP["units.csv"][0])
    study = read_study(tmp_path / "study.toml")
    inbox = [encode_message(Message("invitation", 0, {}), study_hash=study.hash, client="a")]
    head = {
        "study": study.to_dict(),
        "client": "a",
        "key": key_words(jax.random.key(0)),
        "data": str(tmp_path / "units.csv"),
    }
    answers = {}
    for name, more in (("strict", {}), ("allowed", {"settings": str(tmp_path / "site.toml")})):
        file = io.BytesIO()
        answer_job({**head, **more}, inbox, file)
        file.seek(0)
        answers[name], _ = read_frame(file)
    assert answers["strict"]["kind"] == "unfit"
    assert "the column 'bmi' is broken: 24 of 24" in answers["strict"]["error"]
    assert answers["allowed"]["kind"] in ("chunk", "reply")


def test_a_model_that_is_there_predicts_with_a_warning(distill, monkeypatch, capsys, tmp_path):
    assert distill("plain.csv", PLAIN)[0] == 0
    (tmp_path / "units.csv").write_text(STOP["units.csv"][0])
    for words in (
        ["fit", "site.coreset", "--study", "study.toml", "--out", "model"],
        ["predict", "model", "units.csv", "--out", "predicted.csv"],
    ):
        monkeypatch.setattr(sys, "argv", ["coreshot", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
    told = capsys.readouterr()
    assert "warning: units.csv: the column 'bmi' looks broken: 24 of 24 cells are outside the study's range" in told.err
    assert_private(told.out + told.err)
    assert (tmp_path / "predicted.csv").exists()
