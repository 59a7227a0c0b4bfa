"""A message as Flower carries it, and back to the same bytes: each array one of an ArrayRecord, each entry of the header one of a ConfigRecord."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from coreshot.errors import CoreshotError
from coreshot.wire.messages import pack, unpack

ARRAYS, HEADER = "arrays", "header"
FIELDS: dict[str, type] = {"format": int, "kind": str, "round": int, "client": str, "study": str}
RELEASES = "releases"  # a list of objects, for which a ConfigRecord has no type: as JSON


def records_of(data: bytes) -> RecordDict:
    header, arrays = unpack(data)
    fields = {key: json.dumps(value) if key == RELEASES else value for key, value in header.items()}
    record = ArrayRecord({name: Array(np.ascontiguousarray(array)) for name, array in arrays.items()})
    return RecordDict({ARRAYS: record, HEADER: ConfigRecord(fields)})


def bytes_of(content: RecordDict) -> bytes:
    """What was sent, to the last bit; whether it can be used, the reader of the bytes says."""
    try:
        fields, record = content.config_records[HEADER], content.array_records[ARRAYS]
        header: dict[str, Any] = {key: fields[key] for key in FIELDS}
        if RELEASES in fields:
            header[RELEASES] = json.loads(str(fields[RELEASES]))
        return pack(header, {name: np.ascontiguousarray(array.numpy()) for name, array in record.items()})
    except Exception as error:  # whatever a stranger has put there, it is a reply that cannot be read, and no more
        raise CoreshotError(
            f"is not a coreshot message ({type(error).__name__}); use the same coreshot on both sides"
        ) from None
