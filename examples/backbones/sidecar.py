"""The sidecar of an image network: means and deviations of its outputs on public images, never on a site's.

    .venv/bin/python examples/backbones/sidecar.py networks/efficientnet-lite0.onnx --size 160 \
        --mean 0.498 --deviation 0.502

The public images are random crops of the two photographs that scikit-learn carries (china.jpg and flower.jpg, CC BY),
of 32 x 32 to 320 x 320 pixels, some mirrored, shrunk to 32 x 32 as small pictures are, and enlarged as the study says.
"""

import argparse
import hashlib
import json
import os
from pathlib import Path

import numpy as np
from sklearn.datasets import load_sample_images

from coreshot.frozen.files import FOLDER
from coreshot.frozen.images import prepare_images
from coreshot.frozen.network import load_network, run_records
from coreshot.spectral.public_constants import FORMAT

SMALL = 32


def public_images(number, channels=3):
    """[number, 32, 32, channels], from 0 to 1."""
    draws, photographs = np.random.default_rng(0), load_sample_images().images
    found = []
    for index in range(number):
        photograph = photographs[index % len(photographs)]
        extent = int(np.exp(draws.uniform(np.log(SMALL), np.log(320))))
        top, left = (draws.integers(0, size - extent + 1) for size in photograph.shape[:2])
        crop = photograph[top : top + extent, left : left + extent].astype(np.float32)[None] / 255
        crop = crop[:, :, ::-1] if draws.random() < 0.5 else crop
        small = prepare_images(crop, (SMALL, SMALL), "bilinear", (0.0,), (1.0,), "channels_last")[0]
        found.append(small if channels == 3 else small.mean(axis=2, keepdims=True))
    return np.stack(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", type=Path)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--mean", type=float, default=0.0)
    parser.add_argument("--deviation", type=float, default=1.0)
    parser.add_argument("--images", type=int, default=300)
    given = parser.parse_args()
    os.environ[FOLDER] = str(given.network.parent)
    sha256 = hashlib.sha256(given.network.read_bytes()).hexdigest()
    network = load_network(given.network.name, sha256)
    name, size = next(iter(network.inputs)), (given.size, given.size)
    scaling = ((given.mean,) * 3, (given.deviation,) * 3, "channels_first")
    images = public_images(given.images)
    names, parts = network.outputs, []
    for first in range(0, len(images), 20):
        ready = prepare_images(images[first : first + 20], size, "bicubic", *scaling)
        parts.append(run_records(network, name, names, ready))
    found = np.concatenate(parts).astype(np.float64)
    extents = [run_records(network, name, [output], ready[:1]).shape[1] for output in names]
    outputs = {}
    for output, every in zip(names, np.split(found, np.cumsum(extents)[:-1], axis=1), strict=True):
        mean, deviation = (np.round(part, 6).tolist() for part in (every.mean(axis=0), every.std(axis=0)))
        outputs[output] = {"mean": mean, "deviation": deviation}
    made_on = f"{given.images} crops of scikit-learn's two photographs, {SMALL} x {SMALL}, enlarged to {given.size}"
    text = json.dumps({"format": FORMAT, "network_sha256": sha256, "made_on": made_on, "outputs": outputs}) + "\n"
    path = given.network.with_suffix(f".{given.size}.json")
    path.write_text(text)
    print(f'sidecar = "{path.name}"\nsidecar_sha256 = "{hashlib.sha256(text.encode()).hexdigest()}"')


if __name__ == "__main__":
    main()
