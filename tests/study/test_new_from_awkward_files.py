"""`study new --guess` on the awkward files of tests/data: a study, or one sentence, and nothing private in either."""

import sys

import pytest
from awkward import MARK, ODD
from test_awkward_files import STOP, WORK

from coreshot.cli.commands import main
from coreshot.study.file import read_study

FILES = {name: content for name, (content, _) in {**WORK, **STOP}.items()}
UNREADABLE = {
    *("twice.csv", "no-header.csv", "no-header-twice.csv", "ragged.csv", "comma-in-a-cell.csv", "open-quote.csv"),
    *(
        "open-quote-in-the-header.csv",
        "header-only.csv",
        "nothing.csv",
        "nul.csv",
        "two-readings.csv",
        "two-sheets.xlsx",
        "no-excel.xlsx",
    ),
    *("cut.parquet", "table.sas7bdat", "one-class.csv", "names.csv"),  # the last two lack a class, or the target
}


@pytest.mark.parametrize("name", FILES)
def test_a_study_from_an_awkward_file_has_nothing_private(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    content = FILES[name]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    words = ["coreshot", "study", "new", "study.toml", "--from", name, "--target", "ill", "--guess"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    path = tmp_path / "study.toml"
    text = path.read_text() if path.exists() else ""
    for private in (MARK, ODD, "Traceback"):
        assert private not in told.out + told.err + text
    if name in UNREADABLE:
        assert ended.value.code == 2
        assert told.err.startswith("coreshot: ")
        assert told.err.count("\n") == 1
        assert not text
    else:
        assert not ended.value.code, told.err
        assert {column.name for column in read_study(path).inputs.columns} & {"age", "bmi", "pain"}
        assert "# left out: seen (looks like a date)" in text
