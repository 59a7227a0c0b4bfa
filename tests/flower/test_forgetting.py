"""Forgetting lasts: a client's message leaves the results and the SuperLink's database, and later runs leave it out."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from test_nodes import STUDY, Node, PretendedGrid

from coreshot.errors import CoreshotError
from coreshot.fitted.folder import open_model
from coreshot.flower.federation import Federation
from coreshot.flower.forgetting import TOMBSTONES, forget_in_run, forgotten_clients, unforget
from coreshot.flower.nodes import Nodes
from coreshot.flower.runs import RunRequest, WaitPolicy
from coreshot.flower.study_run import fit_study
from coreshot.study.file import read_study_file
from coreshot.wire.messages import unpack

RECORDS = {"site-1": "30,no\n80,yes\n40,no\n", "site-2": "90,yes\n25,no\n", "site-1.b": "33,no\n77,yes\n"}


@pytest.fixture
def study(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    for name, lines in RECORDS.items():
        (tmp_path / f"{name}.csv").write_text("age,ill\n" + lines)
    return read_study_file(tmp_path / "study.toml").study


@pytest.fixture
def run_study(tmp_path, study, as_task):
    """A run with pretended nodes; returns the clients that were asked."""

    def run(out: Path, federation: Path) -> list[str]:
        names = list(RECORDS)
        grid = PretendedGrid(
            {index: Node(name) for index, name in enumerate(names)},
            {name: tmp_path / f"{name}.csv" for name in names},
        )
        forgotten = forgotten_clients((out, federation), study.hash)
        wait = WaitPolicy(join_seconds=1, answer_seconds=60)
        asked: list[str] = []
        reply = grid.reply
        grid.reply = lambda content, node: (asked.append(node.claims), reply(content, node))[1]
        request = RunRequest(out=str(out), wait=wait, study=STUDY, clients=tuple(names), forgotten=forgotten)
        fit_study(request, Nodes(grid, wait, lambda line: None))
        (out / "flower.json").write_text(json.dumps({"federation": str(federation)}))
        return sorted(asked)

    return run


def test_a_forgotten_client_stays_away_until_somebody_says_otherwise(call, tmp_path, study, run_study):
    out, federation = tmp_path / "out", tmp_path / "federation"
    federation.mkdir()
    (federation / "federation.json").write_text(json.dumps({"address": "127.0.0.1:1", "processes": []}))
    assert run_study(out, federation) == sorted(RECORDS)
    assert run_study(out, federation) == []  # kept, and not asked again
    code, output, _ = call("forget", out / "model", "--client", "site-1")
    assert code == 0
    said = " ".join(output.split())
    assert "later runs of this study leave it out" in said
    assert "copies may remain: at the site itself, in backups" in said
    stored = {path.name for path in (out / "messages").rglob("*") if path.is_file()}
    assert stored == {f"{name}.{kind}" for name in ("site-2", "site-1.b") for kind in ("json", "safetensors")}

    assert run_study(out, federation) == []
    assert open_model(out / "model").clients == ("site-1.b", "site-2")
    [note] = json.loads((out / "notes.json").read_text())
    assert note.startswith("site-1: was forgotten on 2")
    # Another folder of results in the same federation, too.
    assert run_study(tmp_path / "other", federation) == ["site-1.b", "site-2"]

    with pytest.raises(CoreshotError, match=r"--unforget site-2: it was not forgotten .*\(forgotten: site-1\)"):
        unforget((out, federation), study.hash, ["site-2"])
    unforget((out, federation), study.hash, ["site-1"])
    assert run_study(out, federation) == ["site-1"]
    assert open_model(out / "model").clients == ("site-1", "site-1.b", "site-2")


def test_negative_control_without_its_tombstone_the_client_is_asked_again(call, tmp_path, run_study):
    out, federation = tmp_path / "out", tmp_path / "nowhere"
    run_study(out, federation)
    code, output, _ = call("forget", out / "model", "--client", "site-1")
    assert code == 0
    assert "superlink/link.db of the federation) is not here" in " ".join(output.split())
    (out / TOMBSTONES).unlink()
    assert run_study(out, federation) == ["site-1"]


def test_of_a_model_made_from_files_it_says_what_may_be_left(tmp_path, study):
    [line] = forget_in_run(tmp_path, study.hash, "site-1")
    assert line == "copies may remain: the file that site-1 has sent, at the site itself, and in backups"
    assert not (tmp_path / TOMBSTONES).exists()


def test_every_site_forgotten_is_one_sentence(tmp_path, study, run_study):
    (tmp_path / TOMBSTONES).write_text(json.dumps({study.hash: dict.fromkeys(RECORDS, "2026-01-01")}))
    with pytest.raises(CoreshotError, match="every site of this run was forgotten"):
        run_study(tmp_path / "out", tmp_path)


def test_unforgetting_is_for_studies(call):
    code, _, errors = call("flower", "run", "moons_quick", "--unforget", "site-1")
    assert code == 2
    assert "only clients of a study can be forgotten" in errors


def test_no_byte_of_its_coreset_is_left_with_the_coordinator(federation, coreshot, tmp_path, study):
    """With a real SuperLink, which is running: its database keeps what it has deleted, in free pages and in its log."""
    for name in ("site-1", "site-2"):
        federation.start(name, tmp_path / f"{name}.csv")
    options = ["--clients", "site-1,site-2", "--quorum", 2]
    found = coreshot(*federation.run_command(tmp_path / "study.toml", tmp_path / "out", *options))
    assert found.returncode == 0, found.stderr
    [message] = (tmp_path / "out" / "messages").rglob("site-1.safetensors")
    _, arrays = unpack(message.read_bytes())
    needle = max((array.tobytes() for array in arrays.values()), key=len)[:64]
    coordinators = [tmp_path / "out", federation.folder / "federation"]

    def holders() -> set[str]:
        files = [path for folder in coordinators for path in folder.rglob("*") if path.is_file()]
        found = [path for path in files if needle in path.read_bytes()]
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in found), "what holds it is for its owner alone"
        return {path.name.removesuffix("-wal") for path in found}

    assert holders() == {"site-1.coreset", "site-1.safetensors", "link.db"}
    found = coreshot("forget", tmp_path / "out" / "model", "--client", "site-1")
    assert found.returncode == 0, found.stderr
    assert "the SuperLink's copy is deleted" in found.stdout
    assert holders() == set()
    with closing(
        sqlite3.connect(federation.folder / "federation" / "superlink" / "link.db", isolation_level=None)
    ) as link:
        link.execute("UPDATE task SET finished_at = NULL")  # as in a run that goes on
    with pytest.raises(CoreshotError, match="a run is going on"):
        forget_in_run(tmp_path / "out", study.hash, "site-2")
    assert list((tmp_path / "out" / "messages").rglob("site-2.safetensors"))


def test_the_command_reads_tombstones_and_takes_them_away(call, tmp_path, study, monkeypatch):
    requests: list[RunRequest] = []

    def submit(federation, request, say):
        requests.append(request)
        raise CoreshotError("not today")

    monkeypatch.setattr("coreshot.flower.runs.submit", submit)
    Federation(tmp_path / "federation", "127.0.0.1:1", "127.0.0.1:2").save()
    day = {study.hash: {"site-1": "2026-01-01"}}
    (tmp_path / "federation" / TOMBSTONES).write_text(json.dumps(day))
    command = ["flower", "run", tmp_path / "study.toml", "--clients", "site-1,site-2", "--out", tmp_path / "out"]
    command += ["--federation", tmp_path / "federation"]
    for extra in ([], ["--unforget", "site-1"], []):
        assert call(*command, *extra)[0] == 2
    assert [request.forgotten for request in requests] == [{"site-1": "2026-01-01"}, {}, {}]
    code, _, errors = call(*command, "--unforget", "site-1")
    assert code == 2
    assert "it was not forgotten in this study (forgotten: nobody)" in " ".join(errors.split())
