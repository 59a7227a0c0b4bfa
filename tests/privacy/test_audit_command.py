"""coreshot audit: what it says and writes, and one sentence for every mistake."""

import json

import pytest

# typer 0.20 asks click 8.5 for names that click 9 will not have; that is between the two of them.
pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")

TINY = """
title = "two moons, tiny"
prior_precision = 0.1
arm = []
inference = {}

[learner.class_mean]
name = "class_mean"
num_points = 2

[method.private]
name = "private_spectral"
features = { name = "random_vector", dimension = 6 }
privacy = { epsilon = 4.0, delta = 1e-5 }

[method.fed_avg]
name = "fed_avg"
num_rounds = 2
local_steps = 2
batch_size = 4
client_optimizer = { name = "sgd", step_size = 0.1 }
server_optimizer = { name = "sgd", step_size = 1.0 }
"""


@pytest.fixture(scope="module")
def preset(tmp_path_factory, tiny_moons):
    path = tmp_path_factory.mktemp("preset") / "tiny.toml"
    path.write_text(TINY + tiny_moons)
    return path


def test_the_command_says_what_it_found_and_where_it_is(call, preset, tmp_path):
    code, said, errors = call("audit", preset, "--learner", "class_mean", "--trials", 30, "--out", tmp_path / "out")
    assert (code, errors) == (0, "")
    for words in (
        "AUC of the attack",
        "at 1 % false positives",
        "epsilon that is claimed",
        "median distance of pseudo-points",
        "classes of one record",
    ):
        assert words in said
    found = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert found["verdict"] in said
    assert found["membership"]["auc"]["value"] > 0.9
    assert (tmp_path / "out" / "audit.png").read_bytes().startswith(b"\x89PNG")


def test_json_and_a_broken_promise_is_exit_code_1(call, preset, tmp_path, monkeypatch):
    arguments = ("audit", preset, "--method", "private", "--trials", 30, "--out", tmp_path / "out", "--json")
    code, said, _ = call(*arguments)
    assert code == 0
    assert json.loads(said)["is_refuted"] is False
    monkeypatch.setattr(
        "coreshot.audit.findings.promised_epsilon", lambda releases: -1.0
    )  # a promise that nothing keeps
    code, said, _ = call(*arguments)
    assert code == 1
    assert json.loads(said)["is_refuted"] is True


def test_the_command_on_private_statistics(call, preset, tmp_path):
    code, said, errors = call(
        "audit",
        preset,
        "--method",
        "private",
        "--client",
        "client-1",
        "--record",
        3,
        "--trials",
        60,
        "--out",
        tmp_path / "out",
    )
    assert (code, errors) == (0, "")
    assert "audit of client-1, record 3" in said
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["claimed_epsilon"] == pytest.approx(4, rel=1e-2)


def test_a_plan_writes_nothing(call, preset, no_leftovers):
    code, said, errors = call("audit", preset, "--learner", "class_mean", "--plan", "--out", no_leftovers)
    assert (code, errors) == (0, "")
    assert "1,980" in said
    assert "time, about" in said
    code, said, _ = call("audit", preset, "--learner", "class_mean", "--plan", "--out", no_leftovers, "--json")
    assert json.loads(said)["num_trials"] == 1980


MISTAKES = {
    "neither": (
        (),
        "name what to audit, by --learner or by --method; "
        "preset tiny has learners class_mean; methods fed_avg, private",
    ),
    "both": (("--learner", "class_mean", "--method", "private"), "name what to audit"),
    "unknown learner": (("--learner", "clas_mean"), "did you mean 'class_mean'?"),
    "unknown method": (("--method", "privat"), "did you mean 'private'?"),
    "unknown client": (("--learner", "class_mean", "--client", "client-7"), "client 'client-7' does not exist"),
    "record out of range": (
        ("--learner", "class_mean", "--record", "12"),
        "record 12 does not exist; client client-0 has records 0 to 11",
    ),
    "negative record": (("--learner", "class_mean", "--record", "-1"), "record -1 does not exist"),
    "too few trials": (("--learner", "class_mean", "--trials", "29"), "29 trials are too few"),
    "many rounds": (
        ("--method", "fed_avg"),
        "the method has 2 rounds; only learners and methods of one round can be audited",
    ),
    "fewer records than points": (
        ("--learner", "class_mean", "--set", "learner.class_mean.num_points=12"),
        "client client-0, without record",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_gets_one_line_and_exit_code_2(call, preset, no_leftovers, case):
    arguments, words = MISTAKES[case]
    code, _, errors = call("audit", preset, *arguments, "--out", no_leftovers)
    assert code == 2
    assert errors.startswith("coreshot: ")
    assert errors.count("\n") == 1
    assert words in errors
