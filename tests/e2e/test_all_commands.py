"""What holds for every command there is, found by walking over the program: an example in its help, JSON for machines, and exit codes by one rule."""

import json

import click
import pytest
import typer

from coreshot.cli.commands import app


def commands_of(command, path=()):
    if isinstance(command, click.Group):
        return {
            name: found
            for part, one in command.commands.items()
            for name, found in commands_of(one, (*path, part)).items()
        }
    return {path: command}


COMMANDS = commands_of(typer.main.get_command(app))


def test_the_walk_finds_them_all():
    assert {("run",), ("data", "show"), ("study", "check"), ("evaluate",), ("audit",)} <= set(COMMANDS)
    assert len(COMMANDS) == 26


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_an_example_of_this_command_and_json(call, path):
    code, said, errors = call(*path, "--help")
    assert (code, errors) == (0, "")
    assert f"Example: coreshot {' '.join(path)}" in " ".join(said.split())
    assert "--json" in said


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_an_option_that_does_not_exist_is_the_users_mistake(call, path):
    code, _, errors = call(*path, "--no-such-option")
    assert code == 2
    assert "Traceback" not in errors


NOT_THERE = {
    ("run",): ["nowhere.toml"],
    ("sweep",): ["nowhere.toml"],
    ("compare",): ["nowhere.toml"],
    ("report",): ["nowhere"],
    ("inspect",): ["nowhere"],
    ("audit",): ["nowhere.toml", "--learner", "x"],
    ("frontier",): ["nowhere.toml"],
    ("flower", "up"): ["x", "--preset", "nowhere.toml"],
    ("flower", "run"): ["nowhere.toml"],
    ("flower", "status"): ["nowhere"],
    ("flower", "down"): ["nowhere"],
    ("flower", "site"): ["nowhere.csv", "--superlink", "localhost:1", "--client", "x", "--insecure"],
    ("data", "add"): ["x", "--from", "nowhere"],
    ("data", "show"): ["nothing"],
    ("study", "new"): ["x.toml", "--from", "nowhere.csv", "--target", "y"],
    ("study", "check"): ["nowhere.toml"],
    ("distill",): ["nowhere.toml", "nowhere.csv", "--out", "x"],
    ("fit",): ["nowhere.coreset", "--study", "nowhere.toml", "--out", "x"],
    ("forget",): ["nowhere", "--client", "x"],
    ("predict",): ["nowhere", "nowhere.csv", "--out", "x"],
    ("evaluate",): ["nowhere", "nowhere.csv"],
    ("data", "get"): ["file:///nowhere", "--sha256", "0" * 64],
}


def test_only_commands_without_a_thing_to_name_are_left_out():
    assert set(COMMANDS) - set(NOT_THERE) == {("list",), ("demo",), ("data", "list"), ("flower", "certs")}


@pytest.mark.parametrize("path", NOT_THERE, ids=" ".join)
@pytest.mark.parametrize("machine", [[], ["--json"]], ids=["words", "json"])
def test_what_is_not_there_gets_one_sentence_and_exit_code_2(call, path, machine, no_leftovers, monkeypatch):
    monkeypatch.chdir(no_leftovers)
    monkeypatch.setenv("CORESHOT_DATA", str(no_leftovers / "shelf"))
    code, said, errors = call(*path, *NOT_THERE[path], *machine)
    assert (code, said) == (2, "")
    assert errors.startswith("coreshot: ")
    assert errors.count("\n") == 1


def test_a_place_that_cannot_be_written_gets_one_sentence(call, tmp_path):
    (tmp_path / "file").write_text("mine")
    code, _, errors = call("data", "get", "file:///x", "--sha256", "0" * 64, "--to", tmp_path / "file" / "below")
    assert code == 2
    assert errors.count("\n") == 1


def test_lists_as_json(call, monkeypatch, tmp_path):
    monkeypatch.setenv("CORESHOT_DATA", str(tmp_path / "shelf"))
    code, said, _ = call("list", "--json")
    assert code == 0
    assert "BPC-FL + HMC" in json.loads(said)["moons"]["arms"]
    code, said, _ = call("data", "list", "--json")
    assert (code, json.loads(said)["sets"]) == (0, [])
