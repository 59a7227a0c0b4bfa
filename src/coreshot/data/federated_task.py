"""The task of any data set of the store: `[task] name = "federated", data = "NAME"`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from coreshot.config import Count, NonNegativeInt, settings
from coreshot.data.display import Display, SummaryColumn
from coreshot.data.scaling import Scaling, measure
from coreshot.data.store import StoredData, open_data_set
from coreshot.data.stored_task import StoredTask
from coreshot.types import Kind, Points, make_points


@settings
class Federated(StoredTask):
    """Its shape, its classes and its kind are those of the data set's own description."""

    data: str  # the name under which `coreshot data add` stored it
    num_clients: NonNegativeInt = 0  # 0: all
    train_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_records: Count = 1  # a client that would train with fewer is left out
    # For a set without test records: its last clients test; 0: a share of every client's records does.
    num_test_clients: NonNegativeInt = 0
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    # standard: inputs and quantities minus the mean of all training records, divided by their deviation
    scaling: Literal["none", "standard"] = "none"

    task: ClassVar[str] = "federated"

    @property
    def kind(self) -> Kind:
        return self._open().description.kind

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self._open().description.input_shape

    @property
    def num_outputs(self) -> int:
        return self._open().description.num_outputs

    @property
    def display(self) -> Display:
        data = self._open()
        description = data.description
        if description.kind == "classification":
            return Display(
                class_names=description.class_names,
                high_is_dark="background_of_source" in description.notes,  # handwriting: high values are ink
            )
        if self.scaling == "none" or description.num_outputs > 1:
            return Display()
        found = read_scaling(data)
        mean, deviation = float(found.target_mean[0]), float(found.target_deviation[0])
        name = description.target_names[0]
        return Display(
            columns=(SummaryColumn("rmse", f"RMSE of {name}", ".4g", factor=deviation),),
            columns_note=(
                f"The models see {name} minus {mean:.4g}, divided by {deviation:.4g}, the mean and deviation of all "
                f"training records. RMSE and NLL are in this unit: to answer the mean always has an RMSE of about 1. "
                f"RMSE of {name} is in its own unit."
            ),
        )

    def _held_share(self, data: StoredData) -> float:
        return 0.0 if data.of_role("test") or self.num_test_clients else self.test_fraction

    def _minimum(self) -> tuple[str, int]:
        return "min_records", self.min_records

    def _open(self) -> StoredData:
        return open_data_set(self.data)

    def _points(self, data: StoredData, rows: np.ndarray) -> Points:
        points = data.points(rows)
        if self.scaling == "none":
            return points
        return make_points(*read_scaling(data).scale(np.asarray(points.x), np.asarray(points.y)))


def read_scaling(data: StoredData) -> Scaling:
    """As it was measured when the set was added; sets of older versions are measured now."""
    if "scaling" in data.index:
        return Scaling.from_lists(data.index["scaling"])
    training = [np.arange(one.start, one.start + one.count) for one in data.of_role("train", "extra")]
    return measure(data.inputs, data.description.input_scale, data.targets, np.concatenate(training))
