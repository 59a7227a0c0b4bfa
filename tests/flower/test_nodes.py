"""The coordinator's side with simulated nodes: which are asked, how long it waits, and what it reports."""

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import safetensors.numpy
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

from coreshot.api import distill
from coreshot.data.files import read_records
from coreshot.errors import CoreshotError
from coreshot.fitted.folder import open_model, write_model
from coreshot.flower import nodes as nodes_module
from coreshot.flower.messages import CLIENT, EXPLAINED, WorkRequest, decode_records, encode_records
from coreshot.flower.nodes import Nodes
from coreshot.flower.runs import RunRequest, WaitPolicy
from coreshot.flower.study_run import fit_study
from coreshot.runtime.simulate import simulate
from coreshot.runtime.worker_main import answer_job
from coreshot.runtime.worker_process import read_frame
from coreshot.study.file import read_study_file
from coreshot.wire.ledger import Ledger

NOISE = {"name": "noise", "num_points": 4, "init_scale": 0.5}


pytestmark = pytest.mark.usefixtures("as_task")


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr(nodes_module, "SECONDS_BETWEEN_POLLS", 0.001)


@pytest.fixture(scope="module")
def study(make_study):
    return make_study("classification", NOISE)


@dataclass
class Node:
    """`claims` is the name that it gives itself, `name` the registered one; what it does with work, `fault` says."""

    claims: str
    name: str = ""
    fault: str = ""
    after: int = 0  # looks of the coordinator before it joins


@dataclass
class PretendedGrid:
    nodes: dict[int, Node]
    clients: dict
    asked: list[str] = field(default_factory=list)
    waiting: dict[str, Message] = field(default_factory=dict)
    num_looks: int = 0

    def get_nodes(self):
        self.num_looks += 1
        return [
            SimpleNamespace(node_id=key, name=node.name)
            for key, node in self.nodes.items()
            if self.num_looks > node.after
        ]

    def push_messages(self, messages):
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"message {len(self.asked)} of {message.metadata.message_type}"
            message.metadata.__dict__["_src_node_id"] = 1
            self.asked.append(message.metadata.message_id)
            self.waiting[message.metadata.message_id] = message
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, ids):
        found = [(key, self.answer(self.waiting[key])) for key in reversed(ids) if key in self.waiting]
        for key, reply in found:
            if reply is not None:
                del self.waiting[key]
        return [reply for _, reply in found if reply is not None]

    def answer(self, message):
        node = self.nodes[message.metadata.dst_node_id]
        if message.metadata.message_type == "query" and node.fault == "nameless":
            return Message(RecordDict({"other": ConfigRecord({})}), reply_to=message)
        if message.metadata.message_type == "query":
            return Message(RecordDict({CLIENT: ConfigRecord({CLIENT: node.claims})}), reply_to=message)
        if node.fault == "silent":
            return None
        if node.fault.isdigit():
            return Message(Error(int(node.fault), "a text of Flower's that quotes record 1234"), reply_to=message)
        if node.fault == "strange":
            return Message(
                RecordDict({"arrays": ArrayRecord({"x": Array("float32", (1,), "numpy.ndarray", b"cos\nsystem\n")})}),
                reply_to=message,
            )
        return Message(encode_records(self.reply(message.content, node)), reply_to=message)

    def reply(self, content, node):
        """By the worker's own code, with the points or the file of the client that it says it is."""
        work, points, pipe = WorkRequest.read(content), self.clients[node.claims], io.BytesIO()
        head, parts = {"study": work.study_values, "client": node.claims, "key": work.key}, [decode_records(content)]
        if isinstance(points, Path):
            head["data"] = str(points)
        else:
            parts.append(
                safetensors.numpy.save({name: np.asarray(getattr(points, name)) for name in ("x", "y", "weight")})
            )
        answer_job(head, parts, pipe)
        pipe.seek(0)
        while (frame := read_frame(pipe))[0]["kind"] != "reply":
            pass
        return frame[1][0]


@pytest.fixture
def federate(study, sample_points):
    def run(nodes, num_clients=3, replies=None, **wait):
        clients = {f"client-{index}": sample_points("classification", index, 6 + index) for index in range(num_clients)}
        local: dict = {}  # first: it compiles, and those who are waited for below have little time
        simulate(jax.random.key(0), study, clients, Ledger(), replies=local)
        grid, said, notes = PretendedGrid(dict(enumerate(nodes)), clients), [], []
        executor = Nodes(grid, WaitPolicy(**{"join_seconds": 0.1, "answer_seconds": 0.3, **wait}), said.append)
        replies, ledger = {} if replies is None else replies, Ledger()
        simulate(
            jax.random.key(0),
            study,
            clients,
            ledger,
            replies=replies,
            executor=executor,
            on_exchange=lambda seen: notes.extend(seen.notes),
        )
        assert all(replies[key].data == local[key].data for key in replies)
        return SimpleNamespace(
            clients=sorted(name for _, name in replies), notes=notes, said=said, ledger=ledger, grid=grid
        )

    return run


def test_answers_are_the_local_runners_in_whatever_order_they_come(federate):
    found = federate([Node("client-2"), Node("client-0"), Node("client-1")])
    assert found.clients == ["client-0", "client-1", "client-2"]
    assert [entry.client for entry in found.ledger.entries if entry.direction == "up"] == [
        "client-0",
        "client-1",
        "client-2",
    ]
    assert found.notes == []


def test_a_registered_name_needs_no_introduction_and_is_believed_before_the_nodes_own(federate):
    """The node of client-1 says that it is client-2: what it sends in that name is refused."""
    found = federate([Node("client-0", name="client-0"), Node("client-2", name="client-1")], num_clients=3)
    assert not any("query" in message for message in found.grid.asked)
    assert found.clients == ["client-0"]
    assert (
        "client-1: reply refused in round 0: client client-2, round 0, coreset: came in the name of client-1"
        in found.notes[0]
    )
    assert "client-2: its node did not join within 0.1 s" in found.notes[1]


def test_one_that_joins_while_others_work_is_asked_as_well(federate):
    found = federate(
        [Node("client-0", fault="silent"), Node("client-1"), Node("client-2", after=5)],
        join_seconds=0.01,
        answer_seconds=4,
    )
    assert found.clients == ["client-1", "client-2"]
    assert "client-0: its answer did not come within 4 s" in found.notes[0]


def test_one_that_joins_in_time_is_asked_even_if_the_others_time_to_answer_is_over(federate):
    found = federate(
        [Node("client-0"), Node("client-1", after=300)], num_clients=2, join_seconds=20, answer_seconds=0.1
    )
    assert found.clients == ["client-0", "client-1"]


def test_one_that_does_not_say_who_it_is_is_left_out(federate):
    found = federate([Node("client-0"), Node("client-1", fault="nameless")], num_clients=2)
    assert found.clients == ["client-0"]
    assert "node 1: does not say who it is: its answer cannot be read" in found.said


def test_nobody_waits_for_those_who_never_joined_once_the_others_have_answered(federate):
    found = federate([Node("client-0")], answer_seconds=60)
    assert found.clients == ["client-0"]
    assert [note.split(":")[0] for note in found.notes] == ["client-1", "client-2"]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("1", "its app cannot be loaded; install this coreshot there"),
        ("2", "its app raised an error (its own log says why)"),
        ("3", "its answer did not come within 0.3 s"),
        ("5", "its node went away"),
        ("8", "its app's process died"),
        ("77", "Flower's error 77"),
        ("strange", "its reply is not a coreshot message (KeyError); use the same coreshot on both sides"),
    ],
)
def test_flowers_errors_are_booked_with_a_reason_and_without_its_text(federate, fault, reason):
    found = federate([Node("client-0"), Node("client-1", fault=fault)], num_clients=2)
    assert found.notes == [f"client-1: reply refused in round 0: client client-1: {reason}."]
    assert not any("1234" in line for line in [*found.notes, *found.said])
    assert [(entry.client, entry.kind) for entry in found.ledger.entries if entry.direction == "up"] == [
        ("client-0", "coreset"),
        ("client-1", "refused"),
    ]


def test_a_reason_that_a_site_gives_is_passed_on(federate):
    found = federate([Node("client-0"), Node("client-1", fault=str(EXPLAINED))], num_clients=2)
    assert (
        "client-1: a text of Flower's that quotes record 1234" in found.notes[0]
    )  # in the product, of the sentences of client_app alone


def test_a_site_that_was_started_again_takes_the_place_of_its_old_node(federate):
    found = federate([Node("client-0", name="client-0", fault="5"), Node("client-0", name="client-0")], num_clients=1)
    assert found.clients == ["client-0"]


def test_fewer_than_the_quorum_are_an_error_that_names_them_and_keeps_what_came(federate):
    replies = {}
    with pytest.raises(
        CoreshotError,
        match=r"1 of 3 replies can be used, and the quorum is 2; .*"
        r"client-1: its node went away.*client-2: its node did not",
    ):
        federate([Node("client-0"), Node("client-1", fault="5")], replies=replies, quorum=2)
    assert list(replies) == [(0, "client-0")]
    found = federate([Node("client-0", fault="8"), Node("client-1")], replies=replies, quorum=2)
    assert found.clients == ["client-0", "client-1"]  # client-0 was not asked again, or it would have failed


def test_nobody_at_all_is_an_error_too(federate):
    with pytest.raises(
        CoreshotError, match=r"0 of 3 replies can be used, and the quorum is 1; .*client-2: its node did not join"
    ):
        federate([])


def test_work_says_what_it_was_told(study):
    work = WorkRequest(json.dumps(study.to_dict()), [1, 2], 3.0, "client-0")
    assert WorkRequest.read(RecordDict({"request": work.record()})) == work
    assert work.study_values == study.to_dict()


STUDY = """
format = 1
name = "small"
task = "classification"

[target]
name = "ill"
classes = ["no", "yes"]

[table]
missing = "refuse"

[[table.column]]
name = "age"
kind = "number"
range = [20, 100]

[method]
name = "spectral"
max_bytes = 2_000
features = { name = "identity", dimension = 1 }
"""


def test_a_study_over_flower_makes_the_folder_that_files_would_have_made(tmp_path):
    """Two of three sites answer; the model is that of `coreshot fit` with the files of `coreshot distill`."""
    lines = {
        "site-1": [(30, "no"), (80, "yes"), (40, "no")],
        "site-2": [(90, "yes"), (25, "no")],
        "site-3": [(200, "no"), (30, "perhaps")],
    }
    paths = {name: tmp_path / f"{name}.csv" for name in lines}
    for name, path in paths.items():
        path.write_text("age,ill\n" + "".join(f"{age},{ill}\n" for age, ill in lines[name]))
    study_path = tmp_path / "study.toml"
    study_path.write_text(STUDY)
    grid = PretendedGrid({0: Node("site-2"), 1: Node("site-1"), 2: Node("site-3", fault=str(EXPLAINED))}, paths)
    request = RunRequest(
        out=str(tmp_path / "out"),
        wait=WaitPolicy(join_seconds=0.1, answer_seconds=60),
        study=STUDY,
        clients=tuple(paths),
    )
    request.write(tmp_path / "request.json")
    assert RunRequest.read(tmp_path / "request.json") == request
    fit_study(request, Nodes(grid, request.wait, lambda line: None))

    agreed = read_study_file(study_path)
    study = agreed.study
    records = {name: read_records(paths[name], study.inputs, study.target) for name in ("site-1", "site-2")}
    files = {name: distill(study, one.x, one.y, client=name) for name, one in records.items()}
    write_model(tmp_path / "by-files", agreed, files, None, "mass", 0)
    one, two = open_model(tmp_path / "out" / "model"), open_model(tmp_path / "by-files")
    assert one.coresets() == two.coresets() == files
    assert {path.name for path in one.path.rglob("*")} == {
        path.name for path in two.path.rglob("*")
    }  # the posterior's name is its hash
    [note] = json.loads((tmp_path / "out" / "notes.json").read_text())
    assert note.startswith("site-3: reply refused in round 0")
