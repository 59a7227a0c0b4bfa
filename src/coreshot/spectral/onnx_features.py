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
from coreshot.spectral.whitened_patches import FLOOR, WhitenedPatches


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
    if isinstance(features, WhitenedPatches):
        cells = _whitened_cells(graph, features, weights, x)
        moved = graph.add("Sub", cells, graph.constant(weights["center"][None]))
        return graph.add("Div", moved, graph.constant(weights["spread"]))
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
    products = _normal_products(graph, weights["filters"], x, 1, CONTRAST_FLOOR)
    normal = graph.add("Sub", products, graph.constant(features.threshold))
    return graph.flatten(_pooled(graph, graph.add("Max", normal, graph.constant(0.0)), features.size, 1, features.grid))


def _whitened_cells(graph: Graph, features: WhitenedPatches, weights: dict[str, np.ndarray], x: str) -> str:
    products = _normal_products(graph, weights["kernel"], x, features.stride, FLOOR)
    parts = []
    for sign in (1.0, -1.0):
        signed = graph.add("Mul", products, graph.constant(sign))
        answers = graph.add("Sub", signed, graph.constant(features.threshold))
        active = graph.add("Max", answers, graph.constant(0.0))
        parts.append(_pooled(graph, active, features.size, features.stride, features.grid))
    return graph.flatten(graph.add("Concat", *parts, axis=3))


def _normal_products(graph: Graph, filters: np.ndarray, x: str, stride: int, floor: float) -> str:
    """Filters on patches, over the patches' deviation: records, filters, lines, columns.

    Convolutions in float32, as runtimes have them, and the rest in float64. Images come with channels last.
    """
    size, channels = filters.shape[0], filters.shape[2]
    image = graph.add("Cast", graph.add("Transpose", x, perm=[0, 3, 1, 2]), to=_FLOAT)
    mean_filter = np.full((1, channels, size, size), 1 / (channels * size**2), np.float32)

    def convolve(image: str, kernel: np.ndarray) -> str:
        return _double(graph, graph.add("Conv", image, graph.constant(kernel, np.float32), strides=[stride, stride]))

    products = convolve(image, filters.transpose(3, 2, 0, 1))
    mean, square = convolve(image, mean_filter), convolve(graph.add("Mul", image, image), mean_filter)
    variance = graph.add("Max", graph.add("Sub", square, graph.add("Mul", mean, mean)), graph.constant(0.0))
    return graph.add("Div", products, graph.add("Sqrt", graph.add("Add", variance, graph.constant(floor))))


def _pooled(graph: Graph, answers: str, size: int, stride: int, grid: int) -> str:
    """Averages over the cells of a grid: records, lines, columns, filters."""
    extents = [(extent - size) // stride + 1 for extent in graph.input_shape[:2]]
    lines, columns = (graph.constant(cell_averages(extent, grid)) for extent in extents)
    pooled = graph.add("MatMul", graph.add("MatMul", lines, answers), graph.add("Transpose", columns, perm=[1, 0]))
    return graph.add("Transpose", pooled, perm=[0, 2, 3, 1])


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
