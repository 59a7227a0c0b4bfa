"""`coreshot compare`: every learner with every inference and size, the nulls always beside them, the best first."""

import json

import pytest

from coreshot.errors import CoreshotError
from coreshot.experiments.compare import comparison_preset

PRESET = """
title = "a tiny comparison"
prior_precision = 0.1
seeds = [0]
task = { name = "moons", num_clients = 2, points_per_client = 12, noise_scale = 0.1, num_test = 50 }
network = { name = "mlp", hidden = [4], activation = "relu" }
arm = []

[learner.dm]
name = "dm"
num_points = 3
num_updates = 2
step_size_x = 0.05

[inference.few]
name = "map_estimate"
optimizer = "adam"
step_size = 0.05
num_steps = 5

[inference.more]
name = "map_estimate"
optimizer = "adam"
step_size = 0.05
num_steps = 200
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(PRESET)
    return path


def test_all_combinations_and_the_nulls(path):
    preset = comparison_preset(str(path), (), None, ["few", "more"], [3, 4])
    labels = [arm.label for arm in preset.arms]
    for size in (3, 4):
        for inference in ("few", "more"):
            for learner in ("dm", "random subset", "class mean", "noise"):
                assert f"{learner}, K = {size} + {inference}" in labels
    assert sum("raw records" in label for label in labels) == 4
    assert sum(label.startswith("pooled") for label in labels) == 2
    assert sum(label.startswith("spectral") for label in labels) == 2


def test_images_come_at_half_resolution_too():
    labels = [arm.label for arm in comparison_preset("digits_quick", (), ["bpc"], ["sgd"], None).arms]
    assert any("half resolution" in label for label in labels)


@pytest.mark.parametrize(
    ("learners", "inferences", "words"),
    [
        (["nothing"], None, r"learner 'nothing' does not exist"),
        (None, ["nothing"], r"inference 'nothing' does not exist"),
    ],
)
def test_what_the_preset_does_not_have(path, learners, inferences, words):
    with pytest.raises(CoreshotError, match=words):
        comparison_preset(str(path), (), learners, inferences, None)


def test_the_command(call, path, tmp_path):
    out = tmp_path / "out"
    code, text, _ = call("compare", path, "--inferences", "more", "--out", out)
    assert code == 0
    rows = json.loads((out / "results.json").read_text())
    assert len(rows) == 7
    assert all(part in text for part in ("dm, K = 3 + more", "pooled + more", "spectral", "compare.png"))
    assert (out / "compare.png").read_bytes().startswith(b"\x89PNG")
    code, said, _ = call("compare", path, "--inferences", "more", "--out", out, "--json")  # nothing is learned again
    assert len(json.loads(said)["rows"]) == 7
    best, text = max(rows, key=lambda row: row["accuracy"]), text[text.index("kB") :]  # from the table on
    assert text.index(best["arm"]) <= min(text.index(row["arm"]) for row in rows if row["accuracy"] < best["accuracy"])


def test_sizes_that_are_no_sizes(call, path):
    for points in ("x", "0", "3,3"):
        code, _, error = call("compare", path, "--points", points)
        assert code == 2
        assert f"--points {points}" in error
