"""A SuperLink dies in a run and is started again: no reply that had arrived is asked for again."""

import json
import os

from coreshot.experiments.preset import load_preset


def test_a_superlink_that_dies_costs_only_what_had_not_arrived(
    federation, coreshot, cheap, tmp_path, run_locally, check_same_run, messages_in, wait_until
):
    few = "task.num_clients=3"
    preset, gate, out = load_preset(str(cheap), [few]), tmp_path / "gate", tmp_path / "run"
    gate.touch()
    for index in range(3):
        fault = {"FAULT": "hang", "FAULT_GATE": str(gate)} if index > 1 else {}
        federation.start(
            f"client-{index}",
            federation.data_of(preset, f"client-{index}"),
            FAULT_MARK=str(tmp_path / f"mark-{index}"),
            **fault,
        )
    command = federation.run_command(cheap, out, "--set", few, "--answer-seconds", 400)
    with federation.started(command) as process:
        wait_until(lambda: process.poll() is not None or len(messages_in(out)) == 2, 300, "two coresets")
        assert process.poll() is None, process.stderr.read()
        processes = json.loads((tmp_path / "federation" / "federation.json").read_text())["processes"]
        os.kill(next(one["pid"] for one in processes if one["role"] == "superlink"), 9)
        _, stderr = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "what has arrived is kept" in stderr
    before = {name: path.stat().st_mtime_ns for name, path in messages_in(out).items()}
    gate.unlink()
    assert coreshot("flower", "up", tmp_path / "federation").returncode == 0
    found = coreshot(*command)
    assert found.returncode == 0, found.stderr
    assert {name: messages_in(out)[name].stat().st_mtime_ns for name in before} == before
    assert [len((tmp_path / f"mark-{index}").read_text().splitlines()) for index in range(2)] == [1, 1]
    local, _ = run_locally(cheap, few)
    check_same_run(local, out)
