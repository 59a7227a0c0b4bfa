"""What every method is: what is sent to whom, what is answered, and what is made of the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from coreshot.inference.protocol import Inference, Info
from coreshot.models import Model
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.types import Params, Points, Posterior, PRNGKey
from coreshot.wire.messages import Message

State = Any  # what the server keeps between exchanges
Content = Any  # what a client's message says, decoded and checked
Answers = dict[str, tuple[Message, list[str]]]  # by client: the message that leaves, and notes on how it was made
OnChunk = Callable[[int], None]  # told how many clients have finished a chunk of their work
Weighting = Literal["mass", "paper", "size", "none"]  # what a point of a client counts: see one_shot.point_weights


@dataclass(frozen=True)
class Invitation:
    """The same message for each of these clients."""

    clients: tuple[str, ...]
    message: Message


Exchange = tuple[Message, Message]  # down and up, of the sizes and types of real ones


@dataclass(frozen=True)
class MethodCost:
    """What a run costs, before any work: sums over clients and rounds.

    A pass is one point through the network, as in `LearningCost`. An operation is a multiplication or an addition
    outside of the network: feature maps and linear algebra.
    """

    work: str  # of one client, in words
    exchanges: Sequence[Sequence[Exchange]]  # in one round, for each client
    num_answers: float  # of all clients in all rounds, as a multiple of `exchanges`
    passes: float = 0.0
    operations: float = 0.0
    server_passes: float = 0.0
    server_operations: float = 0.0
    num_bytes: int = 0  # the largest part of a client's memory or disk
    kept_in: str = ""  # what these bytes are
    num_networks: int = 1  # that take a step together
    batch_size: int = 25  # of such a step
    model: Model | None = None  # whose passes the clients' are, where it is not the study's


@dataclass(frozen=True)
class PointInference:
    """How the server infers from the points that clients sent; chosen by the server, not part of the study."""

    inference: Inference
    weighting: Weighting = "mass"


@runtime_checkable
class Method(Protocol):
    """Clients keep nothing between exchanges but what they were sent in the current round."""

    @property
    def num_rounds(self) -> int: ...

    def releases(self, model: Model) -> tuple[Release, ...]:
        """Everything that a client releases of its records; the client's side can access nothing else of them."""

    def cost(self, model: Model, clients: Sequence[int]) -> MethodCost:
        """Of a run with clients that have so many records each."""

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

    def read(self, model: Model, client: str, message: Message) -> Content:
        """What a reply says, or a CoreshotError where it cannot be used. Each message is read once."""

    def receive(self, key: PRNGKey, model: Model, state: State, replies: Mapping[str, Content]) -> State:
        """Any non-empty subset of the replies will do."""

    def posterior(
        self, key: PRNGKey, model: Model, state: State, inference: PointInference | None = None
    ) -> tuple[Posterior, Info]:
        """Only a method that sends points needs an inference; the others have a posterior of their own."""

    def load_posterior(self, model: Model, shared_key: PRNGKey, arrays: Mapping[str, np.ndarray]) -> Posterior:
        """The inverse of the posterior's `arrays`."""


@runtime_checkable
class OneRound(Method, Protocol):
    """A method of one exchange, whose messages can be sent as files."""

    @property
    def num_chunks(self) -> int:
        """How often a client reports progress while it works."""


@runtime_checkable
class MultiRound(Method, Protocol):
    """A method that improves weights round by round, and so can start from any weights."""

    @property
    def cohort_size(self) -> int | None:
        """Clients asked in a round; None: all."""

    def begin(self, params: Params, first_round: int = 0) -> State: ...


@runtime_checkable
class Forgets(Method, Protocol):
    """A method whose server keeps sums, from which a client can be taken away again."""

    def forget(self, model: Model, state: State, client: str, content: Content) -> State:
        """The state as if this client had never taken part."""


@dataclass(frozen=True)
class Claim:
    """What a client says of its records, which the server cannot check but can bound: see `Study.read`."""

    num_records: float | None  # by which it counts; None: all clients count alike
    largest_input: float = 0.0  # the largest number in its points, or what follows of it
    is_exact: bool = True  # False: num_records carries noise, so that nobody's share is known


@runtime_checkable
class Claims(Method, Protocol):
    """A method whose messages say how many records stand behind them."""

    def claim(self, content: Content) -> Claim: ...


@runtime_checkable
class Adapts(Method, Protocol):
    """A method whose posterior, in closed form, a site can fit to records of its own."""

    def adapt(self, model: Model, state: State, posterior: Any, points: Points) -> tuple[Posterior, float]:
        """State and posterior are those of the other sites. The second is the weight of models without them."""


@runtime_checkable
class SecureSum(Method, Protocol):
    """A method whose clients can hide their messages under masks that cancel in the sum of all of them."""

    @property
    def num_sharers(self) -> int | None:
        """How many clients share the noise and the masks; None: each client adds all of the noise, and no masks."""
