"""The executor that is elsewhere: nodes of a Flower federation answer in the clients' places.

A client is known by the name under which its node's key is registered; where nodes have no keys, by the name that it gives itself when asked.
Flower says neither which node an expired message was for nor when to stop waiting, so both are kept here.
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

from coreshot.config import Count, Positive, settings
from coreshot.errors import CoreshotError
from coreshot.flower.messages import bytes_of, records_of
from coreshot.flower.work import CLIENT, PARTITION, UNABLE, WORK, Work
from coreshot.methods.protocol import OnChunk
from coreshot.runtime.executors import Answer, Reply
from coreshot.runtime.worker_main import key_words
from coreshot.study import Study
from coreshot.types import PRNGKey
from coreshot.wire.messages import Message, encode_message

SECONDS_BETWEEN_LOOKS = 0.5
GONE = "its node went away"
ABSENT = "its node did not join within {:g} s"
SILENT = "its answer did not come within {:g} s"
# Flower's error codes, by what they mean for a person. Flower's own text is left out: it may quote an exception, and that a record.
CODES = {
    1: "its app cannot be loaded; install this coreshot there",
    2: "its app raised an error (its own log says why)",
    3: SILENT,
    4: SILENT,
    5: GONE,
    7: "its node refused the app",
    8: "its app's process died",
}


@settings
class Patience:
    """How long to wait for whom."""

    join_seconds: Positive = 60.0  # for all clients to join, once
    answer_seconds: Positive = 3600.0  # for the answers to one message
    work_seconds: Positive = 3500.0  # after which a client stops its own work
    quorum: Count = 1  # fewer answers than this are an error


@dataclass(frozen=True)
class Simulated:
    """Of a simulation: nodes are numbers, and clients' data are what the preset's task makes."""

    names: tuple[str, ...]
    preset: str  # JSON
    seed: int


@dataclass
class Nodes:
    grid: Grid
    patience: Patience
    say: Callable[[str], None]
    simulated: Simulated | None = None

    handles_all_rounds: ClassVar[bool] = True

    _clients: dict[int, str] = field(default_factory=dict)  # by node
    _greetings: dict[str, int] = field(default_factory=dict)  # nodes that were asked for their names, by message
    _greeted: set[int] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)  # clients that were ever there
    _failed: dict[tuple[str, int, str], str] = field(
        default_factory=dict
    )  # those are not asked the same again in this run
    _join_until: float | None = None

    @property
    def quorum(self) -> int:
        return self.patience.quorum

    def answers(
        self,
        key: PRNGKey,
        study: Study,
        clients: Mapping[str, Any],
        inbox: Sequence[Message],
        on_chunk: OnChunk,
    ) -> Iterator[tuple[str, Answer]]:
        round = inbox[-1].round
        known = {
            name: self._failed[study.hash, round, name] for name in clients if (study.hash, round, name) in self._failed
        }
        yield from known.items()
        absent = ABSENT.format(self.patience.join_seconds)
        waiting = {name: GONE if name in self._seen else absent for name in clients if name not in known}
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
        """Each client once, as soon as it is there; `waiting` says of each why it has not answered yet. The time to join is given only once."""
        seconds, now = self.patience.answer_seconds, time.monotonic()
        self._join_until = self._join_until or now + self.patience.join_seconds
        until = max(self._join_until, now + seconds)
        asked: dict[str, str] = {}  # clients by message
        began: dict[str, float] = {}
        while waiting and time.monotonic() < until:
            self._meet()
            new = {name: node for node, name in self._clients.items() if name in waiting and name not in asked.values()}
            for name, node in new.items():
                content = self._content(key, study, message, name)
                asked[self._push(content, node, MessageType.TRAIN, seconds, str(message.round))] = name
                waiting[name], began[name] = SILENT.format(seconds), time.monotonic()
                until = max(self._join_until, began[name] + seconds)
            for reply in self._pull(asked):
                name = asked.pop(reply.metadata.reply_to_message_id)
                if waiting.pop(name, None) is not None:
                    yield name, _answer_in(reply, time.monotonic() - began[name], seconds)
            if not asked and not self._greetings and time.monotonic() > self._join_until:
                break  # those who never joined had their time
            time.sleep(SECONDS_BETWEEN_LOOKS)
        yield from list(waiting.items())

    def _content(self, key: PRNGKey, study: Study, message: Message, name: str) -> RecordDict:
        content = records_of(encode_message(message, study_hash=study.hash, client=name))
        task = (self.simulated.preset, self.simulated.seed) if self.simulated else ()
        content[WORK] = Work(
            json.dumps(study.to_dict()), key_words(key), self.patience.work_seconds, name, *task
        ).record()
        return content

    def _meet(self) -> None:
        """Learn who the nodes are that have come, and forget those that went."""
        nodes = list(self.grid.get_nodes())
        self._greeted &= {node.node_id for node in nodes}
        self._clients = {node_id: name for node_id, name in self._clients.items() if node_id in self._greeted}
        for node in nodes:
            if node.node_id in self._greeted:
                continue
            self._greeted.add(node.node_id)
            if node.name and self.simulated is None:
                self._admit(node.node_id, node.name)
            else:
                message_id = self._push(
                    RecordDict(), node.node_id, MessageType.QUERY, self.patience.join_seconds, "introduction"
                )
                self._greetings[message_id] = node.node_id
        for reply in self._pull(self._greetings):
            node_id = self._greetings.pop(reply.metadata.reply_to_message_id)
            name = None if reply.has_error() else self._name_in(reply.content)
            if name is None:
                why = _reason(reply, self.patience.join_seconds) if reply.has_error() else "its answer cannot be read"
                self.say(f"node {node_id}: does not say who it is: {why}")
            elif node_id in self._greeted:
                self._admit(node_id, name)

    def _admit(self, node_id: int, name: str) -> None:
        for other in [known for known, client in self._clients.items() if client == name]:
            del self._clients[other]  # a site that was started again; what its old node still answers counts as well
        self._clients[node_id] = name
        self._seen.add(name)
        self.say(f"{name}: joined")

    def _name_in(self, content: RecordDict) -> str | None:
        """None for what a stranger might have put there instead."""
        fields: Any = content.config_records.get(CLIENT, {})
        if self.simulated is not None and PARTITION in fields:
            return self.simulated.names[fields[PARTITION]]
        return str(fields[CLIENT])[:64] if CLIENT in fields else None

    def _push(self, content: RecordDict, node: int, kind: str, seconds: float, group: str) -> str:
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


def _answer_in(reply: FlowerMessage, seconds: float, limit: float) -> Answer:
    if reply.has_error():
        return _reason(reply, limit)
    try:
        return Reply(bytes_of(reply.content), seconds)
    except CoreshotError as error:
        return f"its reply {error}"


def _reason(reply: FlowerMessage, limit: float) -> str:
    if reply.error.code == UNABLE:
        return str(reply.error.reason)[:200]
    return CODES.get(reply.error.code, f"Flower's error {reply.error.code}").format(limit)
