"""What holds for every command of the program: help of all arguments, an example, JSON, exit codes, a quick start."""

import json
import os
import re
import resource
import subprocess
import sys
import tomllib

import click
import pytest
import typer

import coreshot
from coreshot.cli.commands import app
from coreshot.experiments.preset import load_preset, preset_names


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
    assert len(COMMANDS) == 36


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_an_example_of_this_command_and_json(call, path):
    code, said, errors = call(*path, "--help")
    assert (code, errors) == (0, "")
    assert f"Example: coreshot {' '.join(path)}" in " ".join(said.split())
    assert "--json" in said


def plain(text):
    """Without the frames of tables and the markup of help texts, and with single spaces."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).replace("\\", "").split())


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_shows_the_help_of_every_argument_and_option(call, path, monkeypatch):
    """typer 0.20 with click 8.5 leaves out the help of arguments."""
    monkeypatch.setenv("COLUMNS", "300")  # no line is wrapped, so a help text is in one piece
    _, said, _ = call(*path, "--help")
    parameters = [one for one in COMMANDS[path].params if one.name not in ("help", "no_such_option")]
    assert parameters
    for parameter in parameters:
        assert parameter.help, parameter.name
        assert plain(parameter.help) in plain(said), parameter.name


def test_negative_control_an_argument_without_help_is_found():
    """What click 8.5 printed for the argument of `coreshot run`."""
    assert plain(COMMANDS["run",].params[0].help) not in plain("│ *    preset      TEXT  [required]     │")


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_an_option_that_does_not_exist_is_the_users_mistake(call, path):
    code, _, errors = call(*path, "--no-such-option")
    assert code == 2
    assert "Traceback" not in errors


NOT_THERE = {
    ("run",): ["nowhere.toml"],
    ("show",): ["nowhere.toml"],
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
    ("export",): ["nowhere", "--card", "x.md"],
    ("check",): ["nowhere", "nowhere.csv"],
    ("adapt",): ["nowhere", "nowhere.csv", "--out", "x"],
    ("budget", "set"): ["--epsilon", "1", "--data", "nowhere.csv"],
    ("budget", "show"): ["--data", "nowhere.csv"],
    ("budget", "remove"): ["--data", "nowhere.csv"],
    ("new-preset",): ["nothing", "--out", "x.toml"],
    ("example",): ["lungs", "--to", "x"],
    ("data", "get"): ["file:///nowhere", "--sha256", "0" * 64],
}


def test_only_commands_without_a_thing_to_name_are_left_out():
    assert set(COMMANDS) - set(NOT_THERE) == {
        ("list",),
        ("demo",),
        ("data", "list"),
        ("flower", "certs"),
        ("key", "new"),
    }


@pytest.mark.parametrize("path", NOT_THERE, ids=" ".join)
@pytest.mark.parametrize("machine", [[], ["--json"]], ids=["words", "json"])
def test_what_is_not_there_gets_one_sentence_and_exit_code_2(call, path, machine, no_leftovers, monkeypatch):
    monkeypatch.chdir(no_leftovers)
    monkeypatch.setenv("CORESHOT_DATA", str(no_leftovers / "store"))
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
    monkeypatch.setenv("CORESHOT_DATA", str(tmp_path / "store"))
    code, said, _ = call("list", "--json")
    assert code == 0
    assert "BPC-FL + HMC" in json.loads(said)["moons"]["arms"]
    code, said, _ = call("data", "list", "--json")
    assert (code, json.loads(said)["sets"]) == (0, [])


def test_version(call, project):
    declared = tomllib.loads((project / "pyproject.toml").read_text())["project"]["version"]
    assert coreshot.__version__ == declared
    assert call("--version") == (0, f"coreshot {declared}\n", "")


@pytest.mark.parametrize("name", preset_names())
def test_show_prints_a_preset_that_resolves_to_the_same_values(call, tmp_path, name):
    code, said, errors = call("show", name)
    assert (code, errors) == (0, "")
    (tmp_path / "shown.toml").write_text(said)
    assert "base" not in tomllib.loads(said)
    assert load_preset(str(tmp_path / "shown.toml")).resolved == load_preset(name).resolved


def test_show_with_overrides_and_as_json(call):
    code, said, _ = call("show", "moons_quick", "--set", "learner.bpc.num_updates=7", "--json")
    assert code == 0
    assert json.loads(said) == load_preset("moons_quick", ["learner.bpc.num_updates=7"]).resolved
    assert tomllib.loads(call("show", "moons_quick", "--set", 'title=a "b"')[1])["title"] == 'a "b"'


IMPORTS = """
import json, os, sys
from coreshot.cli import main
sys.argv = ["coreshot", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    assert not ended.code
print(json.dumps({"modules": sorted(sys.modules), "platforms": os.environ.get("JAX_PLATFORMS")}), file=sys.stderr)
"""


def after(*arguments, folder):
    """What a process has imported, and set, when a command has ended."""
    environment = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    command = [sys.executable, "-c", IMPORTS, *map(str, arguments)]
    ended = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stderr.splitlines()[-1])


def packages(found):
    return {name.partition(".")[0] for name in found["modules"]}


def test_help_imports_no_heavy_package(tmp_path):
    found = after("--help", folder=tmp_path)
    assert packages(found) & {"jax", "numpy", "pydantic", "matplotlib", "sklearn", "flwr"} == set()
    assert "typer" in packages(found)


def test_help_takes_at_most_half_a_second_of_a_core():
    """Processor time of the best of three: that of an idle core, whatever else runs on this machine."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "coreshot", "--help"], check=True, stdout=subprocess.DEVNULL)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) <= 0.5


def test_distill_imports_nothing_that_only_a_server_needs(call, tmp_path):
    """On a table with the study that `study new` writes; and JAX chooses the device by itself."""
    lines = [f"{20 + age},{'fm'[age % 2]},{'yes' if age > 30 else 'no'}" for age in range(60)]
    (tmp_path / "site.csv").write_text("\n".join(["age,sex,ill", *lines]) + "\n")
    study = tmp_path / "study.toml"
    assert call("study", "new", study, "--from", tmp_path / "site.csv", "--target", "ill", "--guess")[0] == 0
    found = after("distill", study, "site.csv", "--out", "site.coreset", folder=tmp_path)
    assert (tmp_path / "site.coreset").stat().st_size > 0
    assert packages(found) & {"matplotlib", "sklearn", "blackjax", "flwr"} == set()
    assert "jax" in packages(found)
    assert found["platforms"] is None
