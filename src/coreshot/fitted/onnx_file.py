"""A fitted model as an ONNX file: encoded records in, class probabilities, or a mean and a deviation, out.

Its metadata say which input is which column, so that a program without coreshot can encode records as the study does.
"""

from __future__ import annotations

import json
from typing import Any

from coreshot.data.schema import Classes, Images, Quantity, Table
from coreshot.errors import CoreshotError
from coreshot.fitted.model import FittedModel
from coreshot.models.onnx_graph import Exports, Graph
from coreshot.study import Study


def to_onnx(model: FittedModel) -> bytes:
    study = model.study
    if not isinstance(model.posterior, Exports):
        raise CoreshotError("export --onnx: a model of this kind cannot be written; use --sklearn.")
    graph = Graph(study.agreement.input_shape)
    outputs = model.posterior.add_to_graph(graph, "x")
    if isinstance(study.target, Quantity):  # from the range -1 to 1 to the units of the study's file
        low, high = study.target.range
        half, middle = graph.constant((high - low) / 2), graph.constant((high + low) / 2)
        mean = graph.add("Add", graph.add("Mul", outputs["mean"], half), middle)
        outputs = {"mean": mean, "deviation": graph.add("Mul", outputs["deviation"], half)}
    return graph.to_bytes(outputs, describe(study))


def describe(study: Study) -> dict[str, str]:
    found = {
        "study": study.hash,
        "task": study.agreement.task,
        "kind": study.agreement.kind,
        "inputs": json.dumps(_inputs(study.inputs)),
    }
    if isinstance(study.target, Classes):
        found["classes"] = json.dumps(study.target.classes)
    if study.target is not None:
        found["target"] = study.target.name
    return found


def _inputs(inputs: Table | Images | None) -> Any:
    """How a record becomes inputs: of a column, the places of its inputs, and what they say."""
    if isinstance(inputs, Images):
        return {"images": list(inputs.shape), "range": list(inputs.range), "scaled to": [0, 1]}
    if inputs is None:
        return "as they are"
    rows, first = [], 0
    num_columns = sum(column.width for column in inputs.columns)
    for number, column in enumerate(inputs.columns):
        row: dict[str, Any] = {"column": column.name, "kind": column.kind, "inputs": [first, first + column.width - 1]}
        if column.kind == "category":
            row["one-hot of"] = list(column.choices)
        elif column.embedding is not None:
            row["vector of"] = [column.embedding.file, column.embedding.sha256, column.embedding.output]
        else:
            row["scaled to -1 and 1 from"] = list(column.bounds)
        if inputs.has_indicators:
            row["1 if missing, else 0"] = num_columns + number
        rows.append(row)
        first += column.width
    return rows
