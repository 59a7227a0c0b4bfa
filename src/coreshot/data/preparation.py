"""How raw records become arrays of the store: a preparation checks each batch as it is read, then describes the set.

`GeneralPreparation` takes images of any size and number of channels, or vectors, with any classes.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from coreshot.data.readers.protocol import Batch
from coreshot.data.store import Description
from coreshot.errors import CoreshotError
from coreshot.types import Kind

MOST_CHANNELS = 4  # of an image file: a first axis this short and a long last axis mean that channels come first


@runtime_checkable
class Preparation(Protocol):
    """One instance prepares one data set, batch by batch."""

    def take(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Inputs [n, *input_shape] of uint8 or float32 and labels [n], checked."""

    def describe(self, labels: np.ndarray, where: str) -> tuple[Description, np.ndarray]:
        """The description of the whole set, and the class number of each record."""

    def finish(self, inputs: np.ndarray) -> np.ndarray:
        """The inputs as they are stored, after what only the whole set could tell."""


class GeneralPreparation:
    """Inputs stay as they are: bytes are divided by 255 when they are read back, other numbers are stored as float32.

    Classes are those that the source names, else the different labels in order.
    """

    def __init__(self, kind: Kind = "classification", target_name: str = "target") -> None:
        self._kind, self._target_name = kind, target_name
        self._first: tuple[str, np.ndarray, np.ndarray] | None = None  # where, inputs and labels of the first batch
        self._class_names: tuple[str, ...] | None = None

    def take(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        check = _check_targets if self._kind == "regression" else _check_labels
        inputs, labels = _check_inputs(batch.inputs, batch.where), check(batch.labels, batch.where)
        if self._first is None:
            self._first = batch.where, inputs[:0], labels[:0]
            self._class_names = batch.class_names
        self._compare(batch, inputs, labels)
        return inputs, labels

    def _compare(self, batch: Batch, inputs: np.ndarray, labels: np.ndarray) -> None:
        """All batches have one shape, one type of numbers, one type of labels and one list of classes."""
        assert self._first is not None
        where, some_inputs, some_labels = self._first
        for what, found, first in (
            ("records have shape", inputs.shape[1:], some_inputs.shape[1:]),
            ("inputs are stored as", inputs.dtype, some_inputs.dtype),
            ("labels are", _label_type(labels), _label_type(some_labels)),
            ("targets of a record have shape", labels.shape[1:], some_labels.shape[1:]),
            ("class names are", batch.class_names, self._class_names),
        ):
            if found != first:
                raise CoreshotError(f"{batch.where}: {what} {found}, but {first} in {where}; make them the same.")

    def describe(self, labels: np.ndarray, where: str) -> tuple[Description, np.ndarray]:
        assert self._first is not None
        _, inputs, _ = self._first
        shape, scale = inputs.shape[1:], 255.0 if inputs.dtype == np.uint8 else 1.0
        if self._kind == "regression":
            if np.all(labels == labels[0]):
                raise CoreshotError(f"{where}: all targets are the same; there is nothing to learn: check the file.")
            number = labels.shape[1]
            names = (self._target_name,) if number == 1 else tuple(f"{self._target_name}-{i}" for i in range(number))
            return Description(kind="regression", input_shape=shape, input_scale=scale, target_names=names), labels
        values, targets = np.unique(labels, return_inverse=True)
        names = tuple(map(str, values.tolist()))
        if self._class_names is not None:
            position = {name: index for index, name in enumerate(self._class_names)}
            unknown = next((name for name in names if name not in position), None)
            if unknown is not None:
                raise CoreshotError(
                    f"{where}: label {unknown!r} is none of the classes that the source names; name it or relabel it."
                )
            names, targets = self._class_names, np.array([position[name] for name in names])[targets]
        if len(names) < 2:
            raise CoreshotError(f"{where}: all labels are {names[0]!r}; a classification has at least two classes.")
        description = Description(input_shape=shape, input_scale=scale, class_names=names)
        return description, targets.astype(np.min_scalar_type(len(names) - 1))

    def finish(self, inputs: np.ndarray) -> np.ndarray:
        return inputs


def _check_inputs(inputs: np.ndarray, where: str) -> np.ndarray:
    """Images [n, height, width, channels] or vectors [n, length]."""
    if inputs.ndim not in (2, 3, 4) or 0 in inputs.shape or inputs.dtype.kind not in "biuf":
        raise CoreshotError(
            f"{where}: inputs are an array {list(inputs.shape)} of {inputs.dtype}; save numbers as "
            "[n, height, width], [n, height, width, channels] or, for vectors, [n, length]."
        )
    if inputs.ndim == 4 and inputs.shape[1] <= MOST_CHANNELS < min(inputs.shape[2:]):
        size = " x ".join(map(str, inputs.shape[1:]))
        raise CoreshotError(f"{where}: images of {size} have their channels first; save them with channels last.")
    inputs = inputs[..., None] if inputs.ndim == 3 else inputs
    if inputs.dtype == np.uint8:
        return inputs
    if inputs.ndim == 4 and inputs.dtype.kind in "iu":
        return _check_bytes(inputs, where)
    with np.errstate(over="ignore"):
        numbers = inputs.astype(np.float32)
    bad = np.argwhere(~np.isfinite(numbers))
    if len(bad):
        raise CoreshotError(
            f"{where}: record {bad[0][0]} has a value that is not a finite float32 ({len(bad)} such values); "
            "remove or fill them."
        )
    return numbers


def _check_bytes(images: np.ndarray, where: str) -> np.ndarray:
    bad = np.argwhere((images < 0) | (images > 255))
    if len(bad):
        raise CoreshotError(
            f"{where}: a pixel of image {bad[0][0]} is {images[tuple(bad[0])]}, outside 0 to 255; "
            "save whole numbers from 0 to 255, or floating numbers."
        )
    return images.astype(np.uint8)


def _check_labels(values: object, where: str) -> np.ndarray:
    """[n] of int64 or of text."""
    labels = np.asarray(values)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1 or labels.dtype.kind not in "biufSU":
        raise CoreshotError(
            f"{where}: labels are an array {list(labels.shape)} of {labels.dtype}; "
            "give one whole number or text for each record."
        )
    if labels.dtype.kind == "S":
        return np.char.decode(labels, "utf-8", "replace")
    if labels.dtype.kind == "U":
        return labels
    bad = np.flatnonzero(~np.isfinite(labels) | (labels != np.floor(labels)))
    if len(bad):
        raise CoreshotError(
            f"{where}: label {labels[bad[0]]:g} of record {bad[0]} is not a whole number; "
            "classes are whole numbers or text; for a quantity, add --task regression."
        )
    return labels.astype(np.int64)


def _check_targets(values: object, where: str) -> np.ndarray:
    """[n, outputs] of float32: quantities."""
    targets = np.asarray(values)
    targets = targets[:, None] if targets.ndim == 1 else targets
    if targets.ndim != 2 or targets.shape[1] == 0 or targets.dtype.kind not in "biuf":
        raise CoreshotError(
            f"{where}: targets are an array {list(targets.shape)} of {targets.dtype}; "
            "a regression has one number, or a row of them, for each record; leave --task regression out for classes."
        )
    with np.errstate(over="ignore"):
        numbers = targets.astype(np.float32)
    bad = np.argwhere(~np.isfinite(numbers))
    if len(bad):
        raise CoreshotError(
            f"{where}: the target of record {bad[0][0]} is not a finite float32 ({len(bad)} such values); "
            "remove or fill them."
        )
    return numbers


def _label_type(labels: np.ndarray) -> str:
    return "text" if labels.dtype.kind == "U" else "numbers"
