"""A frozen network as a feature map: its weights are in a file that all sides have, and its hash is in the study.

The features are the last hidden layer. The file is safetensors: arrays by path (Dense_0/kernel), and as metadata the
network's settings, its input shape and its number of outputs.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import safetensors.numpy
from flax import traverse_util
from jaxtyping import Array, Float
from pydantic import Field

from coreshot.config import Count, decode_named, encode_named, settings
from coreshot.errors import CoreshotError
from coreshot.models import Model
from coreshot.models.networks import NETWORKS, Network
from coreshot.storage import write_bytes
from coreshot.types import Params, PRNGKey

FOLDER = "CORESHOT_NETWORKS"  # environment variable with the files' folder; the current folder by default


def save_network(path: Path, model: Model, params: Params) -> str:
    """Writes a network whose features studies can use, and returns the hash that they name."""
    header = {
        "network": encode_named(NETWORKS, model.network),
        "input_shape": list(model.input_shape),
        "num_outputs": model.num_outputs,
    }
    arrays = traverse_util.flatten_dict(params, sep="/")
    named = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    data = safetensors.numpy.save(named, {"coreshot": json.dumps(header, sort_keys=True)})
    write_bytes(path, data)
    return hashlib.sha256(data).hexdigest()


def load_network(path: Path, sha256: str) -> tuple[Model, Params]:
    if not path.is_file():
        raise CoreshotError(
            f"features: {path} does not exist; get the study's network, and put it there or set {FOLDER} to its folder."
        )
    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise CoreshotError(
            f"features: {path} has the SHA-256 {found[:12]}..., the study's network has {sha256[:12]}...; "
            "get the right file."
        )
    length = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["coreshot"])
    network: Network = decode_named(NETWORKS, header["network"], f"{path}", "network")
    model = Model(network, "classification", tuple(header["input_shape"]), header["num_outputs"], 0.0, 1.0)
    return model, traverse_util.unflatten_dict(safetensors.numpy.load(data), sep="/")


@settings
class Frozen:
    """The last hidden layer of a network in a file, which all sides have and nobody trains."""

    name: Literal["frozen"] = "frozen"
    dimension: Count  # of that layer
    file: str
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

    def _loaded(self) -> tuple[Model, Params]:
        return load_network(Path(os.environ.get(FOLDER, ".")) / self.file, self.sha256)

    def draw(self, key: PRNGKey, input_shape: tuple[int, ...]) -> dict[str, Array]:
        model, params = self._loaded()
        if math.prod(model.input_shape) != math.prod(input_shape):
            raise CoreshotError(
                f"features: {self.file} takes inputs of {model.input_shape}, the study has {input_shape}; "
                "name another network."
            )
        return traverse_util.flatten_dict(params, sep="/")

    def apply(self, weights: dict[str, Array], x: Float[Array, "n ..."]) -> Float[Array, "n d"]:
        model, _ = self._loaded()
        params: Any = traverse_util.unflatten_dict(weights, sep="/")
        found = model.embed(params, x.reshape(len(x), *model.input_shape))
        if found.shape[1] != self.dimension:
            raise CoreshotError(
                f"features: the last hidden layer of {self.file} has {found.shape[1]} units, the study says "
                f"{self.dimension}; change it."
            )
        return found
