"""What every method is: what is sent to whom, what is answered, and what is made of the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from coreshot.inference.protocol import Info
from coreshot.models import Model
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.types import Params, Posterior, PRNGKey
from coreshot.wire.messages import Message

State = Any
Answers = dict[str, tuple[Message, list[str]]]  # by client: the message that leaves, and notes on how it was made
OnChunk = Callable[[int], None]  # told how many clients have finished a chunk of their work


@dataclass(frozen=True)
class Invitation:
    """The same message for each of these clients."""

    clients: tuple[str, ...]
    message: Message


class Method(Protocol):
    """State is what the server keeps between exchanges; clients keep nothing but what they were sent in the current round."""

    @property
    def num_rounds(self) -> int: ...

    def releases(self, model: Model) -> tuple[Release, ...]:
        """Everything that a client lets out of its records; what is not declared here its side of the method cannot get from them."""

    def init(self, key: PRNGKey, model: Model, shared_key: PRNGKey) -> State:
        """The shared key is the study's: what comes from it, all sides know."""

    def send(self, key: PRNGKey, model: Model, state: State, clients: Sequence[str]) -> Invitation | None:
        """Whom to ask among these clients, and what; None when there is nothing left to ask."""

    def reply(
        self,
        key: PRNGKey,
        model: Model,
        clients: Mapping[str, Records],
        inbox: Sequence[Message],
        shared_key: PRNGKey,
        on_chunk: OnChunk,
    ) -> Answers:
        """The clients' side. The inbox is what the server has sent in this round, the last of it to be answered now."""

    def check(self, model: Model, client: str, message: Message) -> None:
        """A CoreshotError for a reply that cannot be used, so that it is refused before it spoils the others."""

    def receive(self, key: PRNGKey, model: Model, state: State, replies: Mapping[str, Message]) -> State:
        """Any non-empty subset of the replies will do."""

    def posterior(self, key: PRNGKey, model: Model, state: State) -> tuple[Posterior, Info]: ...


class MultiRound(Method, Protocol):
    """A method that improves weights round by round, and so can start from any."""

    def begin(self, params: Params, first_round: int = 0) -> State: ...
