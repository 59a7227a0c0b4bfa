"""Tiny networks in files of ONNX, as people would bring them."""

import hashlib

import numpy as np
import onnx
from onnx import helper, numpy_helper

FLOAT = onnx.TensorProto.FLOAT


def write_graph(path, nodes, constants, inputs, outputs):
    """inputs and outputs: shapes by name. The file's SHA-256."""
    infos = [
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in part.items()]
        for part in (inputs, outputs)
    ]
    arrays = [numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "tiny", *infos, arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_conv_network(path, channels=1, seed=0, power=None):
    """Two convolutions; the output `low` has 5 numbers, `high` 8. power: of an image, so that -1 ** 0.5 is NaN."""
    rng, node = np.random.default_rng(seed), helper.make_node
    constants = {
        "first": rng.normal(size=(5, channels, 3, 3)),
        "second": rng.normal(size=(8, 5, 3, 3)) / 3,
        "power": power or 1.0,
    }
    nodes = [
        node("Pow" if power else "Identity", ["image", "power"] if power else ["image"], ["start"]),
        node("Conv", ["start", "first"], ["a"], auto_pad="SAME_UPPER"),
        node("Relu", ["a"], ["b"]),
        node("GlobalAveragePool", ["b"], ["c"]),
        node("Flatten", ["c"], ["low"], axis=1),
        node("Conv", ["b", "second"], ["d"], auto_pad="SAME_UPPER", strides=[2, 2]),
        node("Relu", ["d"], ["e"]),
        node("GlobalAveragePool", ["e"], ["f"]),
        node("Flatten", ["f"], ["high"], axis=1),
    ]
    shape = {"image": ["n", channels, "h", "w"]}
    return write_graph(path, nodes, constants, shape, {"low": ["n", 5], "high": ["n", 8], "e": ["n", 8, "p", "q"]})


def write_dense_network(path, num_inputs, num_outputs, seed=0):
    """tanh(W x), the output `hidden`."""
    rng, node = np.random.default_rng(seed), helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Tanh", ["a"], ["hidden"])]
    constants = {"w": rng.normal(size=(num_inputs, num_outputs))}
    return write_graph(path, nodes, constants, {"x": ["n", num_inputs]}, {"hidden": ["n", num_outputs]})
