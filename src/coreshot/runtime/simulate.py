"""The only loop: drive a method over clients. Every message, both ways, goes through bytes and is booked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from coreshot.errors import CoreshotError
from coreshot.keys import named_key
from coreshot.methods.protocol import Content, State
from coreshot.privacy.guarded_records import behind_doors
from coreshot.runtime.executors import Answer, Crew, Reply, Threads
from coreshot.study import Study
from coreshot.types import Points, PRNGKey
from coreshot.wire.ledger import Ledger
from coreshot.wire.messages import Message, decode_message, encode_message

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
    clients: Mapping[str, Points],
    ledger: Ledger,
    *,
    state: State = None,
    replies: Replies | None = None,
    crew: Crew | None = None,
    on_chunk: Callable[[int], None] = lambda clients: None,
    on_exchange: Callable[[Exchange], None] = lambda exchange: None,
) -> Any:
    """The method's final state, from `state` (a checkpoint, a jump start) or from the beginning.

    Where `replies` are given (a one-shot method's cache), answers that they hold are not asked for again, and a new one that can be read is put
    there as soon as the crew has it.
    A reply that cannot be read, or is not finite, is refused: the exchange goes on without it. None left is an error.
    """
    if not clients:
        raise CoreshotError("simulation: there are no clients; give at least one.")
    crew = crew or Threads()
    method, model, names = study.method, study.model, tuple(clients)
    inbox: list[Message] = []
    state = method.init(named_key(key, "init"), model, study.shared_key) if state is None else state
    while (invitation := method.send(named_key(key, "cohort"), model, state, names)) is not None:
        message = _deliver(invitation.message, study, invitation.clients, ledger)
        inbox = [*(old for old in inbox if old.round == message.round), message]
        asked = {name: clients[name] for name in invitation.clients}
        answers: dict[str, Answer] = {}
        arrived: dict[str, Content] = {}
        messages: dict[str, Message] = {}
        refused: dict[str, str] = {}
        for name, answer in _answers(key, study, asked, inbox, replies, crew, on_chunk):
            try:
                messages[name], arrived[name] = _read(study, message.round, name, answer)
            except CoreshotError as error:
                refused[name] = str(error)
            answers[name] = answer
            if (
                replies is not None
                and isinstance(answer, Reply)
                and name in arrived
                and (message.round, name) not in replies
            ):
                replies[message.round, name] = answer
        # From here on in the order of asking, whoever was first: neither sums nor the ledger may depend on that.
        for name in asked:
            _book(ledger, message.round, name, answers[name], messages.get(name))
        arrived = {name: arrived[name] for name in asked if name in arrived}
        seconds = sum(answer.seconds for answer in answers.values() if isinstance(answer, Reply))
        if not arrived and not crew.every_round:
            raise CoreshotError(
                f"round {message.round}: no client's reply can be used; lower the clients' step sizes. "
                f"The first was refused: {next(iter(refused.values()))}"
            )
        if len(arrived) < min(crew.quorum, len(asked)):  # a cohort may be smaller
            raise CoreshotError(
                f"round {message.round}: {len(arrived)} of {len(asked)} replies can be used, and the quorum is {crew.quorum}; "
                f"mend these and run the same again: {' '.join(refused.values())}"
            )
        state = method.receive(named_key(key, "server"), model, state, arrived)
        on_exchange(Exchange(state, message.round, seconds, refused))
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


def _answers(
    key: PRNGKey,
    study: Study,
    clients: Mapping[str, Points],
    inbox: Sequence[Message],
    replies: Replies | None,
    crew: Crew,
    on_chunk: Callable[[int], None],
) -> Iterator[tuple[str, Answer]]:
    """Those that are there already, then the others': of a one-shot method as they come, else all at once, since a round is short.

    A crew that is elsewhere is asked in every round.
    """
    round, key = inbox[-1].round, named_key(key, "clients")
    found = {name: replies[round, name] for name in clients if replies is not None and (round, name) in replies}
    yield from found.items()
    missing = {name: points for name, points in clients.items() if name not in found}
    if not missing:
        return
    if replies is not None or crew.every_round:
        yield from crew.answers(key, study, missing, inbox, on_chunk)
        return
    began = time.perf_counter()
    answers = study.method.reply(
        key, study.model, behind_doors(missing, study.releases), inbox, study.shared_key, on_chunk
    )
    encoded = {
        name: encode_message(answer, study_hash=study.hash, client=name, releases=study.releases)
        for name, (answer, _) in answers.items()
    }
    seconds = (time.perf_counter() - began) / len(missing)
    yield from ((name, Reply(encoded[name], seconds, notes)) for name, (_, notes) in answers.items())


def _read(study: Study, round: int, name: str, answer: Answer) -> tuple[Message, Content]:
    """The message in an answer and what it says, or an error that says why it cannot be used."""
    if isinstance(answer, str):
        raise CoreshotError(f"client {name}: {answer}.")
    message = decode_message(answer.data, study_hash=study.hash, client=name, releases=study.releases)
    if message.round != round:
        raise CoreshotError(f"client {name}: answered round {message.round} in round {round}; the message is refused.")
    return message, study.method.read(study.model, name, message)


def _book(ledger: Ledger, round: int, name: str, answer: Answer, message: Message | None) -> None:
    """A refused reply has crossed the wire as well; one that never came is booked without a byte, so that it is known to be missing."""
    if isinstance(answer, Reply) and message is not None:
        ledger.book("up", name, message, answer.data)
    else:
        ledger.book_refused(round, name, answer.data if isinstance(answer, Reply) else b"")
