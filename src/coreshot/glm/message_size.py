"""How many bytes a message of the glm takes, and how much detail of classes fits into it."""

from __future__ import annotations

import numpy as np

from coreshot.glm.site import Detail
from coreshot.glm.summary import Summary
from coreshot.models import Model

BYTES_PER_ENTRY = 1.3  # of a coded matrix, about
FILE_BYTES = 38_000  # of more than two classes' matrices and fit; a site that needs more sends one matrix for all


def class_bytes(size: int, model: Model) -> int:
    """What the fit leaves for the matrices of more than two classes."""
    return FILE_BYTES - fit_bytes(size, model)


def fit_bytes(size: int, model: Model) -> int:
    """Two float32 arrays."""
    return 2 * 4 * size * num_logits_of_classes(model)


def choose_details(size: int, model: Model) -> tuple[Detail, Detail, float]:
    """The most and the least detail of classes, and the bytes up to which it is the most."""
    return ("groups", "classes", np.inf) if model.num_outputs == 2 else ("classes", "moments", class_bytes(size, model))


def detail_of(summary: Summary) -> Detail:
    """Of a site that was read."""
    if not summary.sites or len(summary.sites[0].covariances) == 1:
        return "moments"
    return "groups" if len(summary.sites[0].sizes) > summary.num_outputs else "classes"


def code_length(num_columns: int) -> int:
    """Of a coded matrix, about: its entries, and the histograms and steps before them."""
    return int(BYTES_PER_ENTRY * num_columns * (num_columns + 1) / 2) + num_columns + 150


def num_logits_of_classes(model: Model) -> int:
    """Two classes have one logit; a quantity has none."""
    return 0 if model.kind == "regression" else 1 if model.num_outputs == 2 else model.num_outputs
