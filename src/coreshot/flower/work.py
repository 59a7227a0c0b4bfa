"""What a node is asked, apart from the message itself: by which study, with which random key, for how long."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from flwr.app import ConfigRecord, RecordDict

WORK = "work"
CLIENT, PARTITION = "client", "partition"  # of an introduction: a site's name, or a simulated node's number
UNABLE = 100  # the code of an error whose reason this package has written; Flower's own are below


@dataclass(frozen=True)
class Work:
    study: str  # JSON
    key: list[int]
    seconds: float  # after which nobody waits for the answer
    client: str
    preset: str = ""  # of a simulation: JSON of the preset whose task makes the client's data,
    seed: int = 0  # and its seed

    def record(self) -> ConfigRecord:
        return ConfigRecord(asdict(self))

    @classmethod
    def of(cls, content: RecordDict) -> Work:
        values: dict[str, Any] = dict(content.config_records[WORK])
        return cls(**values)

    @property
    def study_values(self) -> dict[str, Any]:
        return dict(json.loads(self.study))
