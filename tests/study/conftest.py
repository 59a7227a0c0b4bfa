"""A small study of patients, and files of two sites."""

import sys

import numpy as np
import pytest

from coreshot.cli.commands import main

STUDY = """
format = 1
name = "small"
task = "classification"

[target]
name = "ill"
classes = ["no", "yes"]
values = { no = ["0"], yes = ["1", "2"] }

[table]
missing = "indicator"

[[table.column]]
name = "age"
kind = "number"
range = [20, 100]

[[table.column]]
name = "pressure"
kind = "number"
range = [60, 240]
outside = "missing"

[[table.column]]
name = "sex"
kind = "category"
values = ["f", "m"]

[method]
name = "spectral"
max_bytes = 2_000
features = { name = "identity", dimension = 7 }
"""


def site_lines(seed, count):
    draws = np.random.default_rng(seed)
    lines = ["age,sex,pressure,ill"]
    for _ in range(count):
        age, sex, pressure = draws.integers(20, 100), "fm"[draws.integers(2)], draws.integers(90, 200)
        ill = int(draws.random() < 1 / (1 + np.exp(-(age - 60) / 10))) * (1 + draws.integers(2))
        lines.append(f"{age},{sex},{'' if draws.random() < 0.1 else pressure},{ill}")
    return lines


@pytest.fixture
def study_path(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def make_private(text, epsilon=2.0, delta=1e-5):
    """The same study with noise, and without a refusal that one record could cause."""
    text = text.replace('name = "spectral"\nmax_bytes = 2_000', 'name = "private_spectral"')
    text = text.replace("range = [20, 100]\n", 'range = [20, 100]\noutside = "clip"\n')
    text = text.replace('values = ["f", "m"]\n', 'values = ["f", "m"]\noutside = "missing"\n')
    return f"{text}\n[privacy]\nepsilon = {epsilon}\ndelta = {delta}\n"


@pytest.fixture
def private_path(tmp_path):
    path = tmp_path / "private.toml"
    path.write_text(make_private(STUDY))
    return path


@pytest.fixture
def write_site(tmp_path):
    def write(name, count=60, seed=0, change=lambda lines: lines):
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(change(site_lines(seed, count))) + "\n")
        return path

    return write


@pytest.fixture
def coreshot(tmp_path, monkeypatch, capsys):
    """In this process: what a subprocess does more, tests/e2e/test_command_line.py shows for all commands alike."""
    monkeypatch.chdir(tmp_path)

    def run(*words, code=0):
        monkeypatch.setattr(sys, "argv", ["coreshot", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        assert (ended.value.code or 0) == code, told.out + told.err
        return " ".join((told.out if code == 0 else told.err).split())

    return run


@pytest.fixture
def three_coresets(coreshot, study_path, write_site, tmp_path):
    found = []
    for seed, name in enumerate(("north", "south", "west")):
        coreshot("distill", study_path, write_site(name, seed=seed), "--out", f"{name}.coreset")
        found.append(tmp_path / f"{name}.coreset")
    return found
