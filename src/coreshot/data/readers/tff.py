"""TensorFlow Federated's HDF5 files (fed_emnist_train.h5, fed_emnist_test.h5): examples/<writer>/{pixels, label}.

Pixels are shares, 28 x 28, where 1 is blank paper. Both files have the same writers, with different images of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coreshot.data.readers.protocol import Batch, SourceFile, name_labels, stack_inputs
from coreshot.errors import CoreshotError


def read_tff(file: SourceFile) -> Iterator[Batch]:
    import h5py

    try:
        opened = h5py.File(file.path, "r")
    except OSError as error:
        raise CoreshotError(
            f"{file.name}: not a readable HDF5 file ({error}); it may be cut short: get it again."
        ) from None
    with opened:
        examples = opened.get("examples")
        if not isinstance(examples, h5py.Group):
            raise CoreshotError(
                f"{file.name}: there is no group 'examples', only {_list_keys(opened)}; "
                "TFF's files have examples/<writer>/{pixels,label}."
            )
        for writer in examples:
            yield _read_writer(file, writer, examples[writer])


def _read_writer(file: SourceFile, writer: str, group: Any) -> Batch:
    import h5py

    where = f"{file.name}, client {writer}"
    x, y = file.reading.inputs or "pixels", file.reading.labels or "label"
    for key in (x, y):
        if not isinstance(group, h5py.Group) or key not in group:
            raise CoreshotError(
                f"{where}: there is no {key!r} in examples/{writer}, only {_list_keys(group)}; get the file again."
            )
    try:
        inputs, labels = stack_inputs(np.asarray(group[x]), where), np.asarray(group[y])
    except OSError as error:
        raise CoreshotError(f"{where}: cannot be read ({error}); the file is damaged: get it again.") from None
    if inputs.shape[:1] != labels.shape[:1]:
        raise CoreshotError(
            f"{where}: {x} have shape {inputs.shape} but {y} has {labels.shape}; give one label for each record."
        )
    names = file.reading.listed_class_names
    return Batch(
        where, writer, file.role, inputs, name_labels(labels.tolist(), names, where) if names else labels, names
    )


def _list_keys(group: Any) -> str:
    import h5py

    return ", ".join(sorted(group)[:5]) or "nothing" if isinstance(group, h5py.Group) else "an array"
