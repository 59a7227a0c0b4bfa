"""The 62 classes of handwriting: 0-9 the digits, 10-35 A to Z, 36-61 a to z, as in EMNIST by-class, LEAF and TFF."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
from jaxtyping import UInt8

from coreshot.errors import CoreshotError

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
NUM_CLASSES = len(CHARACTERS)
CODING = "0-9 are the digits, 10-35 A to Z, 36-61 a to z"


def code_labels(values: Any, where: str) -> UInt8[np.ndarray, " n"]:
    """Class numbers, from numbers (0 to 61) or from text ("a", or a number in digits)."""
    labels = np.asarray(values, dtype=object if _is_ragged(values) else None)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1:
        raise CoreshotError(f"{where}: labels have shape {labels.shape}; give one number or character for each image.")
    if labels.dtype.kind in "OSU":
        labels = _number_texts(labels, where)
    if labels.dtype.kind not in "biuf":
        raise CoreshotError(
            f"{where}: labels are of type {labels.dtype}, not numbers or characters; {CODING}: give one for each image."
        )
    bad = np.flatnonzero(~((labels >= 0) & (labels < NUM_CLASSES)) | (labels != np.floor(labels)))
    if len(bad):
        raise CoreshotError(
            f"{where}: label {labels[bad[0]]:g} of image {bad[0]} is none of the {NUM_CLASSES} classes ({CODING}); "
            "relabel or remove that image."
        )
    return labels.astype(np.uint8)


def _is_ragged(values: Any) -> bool:
    return isinstance(values, list) and any(isinstance(value, list | dict) for value in values)


def _number_texts(labels: np.ndarray, where: str) -> np.ndarray:
    texts = [value.decode("latin-1") if isinstance(value, bytes) else str(value) for value in labels]
    return np.array([_number_text(text, index, where) for index, text in enumerate(texts)], np.int64)


def _number_text(text: str, index: int, where: str) -> int:
    if len(text) == 1 and text in CHARACTERS:  # a single digit is its own number, so both readings agree
        return CHARACTERS.index(text)
    if text.isdecimal():
        return int(text)
    raise CoreshotError(
        f"{where}: label {text!r} of image {index} is none of the {NUM_CLASSES} characters; "
        "relabel or remove that image."
    )
