"""`coreshot demo` and `coreshot example`: what they say, the page they write, and commands that work as they stand."""

import json
import shlex
import shutil
from dataclasses import replace

import pytest

from coreshot.demo import story as told
from coreshot.demo.hospitals import HOSPITALS
from coreshot.report.units import format_bytes, format_seconds
from stand_ins import small_story


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return small_story(tmp_path_factory.mktemp("small"))


@pytest.fixture
def quick_story(monkeypatch, small):
    """The digits and the paper's figures are not computed, and the hospitals once."""

    def tell(folder, real, progress):
        shutil.copytree(small.folder, folder)
        story = replace(small, folder=folder, page=folder / "demo.html")
        story.page.write_bytes(told.story_page(story))
        return story

    monkeypatch.setattr(told, "tell", tell)


def test_the_plan_takes_no_time_and_writes_nothing(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said, _ = call("demo", "--plan")
    assert code == 0
    assert "fetches nothing" in said
    assert list(tmp_path.iterdir()) == []


def test_it_ends_with_a_page_and_three_commands_that_work(call, tmp_path, monkeypatch, quick_story):
    monkeypatch.chdir(tmp_path)
    code, said, errors = call("demo", "--out", "demo")
    assert (code, errors) == (0, "")
    assert not any(word in said.lower() for word in ("warning", "note"))
    page = (tmp_path / "demo" / "demo.html").read_text()
    assert "What is not promised" in page
    assert "the same to the byte" in page
    commands = [line.strip() for line in said.split("next:")[1].splitlines() if line.startswith("  coreshot")]
    assert len(commands) == 3
    for command in commands:
        assert command in page
        code, _, errors = call(*shlex.split(command)[1:])
        assert code == 0, (command, errors)


def test_json_is_one_object_and_an_old_demo_is_kept(call, tmp_path, monkeypatch, quick_story):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    code, said, _ = call("demo", "--json")
    assert code == 0
    found = json.loads(said)
    assert found["page"] == "runs/demo-2/demo.html"
    assert found["forgotten_is_same"] is True
    assert set(found["hospitals"]["auc"]) >= {"coreshot, one file a hospital"}


def test_a_folder_with_files_is_not_written_into(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(told.CoreshotError, match="not empty"):
        told.tell(tmp_path, None, None)


def test_the_held_out_patients_are_in_no_hospital(call, tmp_path):
    call("example", "heart", "--to", str(tmp_path / "a"))
    call("example", "heart", "--to", str(tmp_path / "b"), "--hospitals", str(tmp_path / "a"))  # any four files will do
    for folder in ("a", "b"):
        held_out = (tmp_path / folder / "held-out.csv").read_text().splitlines()[1:]
        own = [line for name in HOSPITALS for line in (tmp_path / folder / f"{name}.csv").read_text().splitlines()[1:]]
        assert held_out
        assert not set(held_out) & set(own)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("example", "lungs", "--to", "x"), "there is none of that name"),
        (("example", "heart", "--to", "full"), "not empty"),
        (("example", "heart", "--to", "y", "--hospitals", "nowhere"), "no such file"),
    ],
)
def test_mistakes_get_a_sentence(call, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    code, _, errors = call(*arguments)
    assert code == 2
    assert sentence in " ".join(errors.split())


@pytest.mark.parametrize(
    ("amount", "said"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (9949, "9.9 kB"), (85546, "86 kB"), (31.2e6, "31 MB")],
)
def test_bytes_as_a_person_says_them(amount, said):
    assert format_bytes(amount) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.44, "0.4 s"), (12.3, "12 s"), (59.7, "1 min"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_times_as_a_person_says_them(seconds, said):
    assert format_seconds(seconds) == said
