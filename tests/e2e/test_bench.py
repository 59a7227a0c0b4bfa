"""The parts of `make bench`, on work of seconds: settings of the papers, right arithmetic, sides that take turns."""

import importlib
import json
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from coreshot.experiments.preset import load_preset


@pytest.fixture
def bench(project, monkeypatch):
    """A file of benchmarks/, by name."""
    monkeypatch.syspath_prepend(project / "benchmarks")
    return importlib.import_module


@pytest.mark.parametrize(("name", "preset"), [("MOONS", "moons_paper"), ("EMNIST_PAPER", "emnist62_paper")])
def test_updates_are_the_presets(bench, name, preset):
    updates = bench("updates")
    update, preset = getattr(updates, name), load_preset(preset)
    learner, model = preset.learners["bpc"], preset.model
    same = (
        "num_points",
        "batch_size",
        "num_trajectories",
        "chain_optimizer",
        "chain_step_size",
        "num_noise_samples",
        "noise_scale",
        "step_size_x",
    )
    assert {field: getattr(update, field) for field in same} == {field: getattr(learner, field) for field in same}
    assert (update.chain_length, update.step_of) == (learner.coreset_chain_length, learner.step_of)
    assert bench("coreshot_update").model_of(update) == model


def test_the_shortened_update_keeps_the_shares(bench):
    updates = bench("updates")
    short, paper = updates.EMNIST, updates.EMNIST_PAPER
    assert short.chain_length / paper.chain_length == short.num_noise_samples / paper.num_noise_samples
    assert replace(short, chain_length=paper.chain_length, num_noise_samples=paper.num_noise_samples) == paper


def test_flops_by_hand(bench):
    forward = (
        26 * 26 * 9 * 32 + 24 * 24 * 9 * 32 * 64 + 12 * 12 * 64 * 128 + 128 * 62
    )  # multiplications and as many additions
    assert bench("chain").step_flops(bench("updates").EMNIST) == 25 * 2 * (3 * forward - 26 * 26 * 9 * 32)


def test_clients_make_an_update_and_compile_it_once(bench):
    updates, side, compilations = bench("updates"), bench("coreshot_update"), bench("compilations")
    small = replace(updates.MOONS, num_trajectories=2, chain_length=3, num_noise_samples=1)
    work = compilations.compiled_once(side.Clients(side.learner_of(small), small, num_clients=2).update)
    work()
    work()


def test_compiling_again_is_noticed(bench):
    sizes = iter((7, 11))
    work = bench("compilations").compiled_once(lambda: jax.jit(lambda x: 3 * x)(jnp.ones(next(sizes))))
    work()
    with pytest.raises(SystemExit, match="compiled again"):
        work()


def test_sides_take_turns(bench, project, capsys):
    code = (
        f"import sys; sys.path.insert(0, {str(project / 'benchmarks')!r}); from turns import serve; serve(lambda: None)"
    )
    sides = {name: [sys.executable, "-c", code] for name in ("one", "other")}
    seconds = bench("turns").take_turns("nothing", sides, num_timed=2, num_warm=1)
    assert {name: len(turns) for name, turns in seconds.items()} == {"one": 2, "other": 2}
    turns = [line.split(", ")[1] for line in capsys.readouterr().out.splitlines()]
    assert turns == ["one", "other"] * 3


def test_a_side_that_ends_is_named(bench):
    with pytest.raises(SystemExit, match="one ended with 3"):
        bench("turns").take_turns("nothing", {"one": [sys.executable, "-c", "raise SystemExit(3)"]}, num_timed=1)


def write_run(folder, accuracies):
    rows = [
        {"arm": "BPC-FL + SGD", "accuracy": 0.7, "seconds_client": 60.0},
        {"arm": "FedAvg (10 local steps)", "accuracy": accuracies[-1], "seconds_client": 8.0},
    ]
    (folder / "results.json").write_text(json.dumps(rows))
    arm = folder / "arms" / "client_seconds" / "fedavg-10-local-steps" / "seed-0"
    arm.mkdir(parents=True)
    (arm / "curve.json").write_text(
        json.dumps([{"round": index + 1, "accuracy": accuracy} for index, accuracy in enumerate(accuracies)])
    )


def test_client_seconds_until_fedavg_is_as_accurate(bench, tmp_path):
    write_run(tmp_path, [0.2, 0.7, 0.6, 0.9])
    assert bench("client_seconds").from_run(tmp_path) == {
        "client_seconds": 60.0,
        "fedavg_client_seconds": 4.0,
        "client_seconds_over_fedavg": 15.0,
    }


def test_client_seconds_where_it_never_is(bench, tmp_path, capsys):
    write_run(tmp_path, [0.2, 0.3])
    assert bench("client_seconds").from_run(tmp_path)["fedavg_client_seconds"] == 8.0
    assert "upper bound" in capsys.readouterr().out


def test_client_seconds_preset_has_both_arms(bench):
    client_seconds = bench("client_seconds")
    assert [arm.label for arm in load_preset(str(client_seconds.PRESET)).arms] == [
        client_seconds.ONE_SHOT,
        client_seconds.ROUNDS,
    ]


def test_the_store_fits(bench):
    found = bench("store").store()
    assert found["store_over_float32"] <= 0.015
    assert found["store_float16_over_float32"] == pytest.approx(0.5)


def test_every_measure_that_was_written_has_a_meaning(bench, project):
    assert set(json.loads((project / "bench.json").read_text())) <= set(bench("run").MEANING)


def test_a_watched_command_tells_its_time_and_the_memory_of_all_its_processes(bench, monkeypatch):
    """A child of 200 MB that outlives its parent's interest in it is counted; the exit code is the command's."""
    watch = bench("watch")
    monkeypatch.setattr(watch, "INTERVAL", 0.05)
    child = "import time; x = bytearray(b'1') * 200_000_000; time.sleep(1)"
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]).wait(); sys.exit(3)"
    code, seconds, peak = watch.watch([sys.executable, "-c", parent])
    assert code == 3
    assert 1 < seconds < 60
    assert 200e6 < peak < 300e6
    assert watch.watch([sys.executable, "-c", ""])[2] < 100e6


def test_every_figure_is_beside_its_bar_and_a_part_that_fails_stops_no_other(bench, monkeypatch, capsys, tmp_path):
    run = bench("run")
    assert set(run.AT_MOST) | set(run.AT_LEAST) <= set(run.MEANING)

    def fails():
        raise OSError("no such program")

    parts = {
        "first": fails,
        "second": lambda: {"help_seconds": 0.7, "fedavg_round_over_fedjax": 0.5},
        "third": lambda: {"distill_small_seconds": 2.0},
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "PARTS", parts)
    monkeypatch.setattr(sys, "argv", ["run.py"])
    with pytest.raises(SystemExit) as ended:
        run.main()
    assert ended.value.code == "missed:\nfirst: failed (no such program)\nhelp_seconds: 0.7, at most 0.5"
    assert "at most 3" in capsys.readouterr().out
    assert json.loads((tmp_path / "bench.json").read_text())["distill_small_seconds"] == 2.0
    monkeypatch.setitem(parts, "third", lambda: {"distill_small_seconds": 1.0})
    for words, wanted in (([], 2.0), (["--keep"], 1.0)):
        monkeypatch.setattr(sys, "argv", ["run.py", "--only", "third", *words])
        run.main()
        kept = json.loads((tmp_path / "bench.json").read_text())
        assert (kept["distill_small_seconds"], kept["help_seconds"]) == (wanted, 0.7)
    assert set(kept["part_seconds"]) == {"second", "third"}
