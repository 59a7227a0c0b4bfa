"""A network in a file of ONNX, run by onnxruntime.

Each run has one thread and one record, and several cores take several records. So a record's features have the same
bits on one machine, whatever the number of cores and whatever the other records are. (Larger batches are not faster on
a CPU: EfficientNet-Lite0 takes 5.3 ms an image alone, and 6.3 ms in batches of 8.) Another machine may have other
instructions, which round differently: the study's `round_to` is for that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float

from coreshot.errors import CoreshotError
from coreshot.frozen.files import find_file, read_file

CORES = "OMP_NUM_THREADS"  # as other programs have it


def num_cores() -> int:
    text = os.environ.get(CORES, "")
    return max(1, int(text)) if text.isdigit() else os.cpu_count() or 1


@dataclass(frozen=True)
class Network:
    """A checked file, ready to run."""

    session: Any
    file: str
    where: str

    @property
    def inputs(self) -> dict[str, tuple[Any, ...]]:
        """By name, their shapes; a free extent is None or a word."""
        return {found.name: tuple(found.shape) for found in self.session.get_inputs()}

    @property
    def outputs(self) -> list[str]:
        return [found.name for found in self.session.get_outputs()]

    def check_outputs(self, outputs: Sequence[str]) -> None:
        lost = next((name for name in outputs if name not in self.outputs), None)
        if lost is not None:
            raise CoreshotError(
                f"{self.where}: {self.file} has no output {lost!r}; it has {', '.join(self.outputs)}: name one of them."
            )

    def run(self, outputs: Sequence[str], inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs of one batch."""
        try:
            return list(self.session.run(list(outputs), dict(inputs)))
        except Exception as error:  # onnxruntime's errors have no common class but Exception
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in inputs.items())
            raise CoreshotError(
                f"{self.where}: {self.file} does not take {shapes} ({type(error).__name__}; its inputs are "
                f"{_listed(self.inputs)}); change the study's size or layout."
            ) from None


def _listed(shapes: Mapping[str, Sequence[Any]]) -> str:
    free = {name: [extent if isinstance(extent, int) else "any" for extent in shape] for name, shape in shapes.items()}
    return ", ".join(f"{name} [{', '.join(map(str, shape))}]" for name, shape in free.items())


def load_network(file: str, sha256: str, where: str = "features") -> Network:
    """The last few are kept, because every client of a process needs the same one."""
    return _load(str(find_file(file)), file, sha256, where)


@lru_cache(maxsize=4)
def _load(path: str, file: str, sha256: str, where: str) -> Network:
    data = read_file(file, sha256, where)
    try:
        import onnxruntime
    except ImportError:
        raise CoreshotError(
            f"{where}: the package onnxruntime is not there; install it with `pip install coreshot[backbones]`."
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # its own lines would name files of this machine
    try:
        # From bytes, so that what runs is what was hashed: a graph cannot bring weights from other files.
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise CoreshotError(
            f"{where}: {path} cannot be loaded by onnxruntime ({type(error).__name__}); get a file of ONNX with all "
            "weights inside."
        ) from None
    return Network(session, file, where)


def run_records(
    network: Network, input_name: str, outputs: Sequence[str], x: Float[np.ndarray, "n ..."]
) -> Float[np.ndarray, "n d"]:
    """All outputs of all records, joined, each flattened; on as many cores as there are."""

    def one(index: int) -> np.ndarray:
        found = network.run(outputs, {input_name: x[index : index + 1]})
        for name, array in zip(outputs, found, strict=True):
            if array.shape[:1] != (1,) or array.dtype.kind != "f":
                raise CoreshotError(
                    f"{network.where}: output {name!r} of {network.file} is {array.dtype}{list(array.shape)} for one "
                    "record, not numbers for each; name another output."
                )
        return np.concatenate([array.ravel() for array in found]).astype(np.float32)

    joined = np.stack(map_in_cores(one, range(len(x))))
    check_finite(joined, network, outputs)
    return joined


def map_in_cores(function: Callable[[Any], np.ndarray], items: Sequence[Any]) -> list[np.ndarray]:
    if num_cores() == 1 or len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(num_cores()) as pool:
        return list(pool.map(function, items))


def check_finite(found: np.ndarray, network: Network, outputs: Sequence[str]) -> None:
    if not np.all(np.isfinite(found)):
        raise CoreshotError(
            f"{network.where}: {network.file} answers with numbers that are not finite ({', '.join(outputs)}); "
            "check the study's mean and deviation, or take another network."
        )
