"""Damaged and hostile coresets against the reader: python benchmarks/fuzz_coresets.py --count 100000 --minutes 20

Each file is a real coreset with bits flipped, bytes cut off, added or copied, sizes and shapes in its header made
huge, numbers made NaN or infinite,
or another study's hash; every one is read as the server reads it. It is accepted, or refused with a CoreshotError:
any other error, anything that
takes longer than a second, or memory that grows by more than 256 MB ends the run with exit code 1 and the file that
did it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np

from coreshot.errors import CoreshotError
from coreshot.methods.protocol import Method
from coreshot.models.networks import Mlp
from coreshot.privacy.guarded_records import guard_records
from coreshot.study import Agreement, Study
from coreshot.study.study import decode_work
from coreshot.types import make_points
from coreshot.wire.messages import Message, decode_message, encode_message

MAX_SECONDS = 1.0
MAX_GROWTH = 256 * 2**20
VECTOR = {"name": "random_vector", "dimension": 24}
WORK = {
    "spectral": ("method", {"name": "spectral", "features": VECTOR}),
    "coded spectral": ("method", {"name": "spectral", "features": VECTOR, "max_bytes": 900}),
    "private spectral": (
        "method",
        {"name": "private_spectral", "features": VECTOR, "privacy": {"epsilon": 1.0, "delta": 1e-5}},
    ),
    "points": ("learner", {"name": "random_subset", "num_points": 6}),
    "coded points": ("learner", {"name": "raw_images", "max_bytes": 40, "coding": {"bits": 8}}),
}
Reader = Callable[[bytes], None]
Draws = np.random.Generator


def seeds() -> list[tuple[str, bytes, Reader]]:
    """Of each kind a whole coreset, and how the server reads one."""
    agreement = Agreement(task="fuzz", kind="classification", input_shape=(4,), num_outputs=3, prior_precision=1.0)
    draws = np.random.default_rng(0)
    points = make_points(draws.normal(size=(30, 4)), np.eye(3)[draws.integers(3, size=30)])
    found = []
    for name, (key, settings) in WORK.items():
        method = decode_work({key: settings}, "fuzz")
        study = Study(agreement, Mlp(hidden=(4,), activation="relu"), method)
        asked = guard_records({"a": points}, study.releases)
        answers = method.reply(
            jax.random.key(0),
            study.model,
            asked,
            [Message("invitation", 0, {})],
            study.shared_key,
            lambda clients: None,
        )
        data = encode_message(answers["a"][0], study_hash=study.hash, client="a", releases=study.releases)

        def read(data: bytes, study: Study = study, method: Method = method) -> None:
            message = decode_message(data, study_hash=study.hash, client="a", releases=study.releases)
            method.read(study.model, "a", message)

        read(data)
        found.append((name, data, read))
    return found


def flip_bits(draws: Draws, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(int(draws.integers(1, 9))):
        changed[int(draws.integers(len(data)))] ^= 1 << int(draws.integers(8))
    return bytes(changed)


def cut(draws: Draws, data: bytes) -> bytes:
    return data[: int(draws.integers(len(data)))]


def lengthen(draws: Draws, data: bytes) -> bytes:
    return data + draws.bytes(int(draws.integers(1, 200)))


def copy_within(draws: Draws, data: bytes) -> bytes:
    size = int(draws.integers(1, 60))
    source, target = (int(draws.integers(max(1, len(data) - size))) for _ in range(2))
    return data[:target] + data[source : source + size] + data[target + size :]


def change_header(draws: Draws, data: bytes) -> bytes:
    """Sizes, shapes, types and names in the JSON, with a length that fits it."""
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    names = [name for name in header if name != "__metadata__"]
    entry = header[names[int(draws.integers(len(names)))]]
    huge = [0, -1, 1, 2**31, 2**40, 2**62, 10**30][int(draws.integers(7))]
    which = int(draws.integers(6))
    if which == 0:
        entry["shape"] = [huge] * int(draws.integers(0, 4))
    elif which == 1:
        entry["data_offsets"] = [0, huge]
    elif which == 2:
        entry["dtype"] = ["F64", "BOOL", "I8", "F16", "X", "BF16"][int(draws.integers(6))]
    elif which == 3:
        header["__metadata__"]["coreshot"] = header["__metadata__"]["coreshot"].replace('"round":0', f'"round":{huge}')
    elif which == 4:
        inner = json.loads(header["__metadata__"]["coreshot"])
        inner["study"] = draws.bytes(32).hex()
        header["__metadata__"]["coreshot"] = json.dumps(inner)
    else:
        header[f"more{huge}"] = dict(entry)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def claim_length(draws: Draws, data: bytes) -> bytes:
    return struct.pack("<Q", int(draws.integers(2**63))) + data[8:]


def poison(draws: Draws, data: bytes) -> bytes:
    """NaN, infinity and extremes somewhere in the payload."""
    value = struct.pack("<f", [np.nan, np.inf, -np.inf, 3e38, -1.0, 0.0, 1e-45][int(draws.integers(7))])
    length = struct.unpack("<Q", data[:8])[0]
    place = 8 + length + 4 * int(draws.integers(max(1, (len(data) - 8 - length) // 4)))
    return data[:place] + value + data[place + 4 :]


MUTATIONS = (flip_bits, cut, lengthen, copy_within, change_header, claim_length, poison)


def fuzz(count: int, seconds: float, seed: int) -> Counter[str]:
    """How many of each kind were accepted and refused; a RuntimeError at the first that did anything else."""
    kinds, draws, told, began = seeds(), np.random.default_rng(seed), Counter[str](), time.monotonic()
    for index in range(count):
        if time.monotonic() - began > seconds:
            break
        name, whole, read = kinds[index % len(kinds)]
        data = whole
        for _ in range(int(draws.integers(1, 3))):
            mutation = MUTATIONS[int(draws.integers(len(MUTATIONS)))]
            try:
                data = mutation(draws, data) or b"\x00"
            except (ValueError, KeyError, TypeError, struct.error, IndexError, AttributeError):
                continue  # it is too damaged for a second mutation
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, time.monotonic()
        try:
            read(data)
            told[f"{name}: accepted"] += 1
        except CoreshotError:
            told[f"{name}: refused"] += 1
        except Exception as error:
            raise RuntimeError(f"{name}: {type(error).__name__}: {error} ({_kept(data)})") from error
        growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        if time.monotonic() - start > MAX_SECONDS or growth > MAX_GROWTH:
            raise RuntimeError(
                f"{name}: took {time.monotonic() - start:.1f} s and {growth / 2**20:.0f} MB ({_kept(data)})"
            )
    return told


def _kept(data: bytes) -> str:
    path = Path(tempfile.mkdtemp()) / "found.coreset"
    path.write_bytes(data)
    return f"kept as {path}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.monotonic()
    try:
        told = fuzz(options.count, 60 * options.minutes, options.seed)
    except RuntimeError as error:
        print(f"fuzz: {error}", file=sys.stderr)
        sys.exit(1)
    print(f"{sum(told.values()):,} files in {time.monotonic() - began:.0f} s")
    for name, number in sorted(told.items()):
        print(f"{name}: {number:,}")


if __name__ == "__main__":
    main()
