"""Messages as Flower's records and back to the same bytes, and the request that comes with a message to a node.

Each array of a message is one entry of an ArrayRecord; each field of its header is one entry of a ConfigRecord.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from coreshot.errors import CoreshotError
from coreshot.wire.messages import pack, unpack

ARRAYS, HEADER, REQUEST, NONCE = "arrays", "header", "request", "nonce"  # names of records
HEADER_FIELDS = ("format", "kind", "round", "client", "study")
RELEASES = "releases"  # a list of objects; a ConfigRecord has no type for it, so it is sent as JSON
CLIENT, PARTITION = "client", "partition"  # how a node names itself: a site's name, or a simulated node's number
EXPLAINED = 100  # code of an error whose reason coreshot has written; Flower's own codes are smaller


def encode_records(data: bytes) -> RecordDict:
    """The records that carry a message."""
    header, arrays = unpack(data)
    fields = {key: json.dumps(value) if key == RELEASES else value for key, value in header.items()}
    record = ArrayRecord({name: Array(np.ascontiguousarray(array)) for name, array in arrays.items()})
    return RecordDict({ARRAYS: record, HEADER: ConfigRecord(fields)})


def decode_records(content: RecordDict) -> bytes:
    """The bytes of the message that was sent; decode_message then checks whether they can be used."""
    try:
        fields, record = content.config_records[HEADER], content.array_records[ARRAYS]
        header: dict[str, Any] = {key: fields[key] for key in HEADER_FIELDS}
        if RELEASES in fields:
            header[RELEASES] = json.loads(str(fields[RELEASES]))
        return pack(header, {name: np.ascontiguousarray(array.numpy()) for name, array in record.items()})
    except Exception as error:  # the content may come from any program, so any error may come from it
        raise CoreshotError(
            f"is not a coreshot message ({type(error).__name__}); use the same coreshot on both sides"
        ) from None


def make_nonce() -> ConfigRecord:
    """Random bytes that make a message's id unknown to everyone but its receiver.

    Flower 1.41 checks who pushes a reply, and not that the reply is in the name of that node (`src_node_id`). A reply
    must name the id of the message that it answers, which is a hash of its content. All sites get the same content but
    for their names and the time of sending, so without these bytes one site could compute the id of another's message
    by trying out times, and answer in its name (tests/flower/test_forged_replies.py does it).
    """
    return ConfigRecord({NONCE: secrets.token_bytes(32)})


@dataclass(frozen=True)
class WorkRequest:
    """What a node is asked besides the message: by which study to answer, with which random key, for how long."""

    study: str  # JSON
    key: list[int]
    seconds: float  # after this time the server no longer waits for the answer
    client: str
    preset: str = ""  # in a simulation: JSON of the preset whose task makes the client's data
    seed: int = 0  # in a simulation: the seed of that task

    def record(self) -> ConfigRecord:
        return ConfigRecord(asdict(self))

    @classmethod
    def read(cls, content: RecordDict) -> WorkRequest:
        values: dict[str, Any] = dict(content.config_records[REQUEST])
        return cls(**values)

    @property
    def study_values(self) -> dict[str, Any]:
        return dict(json.loads(self.study))
