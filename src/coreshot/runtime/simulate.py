"""The only loop that drives a method over clients. Every message, both ways, goes through bytes and the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from coreshot.errors import CoreshotError
from coreshot.keys import named_key
from coreshot.methods.protocol import Content, OnChunk, State
from coreshot.runtime.executors import Answer, Executor, Reply, Threads, compute_replies
from coreshot.study import Study
from coreshot.types import Points, PRNGKey
from coreshot.wire.ledger import Ledger
from coreshot.wire.messages import Message, decode_message, encode_message

Replies = MutableMapping[tuple[int, str], Reply]


@dataclass(frozen=True)
class Exchange:
    """What an observer sees after each exchange."""

    state: State  # the server's, with the replies of this exchange
    round: int
    seconds: float  # that the clients took
    refused: dict[str, str]  # by client: why its reply was not used

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
    executor: Executor | None = None,
    on_chunk: OnChunk = lambda clients: None,
    on_exchange: Callable[[Exchange], None] = lambda exchange: None,
) -> Any:
    """The method's final state, from `state` (a checkpoint, a jump start) or from the beginning.

    Where `replies` are given (a one-shot method's cache), clients whose reply they hold are not asked again, and each
    new usable reply is put there as soon as the executor has it. A reply that cannot be read, or is not finite, is
    refused, and the exchange continues without it. No usable reply at all is an error.
    """
    if not clients:
        raise CoreshotError("simulation: there are no clients; give at least one.")
    executor = executor or Threads()
    method, model, names = study.method, study.model, tuple(clients)
    inbox: list[Message] = []
    state = method.init(named_key(key, "init"), model, study.shared_key) if state is None else state
    while (invitation := method.send(named_key(key, "cohort"), model, state, names)) is not None:
        message = _deliver(invitation.message, study, invitation.clients, ledger)
        inbox = [*(old for old in inbox if old.round == message.round), message]
        asked = {name: clients[name] for name in invitation.clients}
        heard = _Heard()
        for name, answer in _answers(key, study, asked, inbox, replies, executor, on_chunk):
            heard.take(study, message.round, name, answer)
            if replies is not None and name in heard.contents and (message.round, name) not in replies:
                replies[message.round, name] = heard.replies[name]
        # From here on in the order of asking: neither sums nor the ledger may depend on who answered first.
        for name in asked:
            heard.book(ledger, message.round, name)
        _check_quorum(executor, message.round, len(asked), heard)
        contents = {name: heard.contents[name] for name in asked if name in heard.contents}
        state = method.receive(named_key(key, "server"), model, state, contents)
        seconds = sum(heard.replies[name].seconds for name in asked if name in heard.replies)
        on_exchange(Exchange(state, message.round, seconds, heard.refused))
    return state


@dataclass
class _Heard:
    """The answers to one invitation so far."""

    replies: dict[str, Reply] = field(default_factory=dict)
    messages: dict[str, Message] = field(default_factory=dict)
    contents: dict[str, Content] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def take(self, study: Study, round: int, name: str, answer: Answer) -> None:
        """Decode and check an answer, once."""
        if isinstance(answer, str):
            self.refused[name] = f"client {name}: {answer}."
            return
        self.replies[name] = answer
        try:
            message = decode_message(answer.data, study_hash=study.hash, client=name, releases=study.releases)
            if message.round != round:
                raise CoreshotError(
                    f"client {name}: answered round {message.round} in round {round}; the message is refused."
                )
            self.contents[name] = study.read(name, message)
            self.messages[name] = message
        except CoreshotError as error:
            self.refused[name] = str(error)

    def book(self, ledger: Ledger, round: int, name: str) -> None:
        """A refused reply has crossed the wire as well; a reply that never came is booked without a byte, so that it is
        known to be missing."""
        data = self.replies[name].data if name in self.replies else b""
        if name in self.messages:
            ledger.book("up", name, self.messages[name], data)
        else:
            ledger.book_refused(round, name, data)


def _check_quorum(executor: Executor, round: int, num_asked: int, heard: _Heard) -> None:
    num_usable = len(heard.contents)
    if not num_usable and not executor.handles_all_rounds:
        raise CoreshotError(
            f"round {round}: no client's reply can be used; lower the clients' step sizes. "
            f"The first was refused: {next(iter(heard.refused.values()))}"
        )
    if num_usable < min(executor.quorum, num_asked):  # a cohort may be smaller
        raise CoreshotError(
            f"round {round}: {num_usable} of {num_asked} replies can be used, and the quorum is {executor.quorum}; "
            f"mend these and run the same again: {' '.join(heard.refused.values())}"
        )


def _deliver(message: Message, study: Study, names: Sequence[str], ledger: Ledger) -> Message:
    """Encode and book one copy for each client; what they read is what the bytes say."""
    broken = [name for name, array in message.arrays.items() if not bool(jnp.all(jnp.isfinite(array)))]
    if broken:
        raise CoreshotError(
            f"server, round {message.round}, {message.kind}: {broken[0]!r} is no longer finite, so the training broke "
            "down; lower the step size of the server's or of the clients' optimiser."
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
    executor: Executor,
    on_chunk: OnChunk,
) -> Iterator[tuple[str, Answer]]:
    """The replies that are stored, then the others: by the executor where each is worth waiting for, else at once."""
    round, key = inbox[-1].round, named_key(key, "clients")
    stored = {name: replies[round, name] for name in clients if replies is not None and (round, name) in replies}
    yield from stored.items()
    missing = {name: points for name, points in clients.items() if name not in stored}
    if missing and (replies is not None or executor.handles_all_rounds):
        yield from executor.answers(key, study, missing, inbox, on_chunk)
    elif missing:
        yield from compute_replies(key, study, missing, inbox, on_chunk)
