"""What an arm promises counts all that a client sends in it: both halves of a jump start."""

import pytest

from coreshot.errors import CoreshotError
from coreshot.experiments.preset import load_preset
from coreshot.privacy.promise import promised_epsilon

PRESET = """
title = "two moons, jump starts"
prior_precision = 0.1
seeds = [0]

[learner.raw]
name = "everything"

[learner.dm]
name = "private_dm"
num_networks = 2
records_each = 20.0
num_points = 4
num_updates = 2
step_size_x = 0.1
PRIVACY_OF_ONE_SHOT

[inference.sgd]
name = "map_estimate"
num_steps = 2
optimizer = "sgd"
step_size = 0.1

[method.rounds]
name = "private_fed_avg"
num_rounds = 1
local_steps = 1
batch_size = 4
sampling_rate = 1.0
clip_norm = 1.0
client_optimizer = { name = "sgd", step_size = 0.1 }
server_optimizer = { name = "sgd", step_size = 1.0 }
PRIVACY_OF_ROUNDS
"""
ARM = """
[[arm]]
label = "%s, then DP-FedAvg"
learner = "%s"
inference = "sgd"
weighting = "mass"
method = "rounds"
"""
OWN = "privacy = { epsilon = %.2f, delta = 5e-6 }"


@pytest.fixture
def load(tmp_path, tiny_moons):
    def written(first, second, *learners, more=""):
        text = PRESET.replace("PRIVACY_OF_ONE_SHOT", first).replace("PRIVACY_OF_ROUNDS", second)
        path = tmp_path / "jump.toml"
        path.write_text(text + more + "".join(ARM % (name, name) for name in learners) + tiny_moons)
        return load_preset(str(path))

    return written


def test_a_jump_start_has_the_epsilon_of_both_halves(load):
    """ "exact records, then DP-FedAvg 3" was shown as epsilon 3."""
    preset = load(OWN % 3, OWN % 3, "raw", "dm")
    raw, private = preset.arms
    assert promised_epsilon(preset.arm_releases(raw)) is None
    assert 3.2 < promised_epsilon(preset.arm_releases(private)) < 6.0
    assert promised_epsilon(preset.arm_releases(private)[1:]) <= 3.0, "negative control: the second half alone"


def test_a_preset_s_promise_holds_for_both_halves_together(load):
    table = "\n[privacy]\nepsilon = 3.0\ndelta = 1e-5\n"
    with pytest.raises(CoreshotError, match=r"its two halves together have epsilon 4\.\d+ at delta 1e-05, and"):
        load("", "", "dm", more=table)
    preset = load(OWN % 2, OWN % 1, "dm", more=table)
    assert promised_epsilon(preset.arm_releases(preset.arms[0])) < 3.0
