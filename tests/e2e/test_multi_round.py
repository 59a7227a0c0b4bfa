"""Rounds from the command line: a run that is killed goes on from its checkpoint; one sentence for every mistake."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace

import jax.numpy as jnp
import pytest

from coreshot.experiments.preset import build_preset, load_preset
from coreshot.experiments.run import run
from coreshot.progress import Silent
from coreshot.wire.messages import encode_message

# typer 0.20 asks click 8.5 for names that click 9 will not have; that is between the two of them.
pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")

NUM_ROUNDS = 60
TINY = f"""
title = "two moons in many rounds, tiny"
seeds = [0]
prior_precision = 0.1
evaluate_every = 5

[task]
name = "moons"
num_clients = 3
points_per_client = 12
noise_scale = 0.14
num_test = 50

[network]
name = "mlp"
hidden = [8]
activation = "tanh"

[learner.random_subset]
name = "random_subset"
num_points = 4

[inference.adam]
name = "map_estimate"
optimizer = "adam"
step_size = 0.02
num_steps = 20

[method.fed_avg]
name = "fed_avg"
num_rounds = {NUM_ROUNDS}
local_steps = 2
batch_size = 8
cohort_size = 2
client_optimizer = {{ name = "sgd", step_size = 0.05 }}
server_optimizer = {{ name = "adam", step_size = 0.02 }}

[method.dosfl]
name = "dosfl"
distill_steps = 2
distill_epochs = 1
distill_batch_size = 2
num_updates = 2
batch_size = 8
init_scale = 0.5
initial_step_size = 0.1
x_optimizer = {{ name = "sgd", step_size = 0.1 }}

[[arm]]
label = "subset -> FedAvg"
learner = "random_subset"
inference = "adam"
weighting = "mass"
method = "fed_avg"

[[arm]]
label = "FedAvg"
method = "fed_avg"
"""
FOLDERS = {"subset -> FedAvg": "subset-fedavg", "FedAvg": "fedavg"}
P = 8 * 2 + 8 + 8 * 2 + 2  # weights
UP, DOWN = 2 * NUM_ROUNDS * (P + 1), 2 * NUM_ROUNDS * P  # of two clients a round


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    path = tmp_path_factory.mktemp("preset") / "rounds.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def start(preset):
    """`coreshot run` of the preset in a process of its own, which finds what this one has compiled."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}

    def begin(folder):
        command = [sys.executable, "-m", "coreshot", "run", str(preset), "--out", str(folder)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    return begin


@pytest.fixture(scope="module")
def finished(preset, tmp_path_factory):
    """A run that nobody disturbed, in this process."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    run([load_preset(str(preset), ())], folder)
    return folder


def arm_folder(folder, arm):
    return folder / "arms" / "rounds" / FOLDERS[arm] / "seed-0"


@pytest.fixture(scope="module")
def killed(start, tmp_path_factory):
    """A run that is killed, without warning, in the rounds of its first arm, which has begun with a jump start."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    checkpoint = arm_folder(folder, "subset -> FedAvg") / "checkpoint.safetensors"
    with start(folder) as process:
        deadline = time.monotonic() + 120
        while not checkpoint.is_file() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        process.kill()
        said = process.stdout.read()
    assert process.returncode == -signal.SIGKILL, said
    assert checkpoint.is_file()
    assert not list(folder.rglob("row.json"))
    return folder


def rows_of(folder):
    return json.loads((folder / "results.json").read_text())


def without_seconds(rows):
    return [{key: value for key, value in row.items() if not key.startswith("seconds_")} for row in rows]


def files_of(folder, *names):
    return {(arm, name): (arm_folder(folder, arm) / name).read_bytes() for arm in FOLDERS for name in names}


def curve_of(folder, arm):
    return json.loads((arm_folder(folder, arm) / "curve.json").read_text())


def test_a_row_counts_every_round(finished):
    """The jump start has its one shot as well: three clients' four points of two inputs and a class number, and n_m."""
    rows = rows_of(finished)
    assert [row["arm"] for row in rows] == list(FOLDERS)
    assert [(row["floats_up"], row["floats_down"]) for row in rows] == [(UP + 3 * (4 * 3 + 1), DOWN), (UP, DOWN)]
    assert all(0.5 < row["accuracy"] <= 1 for row in rows)


def test_curves_begin_after_the_first_thing_sent(finished):
    """The jump start's first point is its one shot; its rounds are 1 to 60, so that 61 comes after the last."""
    warm, cold = (curve_of(finished, arm) for arm in FOLDERS)
    assert [point["round"] for point in cold] == list(range(5, NUM_ROUNDS + 1, 5))
    assert [point["round"] for point in warm] == [1, *range(5, NUM_ROUNDS + 1, 5), NUM_ROUNDS + 1]
    assert warm[0]["floats"] == 3 * (4 * 3 + 1)
    for curve, row in zip((warm, cold), rows_of(finished), strict=True):
        assert curve[-1]["floats"] == row["floats_up"] + row["floats_down"]
        assert curve[-1]["nll"] == pytest.approx(row["nll"], rel=1e-6)
        assert sorted({point["floats"] for point in curve}) == [point["floats"] for point in curve]


def test_a_run_killed_in_its_rounds_goes_on_from_its_checkpoint(call, preset, finished, killed):
    """The same rows, weights, ledgers and curves, and no checkpoint left behind."""
    code, _, errors = call("run", preset, "--out", killed)
    assert (code, errors) == (0, "")
    assert without_seconds(rows_of(killed)) == without_seconds(rows_of(finished))
    names = ("posterior.safetensors", "ledger.jsonl", "curve.json")
    assert files_of(killed, *names) == files_of(finished, *names)
    assert not [
        path
        for folder in (finished, killed)
        for path in folder.rglob("*")
        if path.name == "checkpoint.safetensors" or path.suffix == ".tmp"
    ]


def test_negative_control_the_arms_are_told_apart(finished):
    one, two = without_seconds(rows_of(finished))
    assert all(one[key] != two[key] for key in ("nll", "brier", "bytes_up"))


class Stopper(Silent):
    """Stops a run when so many rounds are done."""

    def __init__(self, after):
        self.left = after

    def advance(self, amount=1):
        self.left -= amount
        if self.left == 0:
            raise KeyboardInterrupt


def small_preset(arm, **changes):
    values = tomllib.loads(TINY) | {"arm": [arm]} | changes
    values["method"]["fed_avg"]["num_rounds"] = 12
    return build_preset("rounds", values)


def test_going_on_before_the_first_point_of_the_curve_adds_none(tmp_path):
    """Stopped after the checkpoint of round 10; the only point is that of the end, 12."""
    preset = small_preset({"label": "FedAvg", "method": "fed_avg"}, evaluate_every=100)
    with pytest.raises(KeyboardInterrupt):
        run([preset], tmp_path, progress=Stopper(11))
    run([preset], tmp_path)
    assert [point["round"] for point in curve_of(tmp_path, "FedAvg")] == [12]


@pytest.mark.parametrize(
    "arm",
    [
        {"label": "DOSFL", "method": "dosfl"},
        {"label": "subset", "learner": "random_subset", "inference": "adam", "weighting": "mass"},
    ],
    ids=["dosfl", "one shot"],
)
def test_a_refused_reply_of_a_single_exchange_is_noted(tmp_path, monkeypatch, arm):
    """The arm's notes name the client whose message was not finite."""

    def spoilt(message, *, client, **rest):
        is_bad = client == "client-1" and "x" in message.arrays
        return encode_message(
            replace(message, arrays={**message.arrays, "x": jnp.nan * message.arrays["x"]}) if is_bad else message,
            client=client,
            **rest,
        )

    monkeypatch.setattr("coreshot.runtime.replies.encode_message", spoilt)
    run([small_preset(arm)], tmp_path)
    ledger = next(tmp_path.rglob("ledger.jsonl")).read_text()
    assert '"refused"' in ledger
    notes = json.loads((tmp_path / "diagnostics.json").read_text())[0]["notes"]
    assert any("client-1" in note for note in notes)


def one_line(text):
    return text.startswith("coreshot: ") and text.count("\n") == 1 and text.endswith("\n") and "Traceback" not in text


JUMP = 'learner="random_subset", inference="adam", weighting="mass"'
MISTAKES = {
    "unknown method": (
        ['arm=[{label="x", method="fed_avgg"}]'],
        "method 'fed_avgg' does not exist (did you mean 'fed_avg'?)",
    ),
    "unknown algorithm": (["method.fed_avg.name=fed_prox"], "method 'fed_prox' does not exist"),
    "a learner without inference": (['arm=[{label="x", learner="random_subset"}]'], "add what is missing"),
    "a learner and a method without inference": (
        ['arm=[{label="x", learner="random_subset", method="fed_avg"}]'],
        "add what is missing",
    ),
    "an arm of nothing": (['arm=[{label="x"}]'], "add what is missing"),
    "a jump start into a one-shot method": (
        [f'arm=[{{label="x", {JUMP}, method="dosfl"}}]'],
        "method 'dosfl' is one-shot and cannot start",
    ),
    "a jump start from two chains": (
        ["inference.adam.num_chains=2", f'arm=[{{label="x", {JUMP}, method="fed_avg"}}]'],
        "2 samples",
    ),
    "no rounds": (["method.fed_avg.num_rounds=0"], "num_rounds = 0"),
    "nobody asked": (["method.fed_avg.cohort_size=0"], "cohort_size = 0"),
    "more asked than there are": (["method.fed_avg.cohort_size=4"], "cohort_size is 4, but there are only 3 clients"),
    "unknown optimiser": (["method.fed_avg.client_optimizer.name=lion"], "client_optimizer"),
    "unknown key of a method": (["method.fed_avg.num_round=3"], "did you mean 'num_rounds'?"),
    "unknown key of an optimiser": (["method.fed_avg.server_optimizer.step=3"], "step"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_gets_one_line_and_exit_code_2(call, preset, tmp_path, case):
    overrides, words = MISTAKES[case]
    code, _, errors = call(
        "run", preset, *(part for override in overrides for part in ("--set", override)), "--out", tmp_path / "out"
    )
    assert code == 2
    assert one_line(errors)
    assert words in errors
    assert list(tmp_path.rglob("row.json")) == []
