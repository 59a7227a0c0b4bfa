"""The only loop: drive a method over clients. Every message, both ways, goes through bytes and is booked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from coreshot.errors import CoreshotError
from coreshot.keys import named_key
from coreshot.methods.protocol import Method, State
from coreshot.study import Study
from coreshot.types import Message, Points, PRNGKey
from coreshot.wire import Ledger, decode_message, encode_message


@dataclass(frozen=True)
class Reply:
    """A client's answer as it crossed the wire, and what the simulation knows about how it was made."""

    data: bytes
    seconds: float
    notes: list[str] = field(default_factory=list)


Replies = MutableMapping[tuple[int, str], Reply]


@dataclass(frozen=True)
class Exchange:
    """What an observer sees after each exchange: the new state, the seconds that clients took, and whose replies were refused and why."""

    state: State
    round: int
    seconds: float
    refused: dict[str, str]

    @property
    def notes(self) -> list[str]:
        return [f"{client}: reply refused in round {self.round}: {reason}" for client, reason in self.refused.items()]


def simulate(
    key: PRNGKey,
    study: Study,
    method: Method,
    clients: Mapping[str, Points],
    ledger: Ledger,
    *,
    state: State = None,
    replies: Replies | None = None,
    on_chunk: Callable[[int], None] = lambda clients: None,
    on_exchange: Callable[[Exchange], None] = lambda exchange: None,
) -> Any:
    """The method's final state, from `state` (a checkpoint, a jump start) or from the beginning.

    Where `replies` are given, answers that they hold are not asked for again and new ones that can be read are put there: a one-shot
    method's cache.
    A reply that cannot be read, or is not finite, is refused: the exchange goes on without it. None left is an error.
    """
    if not clients:
        raise CoreshotError("simulation: there are no clients; give at least one.")
    model, names, inbox = study.model, tuple(clients), []  # type: ignore[var-annotated]
    state = method.init(named_key(key, "init"), model, study.shared_key) if state is None else state
    while (invitation := method.send(named_key(key, "cohort"), model, state, names)) is not None:
        message = _deliver(invitation.message, study, invitation.clients, ledger)
        inbox = [*(old for old in inbox if old.round == message.round), message]
        asked = {name: clients[name] for name in invitation.clients}
        answers = _ask(key, study, method, asked, inbox, {} if replies is None else replies, on_chunk)
        arrived, refused = _collect(study, method, message.round, answers, ledger)
        if replies is not None:
            replies.update({(message.round, name): answers[name] for name in arrived if (message.round, name) not in replies})
        if not arrived:
            raise CoreshotError(
                f"round {message.round}: no client's reply can be used; lower the clients' step sizes. "
                f"The first was refused: {next(iter(refused.values()))}"
            )
        state = method.receive(named_key(key, "server"), model, state, arrived)
        on_exchange(Exchange(state, message.round, sum(answer.seconds for answer in answers.values()), refused))
    return state


def _deliver(message: Message, study: Study, names: Sequence[str], ledger: Ledger) -> Message:
    """To each client its own copy; what they read is what the bytes say."""
    broken = [name for name, array in message.arrays.items() if not bool(jnp.all(jnp.isfinite(array)))]
    if broken:
        raise CoreshotError(
            f"server, round {message.round}, {message.kind}: {broken[0]!r} is no longer finite, so the training broke down; "
            "lower the step size of the server's or of the clients' optimiser."
        )
    for name in names:
        data = encode_message(message, study_hash=study.hash, client=name)
        ledger.book("down", name, message, data)
    return decode_message(data, study_hash=study.hash)


def _ask(
    key: PRNGKey,
    study: Study,
    method: Method,
    clients: Mapping[str, Points],
    inbox: Sequence[Message],
    replies: Mapping[tuple[int, str], Reply],
    on_chunk: Callable[[int], None],
) -> dict[str, Reply]:
    round = inbox[-1].round
    found = {name: replies[round, name] for name in clients if (round, name) in replies}
    missing = {name: points for name, points in clients.items() if name not in found}
    if missing:
        began = time.perf_counter()
        answers = method.reply(named_key(key, "clients"), study.model, missing, inbox, study.shared_key, on_chunk)
        encoded = {name: encode_message(answer, study_hash=study.hash, client=name) for name, (answer, _) in answers.items()}
        seconds = (time.perf_counter() - began) / len(missing)
        found |= {name: Reply(encoded[name], seconds, notes) for name, (_, notes) in answers.items()}
    return {name: found[name] for name in clients}


def _collect(study: Study, method: Method, round: int, answers: Mapping[str, Reply], ledger: Ledger) -> tuple[dict[str, Message], dict[str, str]]:
    """What can be used of the answers, booked (a refused one has crossed the wire as well), and why the others cannot."""
    arrived, refused = {}, {}
    for name, answer in answers.items():
        try:
            message = decode_message(answer.data, study_hash=study.hash, client=name)
            if message.round != round:
                raise CoreshotError(f"client {name}: answered round {message.round} in round {round}; the message is refused.")
            method.check(study.model, name, message)
        except CoreshotError as error:
            refused[name] = str(error)
            ledger.book_refused(round, name, answer.data)
            continue
        arrived[name] = message
        ledger.book("up", name, message, answer.data)
    return arrived, refused
