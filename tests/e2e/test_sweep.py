"""The grid search: every combination once, the best first; a combination that breaks down is a result like others."""

import json

import pytest

from coreshot.errors import CoreshotError
from coreshot.experiments.sweep import run_sweep
from coreshot.progress import Silent

PRESET = """
title = "a tiny search"
prior_precision = 0.1
seeds = [0]
task = { name = "moons", num_clients = 2, points_per_client = 6, noise_scale = 0.1, num_test = 50 }
network = { name = "mlp", hidden = [4], activation = "relu" }
learner = {}
inference = {}

[method.fed_avg]
name = "fed_avg"
num_rounds = 2
local_steps = 2
batch_size = 6
client_optimizer = { name = "sgd", step_size = 0.1 }
server_optimizer = { name = "sgd", step_size = 1.0 }

[[arm]]
label = "FedAvg"
method = "fed_avg"

[sweep]
arm = "FedAvg"
seeds = [7]
metric = "nll"

[sweep.grid]
"method.fed_avg.client_optimizer.step_size" = [0.1, 1e30, 0.5]
"""


@pytest.fixture
def preset(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(PRESET)
    return str(path)


def test_best_first_and_what_breaks_down_last(call, preset, tmp_path):
    rows = run_sweep(preset, (), tmp_path / "out", Silent())
    step_sizes, values = zip(*(row.values() for row in rows), strict=True)
    assert step_sizes[-1] == 1e30
    assert values[-1] is None
    assert values[0] < values[1]
    assert json.loads((tmp_path / "out" / "sweep.json").read_text()) == rows
    code, said, _ = call("sweep", preset, "--out", tmp_path / "out", "--json")  # nothing is done again
    assert (code, json.loads(said)["rows"]) == (0, rows)
    assert not list((tmp_path / "out").rglob("seed-0"))  # the seeds of the sweep, not those of the table
    code, said, errors = call("sweep", preset, "--out", tmp_path / "out", "--seeds", "8")
    assert (code, "another" in errors or "other" in errors) == (2, True), errors  # a folder of other seeds


def test_a_preset_without_a_sweep_says_so(preset, tmp_path):
    path = tmp_path / "plain.toml"
    path.write_text(PRESET[: PRESET.index("[sweep]")])
    with pytest.raises(CoreshotError, match=r"has no \[sweep\]"):
        run_sweep(str(path), (), tmp_path / "out", Silent())


def test_an_arm_that_is_not_there_is_named(preset, tmp_path):
    with pytest.raises(CoreshotError, match="there is no arm 'FedProx'; there are FedAvg"):
        run_sweep(preset, ["sweep.arm=FedProx"], tmp_path / "out", Silent())
