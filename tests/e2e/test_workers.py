"""Clients in worker processes give the same bytes as one process; after a kill, finished ones are not asked again."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from coreshot.experiments.preset import load_preset
from coreshot.experiments.run import run
from coreshot.report.run_report import write_report

pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")

TINY = """
base = "digits_quick"
title = "digits, tiny"

[network]
name = "mlp" # compiles in less time than a ConvNet
hidden = [4]
activation = "relu"

[task]
num_clients = 4

[learner.bpc]
num_points = 10
num_updates = 10
num_trajectories = 2
data_chain_length = 5
coreset_chain_length = 3
num_noise_samples = 1
experts = { num_trajectories = 3, num_steps = 10, save_interval = 5, step_size = 1e-2, store = "replay", pool = 2 }

[inference.sgd]
num_steps = 5

[[arm]]
label = "4 clients"
learner = "bpc"
inference = "sgd"
weighting = "mass"

[[arm]]
label = "2 clients"
learner = "bpc"
inference = "sgd"
weighting = "mass"
num_clients = 2
"""


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    path = tmp_path_factory.mktemp("presets") / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def environment():
    return dict(os.environ)


def command(*arguments):
    return [sys.executable, "-m", "coreshot", "run", *map(str, arguments)]


def messages_of(folder):
    return {path.name: path for path in sorted(folder.glob("messages/*/round-0/*.safetensors"))}


def contents(folder):
    return {name: path.read_bytes() for name, path in messages_of(folder).items()}


@pytest.fixture(scope="module")
def in_threads(preset, tmp_path_factory):
    """In this process."""
    folder = tmp_path_factory.mktemp("threads") / "run"
    run([load_preset(str(preset), ())], folder)
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def with_workers(preset, environment, tmp_path_factory):
    """Killed as soon as a client has answered, then run again, with two workers."""
    folder = tmp_path_factory.mktemp("workers") / "run"
    arguments = command(preset, "--out", folder, "--workers", 2, "--client-minutes", 5)
    with subprocess.Popen(
        arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        while not messages_of(folder):
            assert process.poll() is None
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
    before = {name: path.stat().st_mtime_ns for name, path in messages_of(folder).items()}
    subprocess.run(arguments, env=environment, check=True, capture_output=True)
    return folder, before


def test_two_workers_give_the_same_bytes_as_one_process(in_threads, with_workers):
    assert contents(with_workers[0]) == contents(in_threads)
    assert sorted(contents(in_threads)) == [f"client-{index}.safetensors" for index in range(4)]
    assert len(set(contents(in_threads).values())) == 4


def test_a_client_that_had_answered_before_the_kill_is_not_asked_again(with_workers):
    folder, before = with_workers
    assert 0 < len(before) < 4
    assert all(messages_of(folder)[name].stat().st_mtime_ns == changed for name, changed in before.items())


def test_rows_are_the_same(in_threads, with_workers):
    rows, others = (json.loads((folder / "results.json").read_text()) for folder in (in_threads, with_workers[0]))
    times = ("seconds_client", "seconds_server")
    assert [{key: value for key, value in row.items() if key not in times} for row in rows] == [
        {key: value for key, value in row.items() if key not in times} for row in others
    ]


def test_an_arm_of_the_first_two_clients_uses_their_answers(in_threads):
    """10 images of 64 numbers, 10 labels and n_m, from four clients and from two; the ledgers name them."""
    four, two = json.loads((in_threads / "results.json").read_text())
    assert (four["floats_up"], two["floats_up"]) == (4 * 651, 2 * 651)
    ledger = (in_threads / "arms" / "tiny" / "2-clients" / "seed-0" / "ledger.jsonl").read_text()
    assert "client-1" in ledger
    assert "client-2" not in ledger


def test_the_report_has_a_page_of_pseudo_images(in_threads):
    assert (in_threads / "figures" / "tiny.png").is_file()
    assert "pseudo-images of 4 clients" in (in_threads / "report.html").read_text()


@pytest.mark.parametrize("arguments", [("--client-minutes", "5"), ("--workers", "2", "--client-minutes", "0")])
def test_a_limit_without_workers_or_of_nothing_is_refused(call, preset, tmp_path, arguments):
    code, _, errors = call("run", preset, "--out", tmp_path / "run", *arguments)
    assert code == 2
    assert "only a worker process can be stopped" in errors
    assert not (tmp_path / "run").exists()


def test_an_arm_with_more_clients_than_there_are_is_refused_before_work(call, preset, tmp_path):
    code, _, errors = call("run", preset, "--out", tmp_path / "run", "--set", "arm.1.num_clients=9")
    assert code == 2
    assert "num_clients is 9, but the task has 4 clients; lower it" in errors
    assert not (tmp_path / "run").exists()
