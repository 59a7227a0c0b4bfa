"""Features of CIFAR-10 by EfficientNet-Lite0, once, into a folder outside of the repository; it goes on where it ended.

    python benchmarks/cifar10_features.py DATA.npz NETWORK.onnx CACHE --size 224 [--train 50000] [--test 10000]

DATA.npz is the JPEG copy (arrays jpeg, offsets, labels, is_test), sorted by class. Images are taken in a fixed random
order, so that the first ones are a random part. What is computed is what the feature map `onnx` computes, before
standardising and rounding: all outputs of the network, joined in the order of OUTPUTS. A row of zeros is not there yet.
"""

import argparse
import hashlib
import io
import os
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from coreshot.frozen.files import FOLDER
from coreshot.frozen.images import prepare_images
from coreshot.frozen.network import load_network, run_records

OUTPUTS = {"stage_5": 112, "stage_6": 192, "stage_7": 320, "pooled": 1280}
MEAN, DEVIATION = (0.498,) * 3, (0.502,) * 3
AT_ONCE = 50


def in_order(is_test):
    """The rows of the training and of the test images, each in a fixed random order."""
    draws = np.random.default_rng(10)
    return draws.permutation(np.flatnonzero(~is_test)), draws.permutation(np.flatnonzero(is_test))


def read_images(archive, rows):
    """Pixels from 0 to 1."""
    jpeg, offsets = archive["jpeg"], archive["offsets"]
    files = (io.BytesIO(jpeg[offsets[row] : offsets[row + 1]].tobytes()) for row in rows)
    return np.stack([np.asarray(Image.open(file)) for file in files]).astype(np.float32) / 255


def open_cache(cache, size, is_mirrored=False, mode="r"):
    """[images, numbers], in the file's order."""
    path = cache / f"lite0-{size}{'-mirrored' if is_mirrored else ''}.npy"
    if mode == "r" or path.exists():
        return np.load(path, mmap_mode=mode)
    cache.mkdir(parents=True, exist_ok=True)
    return np.lib.format.open_memmap(path, "w+", np.float32, (60_000, sum(OUTPUTS.values())))


def fill(archive, network, cache, size, is_mirrored, rows):
    kept = open_cache(cache, size, is_mirrored, "r+")
    for first in range(0, len(rows), AT_ONCE):
        chosen = np.sort(rows[first : first + AT_ONCE])
        chosen = chosen[~np.any(kept[chosen], axis=1)]
        if len(chosen) == 0:
            continue
        images = read_images(archive, chosen)
        images = images[:, :, ::-1] if is_mirrored else images
        ready = prepare_images(images, (size, size), "bicubic", MEAN, DEVIATION, "channels_first")
        kept[chosen] = run_records(network, "image", list(OUTPUTS), ready)
        if first % (10 * AT_ONCE) == 0:
            print(f"{size}: {first + len(rows[:AT_ONCE]):,} of {len(rows):,}", file=sys.stderr, flush=True)
    kept.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("network", type=Path)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--mirrored", action="store_true")
    parser.add_argument("--train", type=int, default=50_000)
    parser.add_argument("--test", type=int, default=10_000)
    parser.add_argument("--skip", type=int, default=0, help="of the training images, for a second process beside")
    given = parser.parse_args()
    os.environ[FOLDER] = str(given.network.parent)
    network = load_network(given.network.name, hashlib.sha256(given.network.read_bytes()).hexdigest())
    archive = dict(np.load(given.data))
    train, test = in_order(archive["is_test"])
    for rows in (train[given.skip : given.train], test[: given.test]):
        fill(archive, network, given.cache, given.size, given.mirrored, rows)


if __name__ == "__main__":
    main()
