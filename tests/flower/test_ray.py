"""Fifty clients on Flower's Ray engine: the local runner's results."""

import time

import pytest

pytest.importorskip("ray", reason="Ray is not installed; install coreshot[flower-sim]")

NUM_CLIENTS = 50


def test_fifty_clients_give_the_local_runners_results(
    coreshot, cheap, tmp_path, run_locally, check_same_run, record_property
):
    began = time.monotonic()
    local, _ = run_locally(cheap, f"task.num_clients={NUM_CLIENTS}")
    seconds_local = time.monotonic() - began
    out, began = tmp_path / "run", time.monotonic()
    setting = ["--set", f"task.num_clients={NUM_CLIENTS}"]
    found = coreshot(
        "flower", "run", cheap, "--simulate", "--num-cpus", 2, "--out", out, "--quorum", NUM_CLIENTS, *setting
    )
    seconds = time.monotonic() - began
    assert found.returncode == 0, found.stderr
    check_same_run(local, out)
    assert len(list(out.glob("messages/*/round-0/*.safetensors"))) == NUM_CLIENTS
    record_property("overhead_seconds_per_client", (seconds - seconds_local) / NUM_CLIENTS)
    print(
        f"Ray: {seconds:.1f} s, local: {seconds_local:.1f} s, {(seconds - seconds_local) / NUM_CLIENTS:.2f} s a client"
    )
