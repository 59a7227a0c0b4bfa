"""The command line on a task of seconds: results, report, continuing after a kill, one sentence for every mistake."""

import json
import os
import re
import signal
import subprocess
import sys

import jax
import pytest

TINY = """
title = "two moons, tiny"
seeds = [0]
prior_precision = 0.1

[learner.bpc]
name = "bpc_fkl"
num_points = 3
batch_size = 8
num_updates = 4
init_scale = 0.5
step_size_x = 0.05
step_size_y = 0.0
num_trajectories = 2
chain_optimizer = "adam"
chain_step_size = 0.02
data_chain_length = 10
coreset_chain_length = 5
num_noise_samples = 2
noise_scale = 0.01

[learner.bpc.experts]
num_trajectories = 3
num_steps = 20
save_interval = 5
step_size = 0.02

[learner.noise]
name = "noise"
num_points = 3
init_scale = 0.5

[inference.hmc]
name = "hmc"
step_size = 0.02
inverse_mass = 1.0
num_integration_steps = 3
num_warmup = 5
num_samples = 10
num_chains = 2

[inference.adam]
name = "map_estimate"
optimizer = "adam"
step_size = 0.02
num_steps = 20

[[arm]]
label = "BPC-FL + HMC"
learner = "bpc"
inference = "hmc"
weighting = "mass"

[[arm]]
label = "BPC-FL + Adam"
learner = "bpc"
inference = "adam"
weighting = "paper"

[[arm]]
label = "noise + HMC"
learner = "noise"
inference = "hmc"
weighting = "mass"
"""
ARMS = ["BPC-FL + HMC", "BPC-FL + Adam", "noise + HMC"]
KEYS = [
    "task",
    "arm",
    "seed",
    "accuracy",
    "nll",
    "brier",
    "ece",
    "rmse",
    "floats_up",
    "floats_down",
    "bytes_up",
    "bytes_down",
    "seconds_client",
    "seconds_server",
]


@pytest.fixture(scope="module")
def preset(tmp_path_factory, tiny_moons):
    path = tmp_path_factory.mktemp("preset") / "tiny.toml"
    path.write_text(TINY + tiny_moons)
    return path


@pytest.fixture(scope="module")
def environment():
    """For `coreshot ...` in a process of its own, which finds what this one has compiled."""
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


def start(environment, *arguments):
    command = [sys.executable, "-m", "coreshot", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(scope="module")
def finished(preset, environment, tmp_path_factory):
    """A run that nobody disturbed, in a process of its own, and what it said."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    with start(environment, "run", preset, "--out", folder) as process:
        said = process.communicate()[0]
    assert process.returncode == 0, said
    return folder, said


def snapshot(folder):
    """Every file below, with its bytes and the time it was written."""
    return {
        path.relative_to(folder): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def rows_of(folder):
    return json.loads((folder / "results.json").read_text())


def test_a_run_writes_one_row_for_each_arm_with_exactly_these_keys(finished):
    rows = rows_of(finished[0])
    assert [row["arm"] for row in rows] == ARMS
    assert all(list(row) == KEYS for row in rows)
    assert all((row["task"], row["seed"], row["rmse"]) == ("tiny", 0, None) for row in rows)
    assert all(
        0 <= row["accuracy"] <= 1 and row["nll"] > 0 and 0 <= row["brier"] <= 2 and 0 <= row["ece"] <= 1 for row in rows
    )


def test_a_run_says_on_which_devices_jax_ran(finished):
    environment = json.loads((finished[0] / "environment.json").read_text())
    assert environment["backend"] == jax.default_backend()
    assert environment["devices"] == [device.device_kind for device in jax.devices()]


def test_a_row_counts_what_crossed_the_wire(finished):
    """Two clients, each with three points of two inputs and a class, and a count: 2 * (6 + 3 + 1) numbers up."""
    folder, _ = finished
    sizes = {path: path.stat().st_size for path in folder.rglob("*.safetensors") if "messages" in path.parts}
    assert len(sizes) == 2 * 2  # two learners, two clients: the two BPC arms share one set of coresets
    for row in rows_of(folder):
        assert (row["floats_up"], row["floats_down"]) == (20, 0)
        assert row["bytes_up"] in {
            sum(size for path, size in sizes.items() if path.parent == parent)
            for parent in {path.parent for path in sizes}
        }
        assert row["bytes_down"] > 0
    ledger = [
        json.loads(line) for path in sorted(folder.rglob("ledger.jsonl")) for line in path.read_text().splitlines()
    ]
    assert sum(line["floats"] for line in ledger) == sum(row["floats_up"] for row in rows_of(folder))


def test_a_run_says_where_its_results_are(finished):
    folder, said = finished
    assert f"results: {folder / 'results.json'}" in said
    assert f"{folder / 'report.html'}" in said
    assert all(arm in said for arm in ARMS)


def outside_references(page):
    """What a page would fetch from elsewhere."""
    return re.findall(
        r"""(?:src|href|srcset|action)\s*=\s*["']?\s*(?:https?:)?//[^\s"'>]*|url\(\s*["']?(?:https?:)?//[^)]*|@import[^;]*""",
        page,
    )


def test_report_needs_nothing_from_outside(call, finished):
    folder, _ = finished
    (folder / "report.html").unlink()
    code, said, errors = call("report", folder)
    assert (code, errors) == (0, "")
    assert str(folder / "report.html") in said
    page = (folder / "report.html").read_text()
    assert outside_references(page) == []
    assert all(arm in page for arm in ARMS)


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://cdn/x.js">',
        "<link href=//fonts/x.css>",
        "<style>a {background: url(http://x/y.png)}</style>",
        "<style>@import 'x.css';",
    ],
)
def test_negative_control_references_are_found(page):
    assert outside_references(page)


def test_running_again_recomputes_nothing(call, preset, finished):
    folder, _ = finished
    before = {
        path: content for path, content in snapshot(folder).items() if "arms" in path.parts or "messages" in path.parts
    }
    code, _, errors = call("run", preset, "--out", folder)
    assert (code, errors) == (0, "")
    after = snapshot(folder)
    assert len(before) > 6
    assert all(after[path] == content for path, content in before.items())  # the same bytes, and not written anew


def test_json_is_one_object_with_the_rows_and_where_they_are(call, preset, finished):
    folder, _ = finished
    for words in (("run", preset, "--out", folder), ("report", folder)):
        code, said, _ = call(*words, "--json")
        facts = json.loads(said)
        assert (code, facts["rows"], facts["report"]) == (0, rows_of(folder), str(folder / "report.html"))
    code, said, _ = call("report", folder, "--markdown", "--json")
    assert "| BPC-FL + HMC |" in json.loads(said)["markdown"]


def test_another_configuration_in_the_same_directory_is_refused(call, preset, finished):
    folder, _ = finished
    before = snapshot(folder)
    code, _, errors = call("run", preset, "--set", "learner.bpc.num_updates=5", "--out", folder)
    assert code == 2
    assert one_line(errors)
    assert "learner.bpc.num_updates is 4 there and 5 here" in errors
    assert snapshot(folder) == before


def one_line(text):
    return text.startswith("coreshot: ") and text.count("\n") == 1 and text.endswith("\n") and "Traceback" not in text


MISTAKES = {
    "unknown preset": (("run", "mons", "--out", "OUT"), "did you mean 'moons'?"),
    "missing preset file": (("run", "nowhere.toml", "--out", "OUT"), "there is no such file"),
    "unknown key": (
        ("run", "PRESET", "--set", "learner.bpc.num_update=5", "--out", "OUT"),
        "did you mean 'num_updates'?",
    ),
    "unknown table": (("run", "PRESET", "--set", "learner.bcp.num_updates=5", "--out", "OUT"), "did you mean 'bpc'?"),
    "wrong type": (("run", "PRESET", "--set", "learner.bpc.num_updates=many", "--out", "OUT"), "num_updates = 'many'"),
    "out of range": (("run", "PRESET", "--set", "learner.bpc.num_points=0", "--out", "OUT"), "num_points = 0"),
    "infinite": (("run", "PRESET", "--set", "prior_precision=inf", "--out", "OUT"), "prior_precision"),
    "override without value": (
        ("run", "PRESET", "--set", "learner.bpc.num_updates", "--out", "OUT"),
        "not of the form a.b=1",
    ),
    "override of a list position": (("run", "PRESET", "--set", "arm.7.label=x", "--out", "OUT"), "positions 0 to 2"),
    "override below a value": (("run", "PRESET", "--set", "title.x=1", "--out", "OUT"), "--set title.x=1"),
    "unknown learner in an arm": (
        ("run", "PRESET", "--set", "arm.0.learner=nose", "--out", "OUT"),
        "did you mean 'noise'?",
    ),
    "two arms of one label": (
        ("run", "PRESET", "--set", "arm.1.label=noise + HMC", "--out", "OUT"),
        "two arms are labelled 'noise + HMC'",
    ),
    "seeds that are words": (("run", "PRESET", "--seeds", "one,two", "--out", "OUT"), "--seeds 0,1"),
    "seeds twice": (("run", "PRESET", "--seeds", "1,1", "--out", "OUT"), "different whole numbers"),
    "negative seeds": (("run", "PRESET", "--seeds=-1", "--out", "OUT"), "at least 0"),
    "negative seeds in the preset": (("run", "PRESET", "--set", "seeds=[-1]", "--out", "OUT"), "seeds"),
    "more points than records": (
        ("run", "PRESET", "--set", "learner.bpc.num_points=13", "--out", "OUT"),
        "client-0: 12 points are fewer than the coreset's 13",
    ),
    "report of nothing": (("report", "OUT"), "holds no coreshot run"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_gets_one_line_and_exit_code_2(call, preset, tmp_path, case):
    arguments, words = MISTAKES[case]
    code, _, errors = call(
        *({"PRESET": preset, "OUT": tmp_path / "out"}.get(argument, argument) for argument in arguments)
    )
    assert code == 2
    assert one_line(errors)
    assert words in errors
    assert list(tmp_path.rglob("row.json")) == []


@pytest.mark.parametrize("text", ["not toml at all [", "title = 3", 'title = "a"\nunknown = 1', ""])
def test_a_broken_preset_file_gets_one_line(call, tmp_path, no_leftovers, text):
    path = tmp_path / "broken.toml"
    path.write_text(text)
    code, _, errors = call("run", path, "--out", no_leftovers)
    assert code == 2
    assert one_line(errors)
    assert "broken" in errors


def test_a_file_as_directory_is_refused(call, preset, tmp_path):
    (tmp_path / "file").write_text("mine")
    code, _, errors = call("run", preset, "--out", tmp_path / "file")
    assert (code, one_line(errors)) == (2, True)
    assert "is a file, not a directory; choose another --out" in errors
    assert (tmp_path / "file").read_text() == "mine"


def test_a_directory_of_something_else_is_refused(call, preset, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    code, _, errors = call("run", preset, "--out", tmp_path)
    assert (code, one_line(errors)) == (2, True)
    assert "is not empty and holds no coreshot run; choose another --out" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_plan_says_clients_bytes_and_time_and_writes_nothing(call, preset, finished, no_leftovers, monkeypatch):
    monkeypatch.chdir(no_leftovers)
    code, said, errors = call("run", preset, "--plan", "--seeds", "0,1")
    assert (code, errors) == (0, "")
    assert "2 clients, 2 seeds" in said
    bytes_up = rows_of(finished[0])[0]["bytes_up"]
    assert f"40 floats, {2 * bytes_up:,} bytes up" in " ".join(said.split())  # two seeds of what the run has measured
    assert re.search(r"total\s.*\d+ (s|min)", said)
    code, said, _ = call("run", preset, "--plan", "--seeds", "0,1", "--json")
    (plan,) = json.loads(said)["plans"]
    assert (plan["num_clients"], plan["num_seeds"]) == (2, 2)
    assert plan["seconds"] == pytest.approx(sum(part["seconds"] for part in plan["parts"]))


def test_list_names_the_presets(call):
    code, said, errors = call("list")
    assert (code, errors) == (0, "")
    assert "moons" in said
    assert "regression" in said


def messages_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in (folder / "messages").rglob("*.safetensors")}


def without_seconds(rows):
    return [{key: value for key, value in row.items() if not key.startswith("seconds_")} for row in rows]


@pytest.fixture(scope="module")
def killed(preset, environment, tmp_path_factory):
    """A run that is killed, without warning, as soon as its second arm begins."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    with start(environment, "run", preset, "--out", folder) as process:
        for line in process.stdout:  # lines come as they are said, so this waits for the second arm and no longer
            if line.startswith("[2/3]"):
                process.send_signal(signal.SIGKILL)
                break
        process.stdout.read()
    return folder, process.returncode


def test_a_killed_run_goes_on_where_it_stopped(call, preset, finished, killed):
    folder, code = killed
    assert code == -signal.SIGKILL
    done = {path: content for path, content in snapshot(folder).items() if path.name == "row.json"}
    assert len(done) < len(ARMS)
    code, _, errors = call("run", preset, "--out", folder)
    assert (code, errors) == (0, "")
    assert without_seconds(rows_of(folder)) == without_seconds(rows_of(finished[0]))
    assert all(snapshot(folder)[path] == content for path, content in done.items())  # what was done was kept
    assert not list(folder.rglob("*.tmp"))


def test_same_seed_same_messages_in_another_directory(killed, call, preset, finished):
    """Bit by bit, although one was killed and went on in another process."""
    folder, _ = killed
    call("run", preset, "--out", folder)
    assert messages_of(folder) == messages_of(finished[0])
    assert len(messages_of(folder)) == 4


def test_another_seed_adds_rows_and_other_messages(call, preset, finished, tmp_path):
    folder = tmp_path / "out"
    shorter = ("--set", 'arm=[{label="noise + HMC", learner="noise", inference="hmc", weighting="mass"}]')
    for seeds in ("0", "1"):
        code, _, errors = call("run", preset, *shorter, "--seeds", seeds, "--out", folder)
        assert (code, errors) == (0, "")
    rows = rows_of(folder)
    assert [row["seed"] for row in rows] == [0, 1]
    assert (
        without_seconds(rows)[0] == without_seconds(rows_of(finished[0]))[2]
    )  # the arm alone gives what it gave among others
    assert len(set(messages_of(folder).values())) == 4


def test_a_run_killed_before_its_first_result_can_go_on(call, preset, tmp_path):
    """Killed between the directory's first file and its second: it is still ours."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "environment.json").write_text("{}\n")
    (folder / ".config.json.123.tmp").write_text("{")
    shorter = ("--set", 'arm=[{label="noise + HMC", learner="noise", inference="hmc", weighting="mass"}]')
    code, _, errors = call("run", preset, *shorter, "--out", folder)
    assert (code, errors) == (0, "")


def test_arms_whose_labels_differ_in_signs_only_keep_apart(call, preset, tmp_path):
    """Each has its own row: "noise + HMC" and "noise, HMC" would both be written noise-hmc."""
    arms = [
        {"label": label, "learner": "noise", "inference": inference}
        for label, inference in (("noise + HMC", "hmc"), ("noise, HMC", "adam"))
    ]
    text = ", ".join(
        f'{{label="{arm["label"]}", learner="noise", inference="{arm["inference"]}", weighting="mass"}}' for arm in arms
    )
    code, _, errors = call("run", preset, "--set", f"arm=[{text}]", "--out", tmp_path / "out")
    refused = code == 2 and one_line(errors)
    assert refused or [row["arm"] for row in rows_of(tmp_path / "out")] == ["noise + HMC", "noise, HMC"]


def test_presets_that_come_with_coreshot_can_be_read(source):
    from coreshot.experiments.preset import load_preset, preset_names

    assert {path.stem for path in (source / "presets").glob("*.toml")} == set(preset_names())
    for name in preset_names():
        loaded = load_preset(name)
        assert loaded.arms
        assert loaded.title
        for arm in loaded.arms:
            study = loaded.study(arm.learner) if arm.learner else loaded.method_study(arm.method)
            assert len(study.hash) == 64


def test_demo_presets_exist():
    from coreshot.demo.paper import PRESETS
    from coreshot.experiments.preset import preset_names

    assert set(PRESETS) <= set(preset_names())
