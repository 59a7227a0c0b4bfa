"""Networks of dense layers as a graph of ONNX, all samples of their weights at once."""

from __future__ import annotations

import numpy as np

from coreshot.errors import CoreshotError
from coreshot.models.model import Model
from coreshot.models.networks import Mlp
from coreshot.models.onnx_graph import Graph
from coreshot.types import Params


def add_networks(graph: Graph, model: Model, params: Params, x: str) -> str:
    """Outputs [samples, records, outputs]; weights have a leading axis of samples."""
    network = model.network
    if not isinstance(network, Mlp) or network.norm_groups or network.precision != "float32":
        raise CoreshotError(
            "export --onnx: of networks, only dense layers without normalisation, in float32, can be written; "
            "use --sklearn."
        )
    found = graph.flatten(x)
    for number in range(len(network.hidden) + 1):
        layer = params[f"Dense_{number}"]
        kernel, bias = (graph.constant(np.asarray(layer[name])) for name in ("kernel", "bias"))
        moved = graph.add("Unsqueeze", bias, graph.constant([1], np.int64))
        found = graph.add("Add", graph.add("MatMul", found, kernel), moved)
        if number < len(network.hidden):
            found = _activate(graph, network.activation, found)
    return found


def _activate(graph: Graph, name: str, x: str) -> str:
    if name == "relu":
        return graph.add("Max", x, graph.constant(0.0))
    if name == "tanh":
        return graph.add("Tanh", x)
    return graph.add("Mul", x, graph.add("Sigmoid", x))
