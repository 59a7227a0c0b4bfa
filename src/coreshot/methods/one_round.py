"""What the methods of one exchange share: the invitation, one answer per client, and checks of what arrived."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from coreshot.errors import CoreshotError
from coreshot.methods.protocol import Answers, Invitation, State
from coreshot.models import Model
from coreshot.models.parallel import map_in_threads
from coreshot.privacy.guarded_records import Records
from coreshot.types import PRNGKey
from coreshot.wire.messages import Message


class OneRoundMethod:
    """Base of the methods of one exchange. Their state has a field `is_done`."""

    @property
    def num_rounds(self) -> int:
        return 1

    @property
    def num_chunks(self) -> int:
        return 1

    def send(self, key: PRNGKey, model: Model, state: State, clients: Sequence[str]) -> Invitation | None:
        """An invitation without content: all that a client needs is in the study."""
        return None if state.is_done else Invitation(tuple(clients), Message("invitation", 0, {}))


def answer_each(clients: Mapping[str, Records], answer: Callable[[str, Records], tuple[Message, list[str]]]) -> Answers:
    """The answers of all clients, computed in threads: the work of one client keeps one core busy."""
    messages = map_in_threads(lambda client: answer(client, clients[client]), clients)
    return dict(zip(clients, messages, strict=True))


def check_arrived(replies: Mapping[str, object], present: Collection[str]) -> list[str]:
    """The clients that replied, sorted, because a sum of floats depends on its order. None may be in the sums."""
    if not replies:
        raise CoreshotError("round 0: no client replied; ask again, or let more of them take part.")
    for client in sorted(replies):
        if client in present:
            raise CoreshotError(
                f"client {client}: is in the sums already; forget its first message before you add another."
            )
    return sorted(replies)
