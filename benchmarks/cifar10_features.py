"""Features of CIFAR-10 by EfficientNet-Lite0, once, into a folder outside of the repository: resumable, in parts.

    python benchmarks/cifar10_features.py DATA.npz NETWORK.onnx CACHE --size 224 [--mirrored] [--parts 0 60]

DATA.npz is the JPEG copy (arrays jpeg, offsets, labels, is_test). Each part has 1,000 images in the file's order, all
outputs of the network joined in the order of OUTPUTS, as float32, before standardising and rounding. What is computed is
what the feature map `onnx` computes: the same functions.
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
PART = 1000


def read_images(archive, first, last):
    """Pixels from 0 to 1."""
    jpeg, offsets = archive["jpeg"], archive["offsets"]
    found = [np.asarray(Image.open(io.BytesIO(jpeg[offsets[i] : offsets[i + 1]].tobytes()))) for i in range(first, last)]
    return np.stack(found).astype(np.float32) / 255


def cache_folder(cache, size, is_mirrored):
    return cache / f"{size}{'-mirrored' if is_mirrored else ''}"


def features(data, network, cache, size, is_mirrored, parts):
    """Makes what is not there yet."""
    os.environ[FOLDER] = str(network.parent)
    ready = load_network(network.name, hashlib.sha256(network.read_bytes()).hexdigest())
    archive = {name: array for name, array in np.load(data).items() if name in ("jpeg", "offsets")}
    folder = cache_folder(cache, size, is_mirrored)
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(*parts):
        path = folder / f"{part:03d}.npy"
        if path.exists():
            continue
        images = read_images(archive, part * PART, (part + 1) * PART)
        images = images[:, :, ::-1] if is_mirrored else images
        found = []
        for first in range(0, PART, 100):
            ready_images = prepare_images(
                images[first : first + 100], (size, size), "bicubic", MEAN, DEVIATION, "channels_first"
            )
            found.append(run_records(ready, "image", list(OUTPUTS), ready_images))
        temporary = path.with_suffix(".tmp.npy")
        np.save(temporary, np.concatenate(found))
        temporary.rename(path)
        print(f"{path.parent.name}: part {part}", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("network", type=Path)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--mirrored", action="store_true")
    parser.add_argument("--parts", type=int, nargs=2, default=(0, 60))
    given = parser.parse_args()
    features(given.data, given.network, given.cache, given.size, given.mirrored, given.parts)


if __name__ == "__main__":
    main()
