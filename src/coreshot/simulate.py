"""The only loop: drive a method over clients. Every message goes through bytes and is booked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from coreshot.errors import CoreshotError
from coreshot.keys import named_key
from coreshot.methods import OneShot
from coreshot.study import Study
from coreshot.types import Points, PRNGKey
from coreshot.wire import Ledger, decode_message, encode_message


@dataclass(frozen=True)
class Reply:
    """A client's answer as it crossed the wire, and what the simulation knows about how it was made."""

    data: bytes
    seconds: float
    notes: list[str] = field(default_factory=list)


def simulate(
    key: PRNGKey,
    study: Study,
    method: OneShot,
    clients: Mapping[str, Points],
    ledger: Ledger,
    replies: MutableMapping[tuple[int, str], Reply] | None = None,
    on_chunk: Callable[[int], None] = lambda clients: None,
) -> Any:
    """The method's final state. Answers that `replies` already holds are not asked for again; new ones are put there."""
    if not clients:
        raise CoreshotError("simulation: there are no clients; give at least one.")
    replies = {} if replies is None else replies
    model = study.model
    state = method.init(named_key(key, "init"), model)
    while (message := method.send(state)) is not None:
        for name in clients:
            ledger.book("down", name, message, encode_message(message, study_hash=study.hash, client=name))
        missing = {name: points for name, points in clients.items() if (message.round, name) not in replies}
        if missing:
            began = time.perf_counter()
            answers = method.reply(named_key(key, "clients"), model, missing, message, study.shared_key, on_chunk)
            seconds = (time.perf_counter() - began) / len(missing)
            for name, (answer, notes) in answers.items():
                replies[message.round, name] = Reply(encode_message(answer, study_hash=study.hash, client=name), seconds, notes)
        arrived = {}
        for name in clients:
            data = replies[message.round, name].data
            arrived[name] = decode_message(data, study_hash=study.hash, client=name)
            ledger.book("up", name, arrived[name], data)
        state = method.receive(named_key(key, "server"), model, state, arrived)
    return state
