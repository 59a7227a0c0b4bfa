"""Handwriting in one form, whatever the source: images of 28 x 28 with ink on black, and 62 classes in one order."""

from __future__ import annotations

import numpy as np

from coreshot.data.handwriting.labels import CHARACTERS, code_labels
from coreshot.data.handwriting.pixels import IMAGE_SHAPE, Background, BorderVote, as_pixels
from coreshot.data.readers.protocol import Batch
from coreshot.data.store import Description

BACKGROUND_NOTE = "background_of_source"


class HandwritingPreparation:
    """The background is found from the borders of all images, unless it is given; white is then inverted."""

    def __init__(self, background: Background | None = None) -> None:
        self._background, self._vote = background, BorderVote()

    def take(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        images, labels = as_pixels(batch.inputs, batch.where), code_labels(batch.labels, batch.where)
        self._vote.count(images)
        return images[..., None], labels

    def describe(self, labels: np.ndarray, where: str) -> tuple[Description, np.ndarray]:
        self._background = self._background or self._vote.decide(where)
        return describe_handwriting(self._background), labels

    def finish(self, inputs: np.ndarray) -> np.ndarray:
        return 255 - inputs if self._background == "white" else inputs


def describe_handwriting(background: Background) -> Description:
    return Description(
        input_shape=(*IMAGE_SHAPE, 1),
        input_scale=255.0,
        class_names=tuple(CHARACTERS),
        notes={BACKGROUND_NOTE: background},
    )
