"""A frozen network as a feature map: its weights are in a file that all sides have, and its hash is in the study.

The features are the last hidden layer. The file is safetensors: arrays by path (Dense_0/kernel), and as metadata the
network's settings, its input shape and its number of outputs.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Array, Float

from coreshot.config import Count, decode_named, encode_named, settings
from coreshot.errors import CoreshotError
from coreshot.frozen.files import FOLDER, Sha256, check_inside, find_file
from coreshot.models import Model
from coreshot.models import nested as traverse_util
from coreshot.models.networks import NETWORKS, Network
from coreshot.storage import write_bytes
from coreshot.types import Params, PRNGKey

MAX_SIZE = 10**8  # inputs times outputs


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
    # The hash of what was found is not shown: the study chose the file's name, and may have chosen any file here.
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CoreshotError(
            f"features: {path} is not the study's network, whose SHA-256 is {sha256[:12]}...; get the right file."
        )
    try:
        return _parse_network(data, str(path))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, safetensors.SafetensorError) as error:
        if isinstance(error, CoreshotError):
            raise
        raise CoreshotError(
            f"features: {path} is not a network that coreshot has written ({type(error).__name__}); "
            "ask the coordinator for another."
        ) from None


def _parse_network(data: bytes, where: str) -> tuple[Model, Params]:
    length = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["coreshot"])
    network: Network = decode_named(NETWORKS, header["network"], where, "network")
    shape, num_outputs = tuple(map(int, header["input_shape"])), int(header["num_outputs"])
    if min((*shape, num_outputs)) < 1 or math.prod(shape) * num_outputs > MAX_SIZE:
        raise CoreshotError(f"{where}: inputs of {shape} or {num_outputs} outputs are no network; ask for another.")
    model, arrays = Model(network, "classification", shape, num_outputs, 0.0, 1.0), safetensors.numpy.load(data)
    wanted = {name: leaf.shape for name, leaf in traverse_util.flatten_dict(model.shapes(), sep="/").items()}
    if {name: array.shape for name, array in arrays.items()} != wanted:
        raise CoreshotError(f"{where}: its arrays are not those of the network that it describes; ask for another.")
    return model, traverse_util.unflatten_dict(arrays, sep="/")


@settings
class Frozen:
    """The last hidden layer of a network in a file, which all sides have and nobody trains."""

    name: Literal["frozen"] = "frozen"
    dimension: Count  # of that layer
    file: str
    sha256: Sha256

    def __post_init__(self) -> None:
        check_inside(self.file)

    def _loaded(self) -> tuple[Model, Params]:
        return load_network(find_file(self.file), self.sha256)

    def check(self, input_shape: tuple[int, ...]) -> None:
        model, _ = self._loaded()
        if math.prod(model.input_shape) != math.prod(input_shape):
            raise CoreshotError(
                f"features: {self.file} takes inputs of {model.input_shape}, the study has {input_shape}; "
                "name another network."
            )

    def draw(self, key: PRNGKey, input_shape: tuple[int, ...]) -> dict[str, Array]:
        _, params = self._loaded()
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

    def operations(self, input_shape: tuple[int, ...]) -> float:
        """Of dense layers. A convolution uses its weights several times, so its network takes longer."""
        return 2 * self._loaded()[0].num_params()
