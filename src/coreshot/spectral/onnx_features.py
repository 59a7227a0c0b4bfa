"""Feature maps and the link of a spectral model as a graph of ONNX."""

from __future__ import annotations

import math

import numpy as np

from coreshot.errors import CoreshotError
from coreshot.models.onnx_graph import Graph
from coreshot.spectral.calibration import Link
from coreshot.spectral.features import (
    BIAS,
    CONTRAST_FLOOR,
    FeatureMap,
    Identity,
    RandomConv,
    RandomVector,
    UnitMap,
)
from coreshot.spectral.pooling import cell_averages


def add_map(graph: Graph, drawn: FeatureMap | UnitMap, x: str) -> str:
    """Features with the constant last."""
    if isinstance(drawn, UnitMap):
        moved = graph.add("Sub", _add_plain(graph, drawn.inner, x), graph.constant(drawn.center[None]))
        norm = graph.add("Sqrt", graph.sum_rows(graph.add("Mul", moved, moved)))
        rows = graph.add("Div", moved, graph.add("Max", norm, graph.constant(1e-12)))
        rows = graph.add("Mul", rows, graph.constant(math.sqrt(1 - BIAS**2)))
        return _with_constant(graph, rows, BIAS)
    return _with_constant(graph, _add_plain(graph, drawn, x), 1.0)


def _with_constant(graph: Graph, rows: str, value: float) -> str:
    first = graph.take(rows, [0])
    constant = graph.add("Add", graph.add("Mul", first, graph.constant(0.0)), graph.constant(value))
    return graph.add("Concat", rows, constant, axis=1)


def _add_plain(graph: Graph, drawn: FeatureMap, x: str) -> str:
    features, weights = drawn.features, {name: np.asarray(array) for name, array in drawn.weights.items()}
    if isinstance(features, Identity):
        return graph.flatten(x)
    if isinstance(features, RandomVector):
        flat = graph.add("Div", graph.flatten(x), graph.constant(features.input_scale))
        seen = _with_constant(graph, flat, 1.0) if features.nonlinearity == "relu" else flat
        found = _activate(graph, features.nonlinearity, features.frequency, weights, seen)
        return graph.add("Concat", flat, found, axis=1) if features.with_inputs else found
    if isinstance(features, RandomConv):
        cells = _cells(graph, features, weights, x)
        moved = graph.add("Sub", cells, graph.constant(weights["center"][None]))
        cells = graph.add("Div", moved, graph.constant(weights["spread"]))
        return _activate(graph, features.nonlinearity, features.frequency, weights, cells)
    raise CoreshotError(
        f"export --onnx: features {getattr(features, 'name', '?')!r} cannot be written; "
        "export the network that they come from, and use --sklearn."
    )


def _activate(graph: Graph, nonlinearity: str, frequency: float, weights: dict[str, np.ndarray], x: str) -> str:
    products = graph.add("MatMul", x, graph.constant(weights["kernel"]))
    if nonlinearity == "relu":
        active = graph.add("Max", products, graph.constant(0.0))
    else:
        moved = graph.add("Mul", products, graph.constant(frequency))
        active = graph.add("Cos", graph.add("Add", moved, graph.constant(weights["phase"][None])))
    return graph.add("Mul", active, graph.constant(math.sqrt(2)))


def _cells(graph: Graph, features: RandomConv, weights: dict[str, np.ndarray], x: str) -> str:
    """Convolutions in float32, as runtimes have them, and the rest in float64. Images come with channels last."""
    filters = weights["filters"]
    size, channels = features.size, filters.shape[2]
    image = graph.add("Cast", graph.add("Transpose", x, perm=[0, 3, 1, 2]), to=_FLOAT)
    mean_filter = np.full((1, channels, size, size), 1 / (channels * size**2), np.float32)
    kernel = graph.constant(filters.transpose(3, 2, 0, 1), np.float32)
    products = _double(graph, graph.add("Conv", image, kernel))
    average = graph.constant(mean_filter, np.float32)
    mean = _double(graph, graph.add("Conv", image, average))
    square = _double(graph, graph.add("Conv", graph.add("Mul", image, image), average))
    variance = graph.add("Max", graph.add("Sub", square, graph.add("Mul", mean, mean)), graph.constant(0.0))
    contrast = graph.add("Sqrt", graph.add("Add", variance, graph.constant(CONTRAST_FLOOR)))
    normal = graph.add("Sub", graph.add("Div", products, contrast), graph.constant(features.threshold))
    answers = graph.add("Max", normal, graph.constant(0.0))  # records, filters, lines, columns
    extents = [extent - size + 1 for extent in graph.input_shape[:2]]
    lines, columns = (graph.constant(cell_averages(extent, features.grid)) for extent in extents)
    pooled = graph.add("MatMul", graph.add("MatMul", lines, answers), graph.add("Transpose", columns, perm=[1, 0]))
    last = graph.add("Transpose", pooled, perm=[0, 2, 3, 1])
    return graph.flatten(last)


_FLOAT, _DOUBLE = 1, 11  # ONNX's numbers of types


def _double(graph: Graph, x: str) -> str:
    return graph.add("Cast", x, to=_DOUBLE)


def add_link(graph: Graph, link: Link, scores: str, variance: str) -> str:
    """Logits; runtimes have no asinh in float64: it is sign(s) log(|s| + sqrt(s^2 + 1))."""
    floor = graph.add("Sqrt", graph.add("Add", variance, graph.constant(link.floor**2)))
    ratio = graph.add("Div", scores, floor)
    root = graph.add("Sqrt", graph.add("Add", graph.add("Mul", ratio, ratio), graph.constant(1.0)))
    size = graph.add("Log", graph.add("Add", graph.add("Abs", ratio), root))
    logs = graph.add("Mul", graph.add("Mul", graph.add("Sign", ratio), size), graph.constant(link.logarithm))
    linear = graph.add("MatMul", scores, graph.constant(link.directions))
    parts = graph.add("Add", graph.add("Add", logs, linear), graph.constant(link.offsets[None]))
    return graph.add("Mul", parts, graph.add("Div", graph.constant(link.scale * link.floor), floor))
