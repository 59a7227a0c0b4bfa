"""The presets that come with coreshot: the paper's values where they claim them, and differences only where they say
so.
"""

import shutil
import tomllib
from dataclasses import fields, replace

import pytest

from coreshot.errors import CoreshotError
from coreshot.experiments import preset as preset_module
from coreshot.experiments.preset import load_preset, preset_names

PAPER = {  # the EMNIST-62 column of the paper's table of hyperparameters
    "batch_size": 25,
    "num_updates": 500,
    "init_scale": 1e-3,
    "step_size_x": 1e2,
    "step_size_y": 0.0,
    "num_trajectories": 5,
    "chain_optimizer": "sgd",
    "chain_step_size": 1e-2,
    "optimizer": "sgd",
    "data_chain_length": 200,
    "coreset_chain_length": 250,
    "num_noise_samples": 10,
    "noise_scale": 1e-4,
}
PAPER_EXPERTS = {"num_trajectories": 100, "num_steps": 750, "save_interval": 5, "step_size": 1e-2}


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads_and_its_model_builds(name):
    preset = load_preset(name)
    assert preset.arms
    assert preset.model.num_params() > 0


@pytest.mark.parametrize(
    "name", ["digits", "emnist62", "unipen62", "coreset_size", "num_clients", "moons", "regression"]
)
def test_there_is_a_quick_variant(name):
    assert f"{name}_quick" in preset_names()


@pytest.mark.parametrize(("name", "pixels"), [("emnist62_paper", 28 * 28), ("digits", 8 * 8)])
def test_the_papers_values(name, pixels):
    """All of them, but that a step in pixels is as large as the pixels are few."""
    preset = load_preset(name)
    learner = preset.learners["bpc"]
    assert {key: getattr(learner, key) for key in PAPER} == PAPER | {
        "step_size_x": pytest.approx(1e2 * pixels / 784, rel=1e-3)
    }
    assert learner.num_points == 62
    assert {key: getattr(learner.experts, key) for key in PAPER_EXPERTS} == PAPER_EXPERTS
    assert preset.prior_precision == 1e-2


def test_the_papers_model_and_size():
    preset = load_preset("emnist62_paper")
    assert preset.model.num_params() == 1_206_590
    assert preset.learners["bpc"].num_points == 62
    assert preset.task.num_clients == 100


def differing(one, other):
    return {field.name for field in fields(one) if getattr(one, field.name) != getattr(other, field.name)}


@pytest.mark.parametrize("name", ["coreset_size", "coreset_size_quick"])
def test_the_study_of_the_size_changes_the_size_alone(name):
    learners = load_preset(name).learners
    assert [learners[key].num_points for key in ("bpc_30", "bpc", "bpc_100")] == [30, 62, 100]
    assert (
        differing(learners["bpc"], learners["bpc_30"])
        == differing(learners["bpc"], learners["bpc_100"])
        == {"num_points"}
    )


def test_the_study_of_the_store_changes_the_store_alone():
    learners = load_preset("expert_store").learners
    full, half, replay = (learners[key] for key in ("bpc", "bpc_float16", "bpc_replay"))
    assert replace(half, experts=full.experts) == replace(replay, experts=full.experts) == full
    assert differing(full.experts, half.experts) == {"coding"}
    assert differing(full.experts, replay.experts) == {"store"}  # and the pool is the default, 20


@pytest.mark.parametrize("name", ["emnist62_paper", "digits", "emnist62_quick", "unipen62_quick"])
def test_all_arms_of_the_papers_table_are_there(name):
    labels = {arm.label for arm in load_preset(name).arms}
    methods = {f"{method} ({steps} local steps)" for method in ("FedAvg", "FedPA", "MIME") for steps in (10, 100)}
    assert labels >= methods | {f"BPC-FL + {inference}" for inference in ("SGD", "Adam", "HMC")}
    assert any("->" in label for label in labels)
    assert labels >= {f"{null} + SGD" for null in ("random subset", "class mean", "noise", "pooled")}


def test_a_base_table_that_names_another_thing_is_replaced(tmp_path):
    """A task of another name keeps nothing of the base's; one of the same name keeps what it does not change."""
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "moons"\n[task]\nname = "digits"\nnum_clients = 3\nalpha = 1.0\n[learner.bpc]\nnum_points = 7\n'
    )
    preset = load_preset(str(path))
    assert preset.task.num_clients == 3
    assert (preset.learners["bpc"].num_points, preset.learners["bpc"].batch_size) == (7, 50)


@pytest.mark.parametrize("name", preset_names())
def test_a_base_is_one_step_away(source, name):
    base = tomllib.loads((source / "presets" / f"{name}.toml").read_text()).get("base")
    assert base is None or "base" not in tomllib.loads((source / "presets" / f"{base}.toml").read_text())


def test_a_base_two_steps_away_is_refused(source, tmp_path, monkeypatch):
    """Of presets that come with coreshot; a user's own file may be based on any of them."""
    shutil.copytree(source / "presets", tmp_path / "presets")
    (tmp_path / "presets" / "deep.toml").write_text('base = "moons_quick"\n')
    monkeypatch.setattr(preset_module, "_folder", lambda: tmp_path / "presets")
    with pytest.raises(CoreshotError, match=r"preset deep: its base 'moons_quick' has a base itself, 'moons'"):
        load_preset("deep")
    own = tmp_path / "own.toml"
    own.write_text('base = "moons_quick"\n')
    assert load_preset(str(own)).resolved == load_preset("moons_quick").resolved
