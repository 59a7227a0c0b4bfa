"""Three sites over TLS with node authentication, in their own network namespace: bit for bit the local results."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from alone import NUM_SITES

from coreshot.experiments.preset import load_preset
from coreshot.experiments.run import run

TINY = f"""
base = "moons_quick"
title = "moons, tiny"

[task]
num_clients = {NUM_SITES}

[network]
hidden = [4, 4]

[learner.bpc]
num_updates = 3
num_trajectories = 2
data_chain_length = 5
coreset_chain_length = 5
num_noise_samples = 2

[learner.bpc.experts]
num_trajectories = 3
num_steps = 10

[method.fed_avg]
num_rounds = 2
local_steps = 3

[inference.sgd]
num_steps = 5

[[arm]]
label = "BPC-FL + SGD"
learner = "bpc"
inference = "sgd"
weighting = "mass"

[[arm]]
label = "FedAvg"
method = "fed_avg"
num_clients = 2
"""


@pytest.fixture(scope="module")
def has_namespaces():
    return (
        subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode == 0
        if sys.platform == "linux"
        else False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory, environment, has_namespaces):
    """The local run, which compiles for all, and then the federation's."""
    folder = tmp_path_factory.mktemp("secure")
    preset = folder / "tiny.toml"
    preset.write_text(TINY)
    run([load_preset(str(preset), ())], folder / "local", [0])
    alone = [sys.executable, str(Path(__file__).parent / "alone.py"), str(folder), str(preset)]
    prefix, suffix = (["unshare", "-rn"], ["--namespace"]) if has_namespaces else ([], [])
    subprocess.run([*prefix, *alone, *suffix], env=environment, check=True, timeout=600)
    return folder


@pytest.fixture(scope="module")
def said(folder):
    return json.loads((folder / "said.json").read_text())


def test_every_command_says_the_truth_by_its_exit_code(said):
    codes = {name: answer["code"] for name, answer in said.items() if name != "outside"}
    assert codes == {
        "certs": 0,
        "strangers": 0,
        "up": 0,
        "attack at address": 1,
        "attack at control": 0,  # `flwr run` has started it
        "run": 0,
        "status": 0,
        "stranger": codes["stranger"],
        "down": 0,
        "status after": 1,
    }, said


def test_coresets_weights_ledgers_and_rows_are_the_local_runners(said, folder, check_same_run):
    """One shot from three sites, and two rounds of FedAvg with two."""
    assert said["run"]["code"] == 0, said["run"]
    check_same_run(folder / "local", folder / "run")
    assert len(list(folder.glob("run/messages/*/round-0/*.safetensors"))) == NUM_SITES
    assert (folder / "run" / "report.html").is_file()


def test_a_foreign_app_is_refused_at_the_door_of_the_sites(said):
    """By another site, which has ca.pem and a registered key: the run is not even started."""
    assert "403 Forbidden" in said["attack at address"]["stdout"]
    assert "/v1/control/start-run" in said["attack at address"]["stdout"]
    assert said["attack at address"]["marks"] == 0


def test_a_site_executes_no_app_that_comes_with_a_run(said, folder):
    """Not even if the run is started at the coordinator's own door; the run after it shows that sites go on."""
    loot = [line for line in said["attack at control"]["stdout"].splitlines() if line.startswith("LOOT")]
    assert loot == ["LOOT it runs no app but the installed coreshot, and this run brings another"] * NUM_SITES
    assert said["attack at control"]["marks"] == 0
    assert not list((folder / "marks").iterdir())
    for site in (folder / "federation" / "sites").iterdir():
        assert "brings an app of its own; it was not executed" in (site / "log").read_text()
        assert not list(site.rglob("apps.py"))  # nor was it unpacked
    assert said["run"]["code"] == 0


def test_flowers_own_bytes_stand_beside_the_ledger(said, folder):
    facts = json.loads((folder / "run" / "flower.json").read_text())
    rows = json.loads((folder / "run" / "results.json").read_text())
    assert facts["status"] == "finished:completed"
    assert facts["bytes_to_server"] > sum(row["bytes_up"] for row in rows)


def test_a_node_whose_key_is_not_registered_is_refused(said):
    assert said["stranger"]["code"] != 0
    assert "Failed to activate SuperNode" in said["stranger"]["stdout"] + said["stranger"]["stderr"]
    nodes = json.loads(said["status"]["stdout"])["nodes"]
    assert sorted(node["name"] for node in nodes) == [f"client-{index}" for index in range(NUM_SITES)]
    assert {node["status"] for node in nodes} == {"online"}


def test_nothing_is_left_running(said):
    assert json.loads(said["status after"]["stdout"])["processes"] == {}


def test_no_connection_leaves_the_machine(said, has_namespaces):
    """All of the above happened where nothing but loopback exists."""
    if not has_namespaces:
        pytest.skip(
            "this machine forbids network namespaces (unshare -rn), so only loopback addresses were used, unproven"
        )
    assert "unreachable" in said["outside"]
    assert said["run"]["code"] == 0


def test_negative_control_one_changed_byte_is_seen(folder, tmp_path, check_same_run):
    other = shutil.copytree(folder / "local", tmp_path / "other")
    check_same_run(folder / "local", other)
    message = next(other.glob("messages/*/round-0/client-2.safetensors"))
    data = bytearray(message.read_bytes())
    data[-1] ^= 1
    message.write_bytes(data)
    with pytest.raises(AssertionError, match="messages"):
        check_same_run(folder / "local", other)
