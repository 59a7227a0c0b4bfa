"""LEAF's JSON files (Caldas et al. 2018, github.com/TalwalkarLab/leaf): `users`, `num_samples`, `user_data`.

user_data[user] has x, a list of numbers for each record, and y, the class numbers. In data/femnist x has 784 shares,
where 1 is blank paper.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from coreshot.data.readers.protocol import Batch, SourceFile, name_labels, stack_inputs
from coreshot.errors import CoreshotError

KEYS = ("users", "num_samples", "user_data")


def read_leaf(file: SourceFile) -> Iterator[Batch]:
    content = _parse(file)
    users, sizes, data = (content[key] for key in KEYS)
    if not isinstance(users, list) or not isinstance(sizes, list) or not isinstance(data, dict):
        raise CoreshotError(
            f"{file.name}: users and num_samples are not lists, or user_data is not a table; "
            "it was not written by LEAF: get it again."
        )
    if len(users) != len(sizes):
        raise CoreshotError(
            f"{file.name}: {len(users)} users but {len(sizes)} num_samples; it was not written by LEAF: get it again."
        )
    for user, size in zip(users, sizes, strict=True):
        yield _read_user(file, user, size, data.get(str(user)))


def _read_user(file: SourceFile, user: Any, size: Any, records: Any) -> Batch:
    where = f"{file.name}, client {user}"
    x, y = file.reading.inputs or "x", file.reading.labels or "y"
    inputs, labels = (records.get(x), records.get(y)) if isinstance(records, dict) else (None, None)
    if not isinstance(inputs, list) or not isinstance(labels, list):
        raise CoreshotError(
            f"{where}: user_data has no lists {x} and {y} for this client; get the file again, "
            "or take the client out of users."
        )
    if not len(inputs) == len(labels) == size:
        raise CoreshotError(
            f"{where}: num_samples is {size}, but there are {len(inputs)} records and {len(labels)} labels; "
            "get the file again."
        )
    # LEAF writes shares. As whole numbers, 1 would be taken for 1 of 255.
    names = file.reading.listed_class_names
    return Batch(
        where,
        str(user),
        file.role,
        stack_inputs(inputs, where, np.float32),
        name_labels(labels, names, where),
        names,
    )


def _parse(file: SourceFile) -> dict[str, Any]:
    try:
        text = file.path.read_text(encoding="utf-8")
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise CoreshotError(
            f"{file.name}: not valid JSON at character {error.pos} of {len(text)}{_find_client(text, error.pos)} "
            f"({error.msg}); it may be cut short: get it again."
        ) from None
    except UnicodeDecodeError as error:
        raise CoreshotError(
            f"{file.name}: not a text file ({error.reason} at byte {error.start}); get it again."
        ) from None
    missing = [key for key in KEYS if not isinstance(content, dict) or key not in content]
    if missing:
        raise CoreshotError(f"{file.name}: the key {missing[0]!r} is missing; a LEAF file has {', '.join(KEYS)}.")
    return content


def _find_client(text: str, position: int) -> str:
    """Whose data the error is in: the key before the last opening brace."""
    before = text[: max(0, text.rfind("{", 0, position))].rstrip(" \n\t:")
    user = before[before.rfind('"', 0, len(before) - 1) + 1 : -1] if before.endswith('"') else ""
    return f", in the data of client {user}" if user and user != "user_data" else ""
