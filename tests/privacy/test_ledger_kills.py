"""SIGKILL at 50 random moments of a private `distill`: the ledger never says less than what left.

The kills come from another process (kill_distill.py), so that they also meet SQLite's own code; a third or so do.
"""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

STUDY = """
format = 1
name = "kills"
task = "classification"
target = { name = "ill", classes = ["no", "yes"] }

[[table.column]]
name = "age"
kind = "number"
range = [20, 100]
outside = "clip"

[method]
name = "private_spectral"
features = { name = "identity", dimension = 2 }
privacy = { epsilon = 1.0, delta = 1e-5 }
"""


@pytest.fixture
def kill(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "site.csv").write_text("age,ill\n" + "30,no\n70,yes\n" * 5)

    def run(num_kills, *words):
        program = Path(__file__).with_name("kill_distill.py")
        command = [sys.executable, str(program), str(tmp_path), "0", str(num_kills), *words]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr[-2000:]
        return [_site(tmp_path, number) for number in range(len(list(tmp_path.glob("ledger-*"))))]

    return run


def _site(folder, number):
    """What has left a site, and what its ledger has kept."""
    with sqlite3.connect(folder / f"ledger-{number}" / "ledger.sqlite") as database:
        kept = {bytes(message) for (message,) in database.execute("SELECT message FROM answers")}
    return {path.read_bytes() for path in (folder / "left").glob(f"{number}-*")}, kept


def test_the_ledger_never_says_less_than_what_left(kill, tmp_path):
    sites = kill(50)
    assert len(sites) == 50
    assert all(left == kept and len(kept) == 1 for left, kept in sites)
    num_left = len(list((tmp_path / "left").glob("*-first")))
    assert 0 < num_left < 50, "kills before and after the file was there"
    assert int((tmp_path / "journals").read_text()) > 0, "kills in a transaction of SQLite"


def test_negative_control_a_ledger_that_is_written_late_is_found_out(kill):
    sites = kill(50, "late")
    assert any(len(left) > len(kept) for left, kept in sites)
