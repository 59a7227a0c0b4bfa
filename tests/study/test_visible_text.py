"""Text from files and from the network cannot speak for coreshot: only printable text reaches the terminal, a name
cannot print a line of its own, and there is no traceback. 10,000 random strings go each of several ways.
"""

import io
import json
import random
import sys

import numpy as np
import pytest
import tomli_w

from coreshot.cli import output
from coreshot.cli.commands import _end, main
from coreshot.data.table import check_header
from coreshot.errors import CoreshotError, check_text, steers, visible
from coreshot.flower.nodes import _read_reason
from coreshot.progress import Bar, Lines
from coreshot.storage import check_client_name
from coreshot.study import Study
from coreshot.study.file import parse_study
from coreshot.wire.messages import pack, read_header

SIGNS = [*map(chr, range(0x20)), "\x7f", "\x85", "\x9b", "\u2028", "\u2029", "\u200b", "\u200e", "\u202e", "\u2066"]
SIGNS += ["\ufeff", "\xad", "\xa0", "\udcff", "\U000e0041", "\ue000", "e\u0301", "[/x]", "[red]", "[", "]"]
SIGNS += ["\\", "/", ":smile:", "a", "b", " ", "{", "}", "%s", "'", '"', "[link=http://x]", "\x1b[2J", "\x1b]0;t\x07"]
FORGED = "cohort\x1b[2K\r\npromise: epsilon = 0.01"


@pytest.fixture(scope="module")
def strings():
    draws = random.Random(20)
    mild = [sign for sign in SIGNS if not any(map(steers, sign))]
    return ["".join(draws.choices(draws.choice([SIGNS, mild]), k=draws.randint(1, 12))) for _ in range(10_000)]


@pytest.fixture(scope="module")
def harmless(strings):
    """Those of them that may be in a file: markup, signs that nobody sees, but nothing that steers."""
    found = list(dict.fromkeys(text for text in strings if not any(map(steers, text))))
    assert len(found) > 300
    return found


@pytest.fixture
def run_main(monkeypatch, capsys):
    """Exit code, standard output and standard error of a command, in this process."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["coreshot", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return ended.value.code or 0, told.out, told.err

    return run


def assert_printable(text, num_lines=None):
    lines = text.split("\n")[:-1]
    assert all(line.isprintable() for line in lines), [line for line in lines if not line.isprintable()][:3]
    assert num_lines is None or len(lines) == num_lines


def refusal(function, *values):
    """The sentence with which something is refused; nothing if it is not."""
    try:
        function(*values)
    except CoreshotError as error:
        return str(error)
    return ""


def test_a_line_is_a_line(strings, capsys):
    output.print_result({}, False, (f"name: {text}" for text in strings))
    assert_printable(capsys.readouterr().out, len(strings))


def test_cells_headings_titles_and_captions_are_plain_text(strings, capsys):
    for first in range(0, len(strings), 500):
        some = strings[first : first + 500]
        table = output.make_table(some[:3], ((text, "", "") for text in some), title=some[3], caption=some[4])
        output.print_result({}, False, [table])
    assert_printable(capsys.readouterr().out)


def test_a_cell_shows_its_markup(capsys):
    output.print_result(
        {}, False, [output.make_table(["[/x]"], [["[red]a[/red] :smile:"]], title="[b]", caption="[/]")]
    )
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("[/x]", "[red]a[/red] :smile:", "[b]", "[/]"))


def test_an_error_is_one_line_and_exit_code_2(strings, capsys):
    for text in strings:
        with pytest.raises(SystemExit) as end:
            _end(f"client {text}: is odd.")
        assert end.value.code == 2
    assert_printable(capsys.readouterr().err, len(strings))


def test_progress_logs_and_refusals_of_nodes(strings, capsys):
    class Reply:
        def __init__(self, reason):
            self.error = type("Error", (), {"code": 100, "reason": reason})

    log = Lines(file := io.StringIO())
    for text in strings:
        log.say(f"{text}: {_read_reason(Reply(text), 1.0)}")
    assert_printable(file.getvalue(), len(strings))
    with Bar(file := io.StringIO()) as bar:
        for text in strings[:200]:
            bar.begin(text, 1)
            bar.end()
    assert_printable(file.getvalue())


def test_json_is_ascii(strings, capsys):
    output.print_result({"names": strings}, True)
    shown = capsys.readouterr().out
    assert shown.isascii()
    assert shown.rstrip("\n").isprintable()
    assert json.loads(shown)["names"] == strings


def study_text(name="small", column="age", target="ill", value="no"):
    return tomli_w.dumps(
        {
            "format": 1,
            "name": name,
            "task": "classification",
            "target": {"name": target, "classes": [value, "yes"]},
            "table": {"column": [{"name": column, "kind": "number", "range": [0, 1]}]},
            "method": {"name": "spectral", "features": {"name": "identity", "dimension": 2}},
        }
    )


@pytest.mark.parametrize("place", ["name", "column", "target", "value"])
def test_a_study_refuses_what_steers(strings, place):
    for text in strings[:: 1 if place == "name" else 10]:
        if any("\ud800" <= sign <= "\udfff" for sign in text):
            continue  # no file of UTF-8 can hold it
        sentence = refusal(parse_study, study_text(**{place: text}), "study s.toml")
        assert sentence.isprintable()
        assert ("holds the control character U+" in sentence) == any(map(steers, text))


def test_a_study_from_the_network_refuses_what_steers(golden_values):
    Study.from_dict(golden_values)
    with pytest.raises(CoreshotError, match=r"study: task holds the control character U\+001B"):
        Study.from_dict({**golden_values, "task": FORGED})


@pytest.fixture
def golden_values():
    return parse_study(study_text(), "study").study.to_dict()


def message(client="a", kind="coreset", array="x", release="r"):
    header = {"format": 1, "kind": kind, "round": 0, "client": client, "study": "ab" * 32}
    header["releases"] = [{"name": release, "content": "c", "mechanism": "exact"}]
    return pack(header, {array: np.zeros(1, np.float32)})


@pytest.mark.parametrize("place", ["client", "kind", "array", "release"])
def test_a_message_refuses_what_steers(strings, place):
    for text in strings[:: 1 if place == "client" else 10]:
        if place == "array" and any("\ud800" <= sign <= "\udfff" for sign in text):
            continue  # safetensors writes no such name
        sentence = refusal(read_header, message(**{place: text}), "f.coreset")
        assert sentence.isprintable()
        assert bool(sentence) == any(map(steers, text))


def test_names_of_clients(strings):
    for text in strings:
        sentence = refusal(check_client_name, text)
        assert sentence.isprintable()
        assert sentence or text.isprintable()


def test_inspect_shows_markup_in_every_name(tmp_path, harmless, run_main):
    """`[/x]` as the name of an array was a traceback."""
    paths = []
    for number, text in enumerate(["[/x]", *harmless[:60]]):
        path = tmp_path / f"{number}.coreset"
        path.write_bytes(message(text, text, text, text))
        paths.append(str(path))
    code, shown, said = run_main("inspect", *paths)
    assert (code, said) == (0, "")
    assert_printable(shown)
    assert "[/x]" in shown


def test_inspect_refuses_a_forged_line(tmp_path, run_main):
    path = tmp_path / "forged.coreset"
    path.write_bytes(message(client=FORGED))
    code, shown, said = run_main("inspect", str(path))
    assert (code, shown) == (2, "")
    assert_printable(said, 1)
    assert "U+001B" in said
    assert "promise" not in said


def test_study_check_cannot_be_forged(tmp_path, run_main, harmless):
    path = tmp_path / "study.toml"
    path.write_text(study_text(name=FORGED))
    code, shown, said = run_main("study", "check", str(path))
    assert (code, shown) == (2, "")
    assert_printable(said, 1)
    for text in ["[/x]", *harmless[:10]]:
        path.write_text(study_text(name=text, column=text, target=f"{text}2"))
        code, shown, said = run_main("study", "check", str(path))
        assert (code, said) == (0, "")
        assert_printable(shown)


def test_study_new_refuses_a_column_that_no_study_can_name(tmp_path, run_main):
    path = tmp_path / "odd.csv"
    path.write_text("age,\x1b[2Jb,ill\n1,2,0\n")
    code, shown, said = run_main("study", "new", str(tmp_path / "s.toml"), "--from", str(path), "--target", "ill")
    assert (code, shown) == (2, "")
    assert "entry 2 of its first line: a text holds the control character U+001B" in " ".join(said.split())


def test_a_study_that_nests_too_deeply_is_one_sentence(tmp_path, run_main):
    path = tmp_path / "study.toml"
    path.write_text("a = " + "[" * 5000 + "]" * 5000)
    code, _, said = run_main("study", "check", str(path))
    assert code == 2
    assert_printable(said, 1)


def test_arguments_of_the_command_line_are_no_markup(run_main):
    for text in ("[/x]", "--[/x]", "\x1b[2J", "--set=\x1b[2J"):
        code, shown, said = run_main("inspect", text)
        assert code == 2
        assert_printable(shown + said)


def test_check_text_goes_to_any_depth():
    deep = ["fine"]
    for _ in range(5000):
        deep = [deep]
    check_text(deep, "here")
    with pytest.raises(CoreshotError, match=r"here: a.b holds the control character U\+202E"):
        check_text({"a": {"b": ["x", "\u202e"]}}, "here")
    with pytest.raises(CoreshotError, match=r"here: a key holds the control character U\+000A"):
        check_text({"a\nb": 1}, "here")


def test_marks_that_nobody_sees_are_no_part_of_a_column_s_name(tmp_path):
    """No study could name such a column."""
    path = tmp_path / "site.csv"
    assert check_header(["\u200eage", " b\u202c "], path) == ["age", "b"]
    assert check_header(["two  spaces", "Größe ± 2"], path) == ["two  spaces", "Größe ± 2"]
    assert visible("Größe ± 2") == "Größe ± 2"
