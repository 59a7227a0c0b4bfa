"""What a run is to do: written by `coreshot flower run`, read by the ServerApp, which leaves the outcome beside it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from coreshot.config import decode, settings
from coreshot.flower.nodes import Patience
from coreshot.storage import read_json, write_json


@settings
class Order:
    out: str
    patience: Patience
    seed: int = 0
    preset: str = ""  # the name of a preset, and what it says;
    values: dict[str, Any] | None = None
    study: str = ""  # or the text of a study's file, its clients, and how the server infers
    clients: tuple[str, ...] = ()
    inference: dict[str, Any] | None = None
    is_simulated: bool = False

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Order:
        return decode(cls, read_json(path), f"order {path}")


def outcome_path(order: Path) -> Path:
    """Written when a run ends by itself: an empty object, or the sentence that says what went wrong."""
    return order.with_suffix(".outcome")


def log_path(order: Path) -> Path:
    return order.with_suffix(".log")
