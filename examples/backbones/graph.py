"""Nodes and constants of a graph of ONNX, written one after another."""

import hashlib

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET, IR_VERSION = 17, 8
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


class Writer:
    def __init__(self):
        self.nodes, self.constants = [], []

    def add(self, kind, *inputs, output=None, **attributes):
        output = output or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def constant(self, array, dtype=np.float32):
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array, dtype), name))
        return name

    def save(self, path, name, inputs, outputs):
        """inputs and outputs: (type, shape) by name. Prints the size and the SHA-256."""
        infos = [
            [helper.make_tensor_value_info(key, kind, shape) for key, (kind, shape) in part.items()]
            for part in (inputs, outputs)
        ]
        graph = helper.make_graph(self.nodes, name, *infos, self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        onnx.checker.check_model(made, full_check=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made.SerializeToString())
        announce(path)


def announce(path):
    data = path.read_bytes()
    print(f'file = "{path.name}"  # {len(data):,} bytes\nsha256 = "{hashlib.sha256(data).hexdigest()}"')
