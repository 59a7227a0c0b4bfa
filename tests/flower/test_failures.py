"""Sites that die, raise, hang, never come or send what they should not; then, with the sites that are left, a SuperLink
that dies. Real processes on loopback.
"""

import json
import os
import time

import pytest

from coreshot.experiments.preset import load_preset

NUM_CLIENTS = 7
FAULTS = {"client-0": "hang", "client-1": "raise", "client-2": "forge", "client-3": "hang"}
WELL = ["client-5", "client-6"]  # client-4 never comes


@pytest.fixture(scope="module")
def failed_run(federation, cheap, wait_until):
    """A run in which each of FAULTS has its fault, and client-3 dies while it works. What it said, and its seconds."""
    preset = load_preset(str(cheap), [f"task.num_clients={NUM_CLIENTS}"])
    for name in [*FAULTS, *WELL]:
        if name in FAULTS:
            federation.fault_of(name).write_text(FAULTS[name])
        limit = ["--minutes", "0.3"] if name == "client-0" else []
        federation.start(name, federation.data_of(preset, name), *limit)
    patience = ["--quorum", 2, "--join-seconds", 30, "--answer-seconds", 150]
    out, began = federation.folder / "failed", time.monotonic()
    command = federation.run_command(cheap, out, "--set", f"task.num_clients={NUM_CLIENTS}", *patience)
    with federation.started(command) as process:
        wait_until(
            lambda: process.poll() is not None or federation.times_begun("client-3"), 300, "client-3 begins to work"
        )
        assert process.poll() is None, process.stderr.read()
        federation.kill("client-3")
        stdout, stderr = process.communicate(timeout=400)
    assert process.returncode == 0, stderr
    return out, stdout, time.monotonic() - began


def test_a_run_ends_with_the_rest_and_names_each_who_failed(federation, failed_run, messages_in):
    out, stdout, seconds = failed_run
    assert seconds < 30 + 150 + 60  # the rest: to start Python, Flower and the inference
    [diagnostics] = json.loads((out / "diagnostics.json").read_text())
    reasons = {note.split(":")[0]: note for note in diagnostics["notes"]}
    assert sorted(reasons) == ["client-0", "client-1", "client-2", "client-3", "client-4"]
    assert "it took longer than 18 s and was stopped" in reasons["client-0"]
    assert "its worker process ended with code 1" in reasons["client-1"]
    assert "belongs to study 000000000000" in reasons["client-2"]
    assert "its node went away" in reasons["client-3"] or "did not come within" in reasons["client-3"]
    assert "its node did not join within 30 s" in reasons["client-4"]
    assert all(name in stdout for name in reasons)
    assert list(messages_in(out)) == WELL
    # What a record says stays in the site's own log.
    assert "secret value 1234" in federation.log_of("client-1")
    folders = (out, federation.folder / "federation")
    coordinators = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "link.db" for path in coordinators)
    assert not any(b"secret value" in path.read_bytes() for path in coordinators)


def test_a_superlink_that_dies_costs_only_what_had_not_arrived(
    federation, failed_run, coreshot, cheap, run_locally, check_same_run, messages_in, wait_until
):
    """It is started again, and no reply that had arrived is asked for again. Sites that had failed answer now: the one
    whose work was stopped, the one whose work raised an error, and the one that forged."""
    few, out = "task.num_clients=3", federation.folder / "run"
    for name in WELL:
        federation.kill(name)
    for name in ("client-0", "client-1"):
        federation.fault_of(name).unlink()
    federation.fault_of("client-2").write_text("hang")
    begun = {name: federation.times_begun(name) for name in ("client-0", "client-1")}
    command = federation.run_command(cheap, out, "--set", few, "--answer-seconds", 400)
    with federation.started(command) as process:
        wait_until(lambda: process.poll() is not None or len(messages_in(out)) == 2, 300, "two coresets")
        assert process.poll() is None, process.stderr.read()
        processes = json.loads((federation.folder / "federation" / "federation.json").read_text())["processes"]
        os.kill(next(one["pid"] for one in processes if one["role"] == "superlink"), 9)
        _, stderr = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "what has arrived is kept" in stderr
    before = {name: path.stat().st_mtime_ns for name, path in messages_in(out).items()}
    assert list(before) == ["client-0", "client-1"]
    federation.fault_of("client-2").unlink()
    assert coreshot("flower", "up", federation.folder / "federation").returncode == 0
    found = coreshot(*command)
    assert found.returncode == 0, found.stderr
    assert {name: messages_in(out)[name].stat().st_mtime_ns for name in before} == before
    assert {name: federation.times_begun(name) - times for name, times in begun.items()} == dict.fromkeys(before, 1)
    local, _ = run_locally(cheap, few)
    check_same_run(local, out)
