"""A graph of ONNX, to which the parts of a model add what they compute, so that other programs can run it.

Everything is computed in float64, because products of columns lose digits in float32. onnx is imported when a graph
becomes bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from coreshot.errors import CoreshotError

OPSET = 17
IR_VERSION = 8  # what runtimes of 2022 and later read


@runtime_checkable
class Exports(Protocol):
    """A posterior that can say its predictions as a graph."""

    def add_to_graph(self, graph: Graph, x: str) -> Outputs:
        """Names of the nodes "probabilities", or "mean" and "deviation"; x is the node of the inputs, in float64."""


Outputs = dict[str, str]


class Graph:
    def __init__(self, input_shape: tuple[int, ...]) -> None:
        self.input_shape = input_shape
        self.nodes: list[tuple[str, tuple[str, ...], str, dict[str, Any]]] = []
        self.constants: dict[str, np.ndarray] = {}

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append((operator, inputs, name, attributes))
        return name

    def flatten(self, x: str) -> str:
        """One line for each record."""
        return self.add("Flatten", x, axis=1)

    def take(self, x: str, columns: Any) -> str:
        return self.add("Gather", x, self.constant(columns, np.int64), axis=1)

    def sum_rows(self, x: str) -> str:
        """The sum of each line, as a column."""
        return self.add("ReduceSum", x, self.constant([1], np.int64), keepdims=1)

    def softmax(self, logits: str) -> str:
        return self.add("Softmax", logits, axis=1)

    def to_bytes(self, outputs: Outputs, metadata: Mapping[str, str]) -> bytes:
        """The model's input is `inputs`, float32, with any number of records; its outputs are float64."""
        onnx = import_onnx()
        helper, types = onnx.helper, onnx.TensorProto
        cast = helper.make_node("Cast", ["inputs"], ["x"], to=types.DOUBLE)
        nodes = [helper.make_node(op, list(inputs), [name], **more) for op, inputs, name, more in self.nodes]
        ends = [helper.make_node("Identity", [node], [name]) for name, node in outputs.items()]
        constants = [onnx.numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        start = helper.make_tensor_value_info("inputs", types.FLOAT, ["records", *self.input_shape])
        said = [helper.make_tensor_value_info(name, types.DOUBLE, ["records", "outputs"]) for name in outputs]
        graph = helper.make_graph([cast, *nodes, *ends], "coreshot", [start], said, constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, producer_name="coreshot", opset_imports=opsets, ir_version=IR_VERSION)
        helper.set_model_props(model, dict(metadata))
        onnx.checker.check_model(model)
        return bytes(model.SerializeToString())


def import_onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise CoreshotError(
            "export --onnx: the package onnx is not there; install it with `pip install coreshot[export]`."
        ) from None
    return onnx
