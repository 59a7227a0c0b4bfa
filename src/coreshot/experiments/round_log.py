"""The log of a multi-round run: its ledger, its curve of quality over communication, and its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coreshot.fitted.metrics import Metrics
from coreshot.methods.protocol import State
from coreshot.progress import Progress
from coreshot.runtime.checkpoint import decode_checkpoint, encode_checkpoint
from coreshot.runtime.simulate import Exchange
from coreshot.storage import write_private
from coreshot.wire.ledger import Ledger

CHECKPOINT_EVERY = 10  # rounds


@dataclass
class RoundLog:
    """All that a run has so far, apart from the clients' data; a checkpoint is exactly this."""

    ledger: Ledger
    state: State
    curve: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0  # of all clients

    def to_bytes(self) -> bytes:
        ledger = self.ledger.to_json_lines()
        words = {"ledger": ledger, "curve": self.curve, "notes": self.notes, "seconds": self.seconds}
        return encode_checkpoint(self.state, words)

    @classmethod
    def from_bytes(cls, data: bytes, template: State, where: str) -> RoundLog:
        state, words = decode_checkpoint(data, template, where)
        return cls(Ledger.from_json_lines(words["ledger"]), state, words["curve"], words["notes"], words["seconds"])


def checkpoint_path(folder: Path) -> Path:
    return folder / "checkpoint.safetensors"


def resume_or_begin(folder: Path, ledger: Ledger, state: State) -> RoundLog:
    """The log of a run that was killed, if it left one; else a new one. `state` is where a new run begins."""
    path = checkpoint_path(folder)
    return RoundLog.from_bytes(path.read_bytes(), state, str(path)) if path.is_file() else RoundLog(ledger, state)


@dataclass
class Watch:
    """Observes the exchanges: notes refused replies, and after a round measures quality and saves a checkpoint."""

    log: RoundLog
    folder: Path
    evaluate: Callable[[State], Metrics]
    evaluate_every: int
    progress: Progress

    def measure(self) -> None:
        """A point of the curve; there is none before anything was sent, because the axis is logarithmic."""
        floats = self.log.ledger.floats("up") + self.log.ledger.floats("down")
        if floats:
            total_bytes = self.log.ledger.bytes("up") + self.log.ledger.bytes("down")
            self.log.curve.append(
                {
                    "round": self.log.state.round,
                    "floats": floats,
                    "bytes": total_bytes,
                    **asdict(self.evaluate(self.log.state)),
                }
            )

    def on_exchange(self, exchange: Exchange) -> None:
        log, before = self.log, self.log.state
        log.state, log.seconds = exchange.state, log.seconds + exchange.seconds
        log.notes += exchange.notes
        if log.state.round == before.round:
            return  # the first of two exchanges
        self.progress.advance()
        if log.state.round % self.evaluate_every == 0 or log.state.round == log.state.end:
            self.measure()
        if log.state.round % CHECKPOINT_EVERY == 0 or log.state.round == log.state.end:
            write_private(checkpoint_path(self.folder), log.to_bytes())
