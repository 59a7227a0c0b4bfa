"""Executor that asks the nodes of a Flower federation for the clients' replies.

A client is identified by the name under which its node's key is registered; where nodes have no keys, by the name that
the node gives when it is asked. Flower reports neither which node an expired message was for nor when to stop waiting,
so this module keeps both.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from flwr.app import Message as FlowerMessage
from flwr.app import MessageType, RecordDict
from flwr.serverapp import Grid

from coreshot.errors import CoreshotError, visible
from coreshot.flower.messages import (
    CLIENT,
    EXPLAINED,
    NONCE,
    PARTITION,
    REQUEST,
    WorkRequest,
    decode_records,
    encode_records,
    make_nonce,
)
from coreshot.flower.runs import WaitPolicy
from coreshot.methods.protocol import OnChunk
from coreshot.runtime.executors import Answer, Reply
from coreshot.runtime.worker_main import key_words
from coreshot.study import Study
from coreshot.types import PRNGKey
from coreshot.wire.messages import Message, encode_message

SECONDS_BETWEEN_POLLS = 0.5
GONE = "its node went away"
ABSENT = "its node did not join within {:g} s"
SILENT = "its answer did not come within {:g} s"
# What Flower's error codes mean. Flower's own text is left out: it may quote an exception, and that a record.
REASONS = {
    1: "its app cannot be loaded; install this coreshot there",
    2: "its app raised an error (its own log says why)",
    3: SILENT,
    4: SILENT,
    5: GONE,
    7: "its node refused the app",
    8: "its app's process died",
}


@dataclass(frozen=True)
class SimulatedTask:
    """In a simulation nodes are numbers, and the preset's task makes the clients' data."""

    names: tuple[str, ...]
    preset: str  # JSON
    seed: int


@dataclass
class Nodes:
    grid: Grid
    wait: WaitPolicy
    say: Callable[[str], None]
    simulated: SimulatedTask | None = None

    handles_all_rounds: ClassVar[bool] = True

    _clients: dict[int, str] = field(default_factory=dict)  # by node
    _queries: dict[str, int] = field(default_factory=dict)  # nodes that were asked for their names, by message
    _known: set[int] = field(default_factory=set)  # nodes that are registered or were asked for their names
    _joined: set[str] = field(default_factory=set)  # clients that have joined at any time
    _failed: dict[tuple[str, int, str], str] = field(default_factory=dict)  # not asked again in this run
    _join_until: float | None = None

    @property
    def quorum(self) -> int:
        return self.wait.quorum

    def answers(
        self,
        key: PRNGKey,
        study: Study,
        clients: Mapping[str, Any],
        inbox: Sequence[Message],
        on_chunk: OnChunk,
    ) -> Iterator[tuple[str, Answer]]:
        round = inbox[-1].round
        failed = {
            name: self._failed[study.hash, round, name] for name in clients if (study.hash, round, name) in self._failed
        }
        yield from failed.items()
        absent = ABSENT.format(self.wait.join_seconds)
        waiting = {name: GONE if name in self._joined else absent for name in clients if name not in failed}
        for name, answer in self._exchange(key, study, inbox[-1], waiting):
            if isinstance(answer, str):
                self._failed[study.hash, round, name] = answer
                self.say(f"{name}: {answer}")
            else:
                self.say(f"{name}: answered round {round} after {answer.seconds:.0f} s")
            yield name, answer

    def _exchange(
        self, key: PRNGKey, study: Study, message: Message, waiting: dict[str, str]
    ) -> Iterator[tuple[str, Answer]]:
        """Ask each client once, as soon as it has joined, and yield its answer.

        `waiting` holds for each client the reason why it has not answered yet. The time to join counts once per run.
        """
        seconds, now = self.wait.answer_seconds, time.monotonic()
        self._join_until = self._join_until or now + self.wait.join_seconds
        until = max(self._join_until, now + seconds)
        asked: dict[str, str] = {}  # clients by message
        began: dict[str, float] = {}
        while waiting and time.monotonic() < until:
            self._identify_nodes()
            new = {name: node for node, name in self._clients.items() if name in waiting and name not in asked.values()}
            for name, node in new.items():
                content = self._content(key, study, message, name)
                asked[self._push(content, node, MessageType.TRAIN, seconds, str(message.round))] = name
                waiting[name], began[name] = SILENT.format(seconds), time.monotonic()
                until = max(self._join_until, began[name] + seconds)
            for reply in self._pull(asked):
                name = asked.pop(reply.metadata.reply_to_message_id)
                if waiting.pop(name, None) is not None:
                    yield name, _read_answer(reply, time.monotonic() - began[name], seconds)
            if not asked and not self._queries and time.monotonic() > self._join_until:
                break  # the time to join is over, and nobody else is asked
            time.sleep(SECONDS_BETWEEN_POLLS)
        yield from list(waiting.items())

    def _content(self, key: PRNGKey, study: Study, message: Message, name: str) -> RecordDict:
        content = encode_records(encode_message(message, study_hash=study.hash, client=name))
        task = (self.simulated.preset, self.simulated.seed) if self.simulated else ()
        request = WorkRequest(json.dumps(study.to_dict()), key_words(key), self.wait.work_seconds, name, *task)
        content[REQUEST] = request.record()
        return content

    def _identify_nodes(self) -> None:
        """Find the names of new nodes, and remove nodes that have left."""
        nodes = list(self.grid.get_nodes())
        self._known &= {node.node_id for node in nodes}
        self._clients = {node_id: name for node_id, name in self._clients.items() if node_id in self._known}
        for node in nodes:
            if node.node_id in self._known:
                continue
            self._known.add(node.node_id)
            if node.name and self.simulated is None:
                self._admit(node.node_id, node.name)
            else:
                query = self._push(RecordDict(), node.node_id, MessageType.QUERY, self.wait.join_seconds, "name")
                self._queries[query] = node.node_id
        for reply in self._pull(self._queries):
            node_id = self._queries.pop(reply.metadata.reply_to_message_id)
            name = None if reply.has_error() else self._read_name(reply.content)
            if name is None:
                why = _read_reason(reply, self.wait.join_seconds) if reply.has_error() else "its answer cannot be read"
                self.say(f"node {node_id}: does not say who it is: {why}")
            elif node_id in self._known:
                self._admit(node_id, name)

    def _admit(self, node_id: int, name: str) -> None:
        for other in [known for known, client in self._clients.items() if client == name]:
            del self._clients[other]  # the site was started again; an answer of its old node is still accepted
        self._clients[node_id] = name
        self._joined.add(name)
        self.say(f"{name}: joined")

    def _read_name(self, content: RecordDict) -> str | None:
        """The name in a node's answer; None if the answer holds something else."""
        fields: Any = content.config_records.get(CLIENT, {})
        if self.simulated is not None and PARTITION in fields:
            return self.simulated.names[fields[PARTITION]]
        return visible(str(fields[CLIENT])[:64]) if CLIENT in fields else None

    def _push(self, content: RecordDict, node: int, kind: str, seconds: float, group: str) -> str:
        content[NONCE] = make_nonce()
        taken = list(
            self.grid.push_messages([FlowerMessage(content, node, kind, ttl=max(1.0, seconds), group_id=group)])
        )
        if not taken or not taken[0]:
            raise CoreshotError(
                f"node {node}: the SuperLink has not taken a message for it (too large?); see the SuperLink's log."
            )
        return str(taken[0])

    def _pull(self, asked: Mapping[str, Any]) -> list[FlowerMessage]:
        return (
            [reply for reply in self.grid.pull_messages(list(asked)) if reply.metadata.reply_to_message_id in asked]
            if asked
            else []
        )


def _read_answer(reply: FlowerMessage, seconds: float, limit: float) -> Answer:
    if reply.has_error():
        return _read_reason(reply, limit)
    try:
        return Reply(decode_records(reply.content), seconds)
    except CoreshotError as error:
        return f"its reply {error}"


def _read_reason(reply: FlowerMessage, limit: float) -> str:
    if reply.error.code == EXPLAINED:
        return visible(str(reply.error.reason)[:200])
    return REASONS.get(reply.error.code, f"Flower's error {reply.error.code}").format(limit)
