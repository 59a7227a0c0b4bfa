"""Sites that die, raise, hang, never come or send what they should not. Real processes on loopback."""

import json
import time

from coreshot.experiments.preset import load_preset


def test_a_run_ends_with_the_rest_and_names_each_who_failed(
    federation, coreshot, cheap, tmp_path, messages_in, wait_until
):
    preset, gate, mark = load_preset(str(cheap), ["task.num_clients=7"]), tmp_path / "gate", tmp_path / "mark"
    gate.touch()
    faults = {
        "client-0": {"FAULT": "hang", "FAULT_GATE": str(gate)},
        "client-1": {"FAULT": "raise"},
        "client-2": {"FAULT": "forge"},
        "client-3": {"FAULT": "hang", "FAULT_GATE": str(gate), "FAULT_MARK": str(mark)},
        "client-5": {},
        "client-6": {},
    }
    for name, fault in faults.items():
        limit = ["--minutes", "0.3"] if name == "client-0" else []
        federation.start(name, federation.data_of(preset, name), "--insecure", *limit, **fault)
    patience = ["--quorum", 2, "--join-seconds", 30, "--answer-seconds", 150]
    out, began = tmp_path / "run", time.monotonic()
    command = federation.run_command(cheap, out, "--set", "task.num_clients=7", *patience)
    with federation.started(command) as process:
        wait_until(lambda: process.poll() is not None or mark.exists(), 300, "client-3 begins to work")
        assert process.poll() is None, process.stderr.read()
        federation.kill("client-3")
        stdout, stderr = process.communicate(timeout=400)
    assert process.returncode == 0, stderr
    assert time.monotonic() - began < 30 + 150 + 60  # the rest: to start Python, Flower and the inference
    [diagnostics] = json.loads((out / "diagnostics.json").read_text())
    reasons = {note.split(":")[0]: note for note in diagnostics["notes"]}
    assert sorted(reasons) == ["client-0", "client-1", "client-2", "client-3", "client-4"]
    assert "it took longer than 18 s and was stopped" in reasons["client-0"]
    assert "its worker process ended with code 1" in reasons["client-1"]
    assert "belongs to study 000000000000" in reasons["client-2"]
    assert "its node went away" in reasons["client-3"] or "did not come within" in reasons["client-3"]
    assert "its node did not join within 30 s" in reasons["client-4"]
    assert all(name in stdout for name in reasons)
    assert list(messages_in(out)) == ["client-5", "client-6"]
    # What a record says stays in the site's own log.
    assert "secret value 1234" in federation.log_of("client-1")
    coordinators = [path for folder in (out, tmp_path / "federation") for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "link.db" for path in coordinators)
    assert not any(b"secret value" in path.read_bytes() for path in coordinators)

    gate.unlink()
    again = coreshot(*federation.run_command(cheap, tmp_path / "again", "--set", "task.num_clients=1"))
    assert again.returncode == 0, again.stderr
    assert list(messages_in(tmp_path / "again")) == ["client-0"]
