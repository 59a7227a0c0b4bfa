"""coreshot frontier: quality beside leaks, of every arm, from the same run and the same audits as the two commands
make.
"""

import json

import numpy as np
import pytest

from coreshot.audit.frontier import run_frontier
from coreshot.experiments.preset import load_preset
from coreshot.report.frontier import frontier_grid

pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")

TINY = """
title = "two moons, tiny"
prior_precision = 0.1
seeds = [0, 1]
match = "raw + sgd"

[learner.raw]
name = "everything"

[inference.sgd]
name = "map_estimate"
num_steps = 20
optimizer = "sgd"
step_size = 0.1

[method.private]
name = "private_spectral"
features = { name = "random_vector", dimension = 6 }
privacy = { epsilon = 1.0, delta = 1e-5 }

[method.fed_avg]
name = "fed_avg"
num_rounds = 2
local_steps = 2
batch_size = 4
client_optimizer = { name = "sgd", step_size = 0.1 }
server_optimizer = { name = "sgd", step_size = 1.0 }

[[arm]]
label = "raw + sgd"
learner = "raw"
inference = "sgd"
weighting = "mass"

[[arm]]
label = "private"
method = "private"

[[arm]]
label = "FedAvg"
method = "fed_avg"

[[arm]]
label = "raw -> FedAvg"
learner = "raw"
inference = "sgd"
weighting = "mass"
method = "fed_avg"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_moons):
    """A preset, a directory, and what came of them."""
    folder = tmp_path_factory.mktemp("frontier")
    (folder / "tiny.toml").write_text(TINY + tiny_moons)
    rows = run_frontier(load_preset(str(folder / "tiny.toml")), 60, folder / "out")
    return folder, {row["arm"]: row for row in rows}


def test_raw_records_are_found_and_noise_hides_them(made):
    _, rows = made
    assert all(value > 0.99 for value, _, _ in rows["raw + sgd"]["canary_auc"])
    assert rows["raw + sgd"]["epsilon"] is None
    assert len(rows["private"]["canary_auc"]) == 2, "an audit for each seed"
    for _, low, high in rows["private"]["canary_auc"]:
        assert low < 0.76  # epsilon 1 at delta 1e-5 allows an AUC of about 0.6
        assert high < 0.95
    assert rows["private"]["epsilon"] == pytest.approx(1.0, rel=0.01)


def test_several_rounds_are_listed_and_not_attacked(made):
    _, rows = made
    for arm in ("FedAvg", "raw -> FedAvg"):
        assert "canary_auc" not in rows[arm]
        assert len(rows[arm]["accuracy"]) == 2
        assert rows[arm]["epsilon"] is None, "of raw records, and then of exact steps"


def test_qualities_are_those_of_the_run(made):
    folder, rows = made
    results = json.loads((folder / "out/run/results.json").read_text())
    for arm, row in rows.items():
        assert row["accuracy"] == [result["accuracy"] for result in results if result["arm"] == arm]


def test_a_second_call_does_no_trial_again_and_says_the_same(made, call):
    folder, rows = made
    before = (folder / "out/frontier.json").read_bytes()
    lines = (folder / "out/audits/learner-raw/1/trials.jsonl").read_bytes()
    code, said, _ = call("frontier", folder / "tiny.toml", "--trials", 60, "--out", folder / "out", "--json")
    assert code == 0
    assert {row["arm"] for row in json.loads(said)["rows"]} == set(rows)
    assert (folder / "out/frontier.json").read_bytes() == before
    assert (folder / "out/audits/learner-raw/1/trials.jsonl").read_bytes() == lines


def test_the_table_has_a_line_for_each_arm_and_the_picture_is_there(made):
    folder, rows = made
    grid = frontier_grid(list(rows.values()))
    assert [line[0] for line in grid.lines] == list(rows)
    assert grid.lines[2][3] == "–"
    assert "±" in grid.lines[0][1]
    found = np.asarray(rows["private"]["record_auc"])
    assert grid.lines[1][3] == f"{found[:, 0].mean():.2f} ({found[:, 1].min():.2f} to {found[:, 2].max():.2f})"
    assert (folder / "out/frontier.png").read_bytes().startswith(b"\x89PNG")


def test_a_plan_knows_methods_of_one_round(made, call):
    folder, _ = made
    code, said, _ = call("run", folder / "tiny.toml", "--plan", "--json")
    assert code == 0
    parts = {part["part"]: part["what"] for part in json.loads(said)["plans"][0]["parts"]}
    assert parts["method: private"] == "1 rounds x 1 arms: features and noisy second moments of 12 records"
    assert parts["method: fed_avg"] == "2 rounds x 2 arms: 2 local steps x 2 clients"
