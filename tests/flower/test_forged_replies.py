"""Can one site answer in another's name? Flower's own handlers and state, in this process, and the coordinator's side.

| attack | without the nonce, as before | now |
|---|---|---|
| compute the id of the message to another site, push a reply in its name | the forged reply is taken | id unknown |
"""

from types import SimpleNamespace

import jax
import pytest
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common.constant import FLWR_INTERNAL_GRPC_CONTROL_API, FLWR_INTERNAL_GRPC_FLEET_API
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.superlink.main import get_federation_manager, get_objectstore_linkstate_factories
from flwr.superlink.servicer.fleet import fleet_handlers

from coreshot.flower import nodes as nodes_module
from coreshot.flower.federation import environment
from coreshot.flower.messages import CLIENT, HEADER, REQUEST
from coreshot.flower.nodes import Nodes
from coreshot.flower.runs import WaitPolicy
from coreshot.wire.messages import Message as Content

pytestmark = pytest.mark.usefixtures("as_task")
MICROSECOND = 1e-6


@pytest.fixture
def link():
    """A SuperLink's state with a run, and two sites of it."""
    _, factory = get_objectstore_linkstate_factories(":flwr-in-memory:", get_federation_manager(is_simulation=False))
    state = factory.state()
    attacker, victim = (state.create_node("", "", name.encode(), 100, name=name) for name in ("attacker", "victim"))
    for node in (attacker, victim):
        assert state.activate_node(node, 100)
    run = state.create_run(None, None, None, {}, NOOP_FEDERATION_ID, None, None, TaskType.SERVER_APP)
    [task] = state.get_tasks(run_ids=[run])
    state.claim_task(task.task_id)
    state.activate_task(task.task_id)
    return SimpleNamespace(state=state, run=run, attacker=attacker, victim=victim)


def asked(link, study, monkeypatch, with_nonce=True):
    """What the coordinator sends to both sites, one after the other."""
    if not with_nonce:
        monkeypatch.setattr(nodes_module, "make_nonce", lambda: ConfigRecord({"nonce": b""}))
    sent = []

    def push(messages):
        for message in messages:
            message.metadata.__dict__["_run_id"] = link.run
            message.metadata.__dict__["_src_node_id"] = 1
            message.metadata.__dict__["_message_id"] = message.object_id
            sent.append(message)
            tree, session = get_object_tree(message), link.state.start_session(link.run)
            assert link.state.store_message_and_object_tree(message, tree, session)[0]
        return [message.metadata.message_id for message in messages]

    nodes = Nodes(SimpleNamespace(push_messages=push), WaitPolicy(), lambda line: None)
    names = ("attacker", "victim")
    contents = [nodes._content(jax.random.key(0), study, Content("invitation", 0, {}), name) for name in names]
    for name, content in zip(names, contents, strict=True):
        nodes._push(content, getattr(link, name), MessageType.TRAIN, 60.0, "0")
    return sent


def guess(link, mine, theirs):
    """The message to the victim, made from the attacker's own by trying out the time of sending; None: not found."""
    content = RecordDict(dict(mine.content.items()))
    header, request = dict(mine.content[HEADER]), dict(mine.content[REQUEST])
    content[HEADER], content[REQUEST] = (ConfigRecord({**part, CLIENT: "victim"}) for part in (header, request))
    made = Message(content, link.victim, MessageType.TRAIN, ttl=60.0, group_id="0")
    made.metadata.__dict__.update({"_run_id": link.run, "_src_node_id": 1, "_message_id": ""})
    num_tries = round((theirs.metadata.created_at - mine.metadata.created_at) / MICROSECOND) + 100
    for number in range(num_tries):  # some thousands; a site could try millions
        made.metadata.__dict__["_created_at"] = round(mine.metadata.created_at + number * MICROSECOND, 6)
        if made.object_id == theirs.metadata.message_id:  # at a real SuperLink: its reply is taken
            made.metadata.__dict__["_message_id"] = made.object_id
            return made
    return None


def push_as_victim(link, question):
    """A reply in the victim's name, pushed by the attacker, whose own key is in order."""
    reply = Message(RecordDict({"forged": ConfigRecord({"x": 1})}), reply_to=question)
    reply.metadata.__dict__["_message_id"] = reply.object_id
    request = PushMessagesRequest(
        node=Node(node_id=link.attacker),
        messages_list=[message_to_proto(reply)],
        message_object_trees=[get_object_tree(reply)],
    )
    fleet_handlers.push_messages(request, link.state)
    return reply.metadata.message_id


def taken_for(link, question):
    return [message.metadata for message in link.state.get_message_res({question.metadata.message_id}, link.run)]


def test_a_site_cannot_know_the_message_to_another_site(link, make_study, monkeypatch):
    mine, theirs = asked(link, make_study("classification"), monkeypatch)
    assert guess(link, mine, theirs) is None


def test_negative_control_without_the_nonce_a_forged_reply_is_taken(link, make_study, monkeypatch):
    mine, theirs = asked(link, make_study("classification"), monkeypatch, with_nonce=False)
    found = guess(link, mine, theirs)
    assert found is not None
    assert found.metadata.message_id == theirs.metadata.message_id
    forged = push_as_victim(link, found)
    [taken] = taken_for(link, theirs)
    assert (taken.message_id, taken.src_node_id) == (forged, link.victim), "Flower has not compared the sender"


def test_every_message_has_a_nonce_of_its_own(link, make_study, monkeypatch):
    first, second = asked(link, make_study("classification"), monkeypatch)
    nonces = {bytes(message.content["nonce"]["nonce"]) for message in (first, second)}
    assert len(nonces) == 2
    assert min(map(len, nonces)) == 32


def test_the_environment_opens_no_further_port(monkeypatch, tmp_path):
    """Flower's SuperLink serves Control and Fleet on ports of their own where these variables are 1."""
    for name in (FLWR_INTERNAL_GRPC_CONTROL_API, FLWR_INTERNAL_GRPC_FLEET_API):
        monkeypatch.setenv(name, "1")
        assert environment(tmp_path)[name] == "0"
