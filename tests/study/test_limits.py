"""What a study or a header may ask for is limited, and the limit is checked before any work."""

import hashlib
import json
import time

import jax
import numpy as np
import pytest
import safetensors.numpy
import tomli_w

from coreshot.config import decode
from coreshot.errors import CoreshotError
from coreshot.fitted.inspection import inspect_message
from coreshot.models import Model
from coreshot.models.networks import Mlp
from coreshot.privacy.releases import Release, parse_releases
from coreshot.spectral.frozen_network import Frozen, load_network, save_network
from coreshot.study import Study
from coreshot.wire.messages import Message, encode_message

BASE = {
    "task": "large",
    "kind": "classification",
    "input_shape": [2],
    "num_outputs": 2,
    "prior_precision": 1.0,
    "network": {"name": "mlp", "hidden": [4], "activation": "relu"},
    "learner": {"name": "random_subset", "num_points": 4},
}
SUBSET = {"name": "random_subset", "num_points": 100_000}
SPECTRAL = {"name": "spectral", "features": {"name": "random_vector", "dimension": 10**9}}
ONNX = {"name": "onnx", "dimension": 4, "file": "a", "sha256": "ab" * 32, "outputs": ["y"], "input_size": [9, 10**5]}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"input_shape": [10**5, 10**5]}, "input_shape gives 10,000,000,000 numbers for a record"),
        ({"input_shape": [10**300]}, "input_shape gives far too many numbers"),
        ({"num_outputs": 10**9}, "num_outputs = 1,000,000,000, and the limit is 100,000"),
        ({"seed": 10**30}, "seed is not a whole number of 64 bits"),
        ({"learner": {"name": "random_subset", "num_points": 10**7}}, "num_points = 10,000,000, and the limit is"),
        ({"input_shape": [10**6], "learner": SUBSET}, "points and inputs give 100,000,000,000 numbers"),
        ({"network": {"name": "mlp", "hidden": [10**5, 10**5], "activation": "relu"}}, "the network's layers have"),
        ({"learner": None, "method": SPECTRAL}, "dimension = 1,000,000,000, and the limit is 20,000"),
        ({"learner": None, "method": {"name": "glm", "dimension": 10**6}}, "dimension = 1,000,000, and the limit"),
        ({"learner": None, "method": {"name": "spectral", "features": ONNX}}, "input_size = 100,000, and the limit is"),
    ],
)
def test_a_study_that_asks_for_too_much_is_one_sentence(change, sentence):
    values = {key: value for key, value in {**BASE, **change}.items() if value is not None}
    Study.from_dict(BASE)
    began = time.perf_counter()
    with pytest.raises(CoreshotError, match=sentence):
        Study.from_dict(values)
    assert time.perf_counter() - began < 1


def test_experts_have_a_limit(make_study, bpc_settings):
    with pytest.raises(CoreshotError, match="num_trajectories = 1,000,000,000, and the limit is 10,000"):
        Study.from_dict(
            {**BASE, "learner": {**bpc_settings, "experts": {**bpc_settings["experts"], "num_trajectories": 10**9}}}
        )


def noisy(number):
    return Release(f"r{number}", "sums", "dp_sgd", 1.0, 0.7 + number / 1000, 10_000, 0.001, 1e-5)


def message(releases):
    return encode_message(Message("coreset", 0, {}), study_hash="ab" * 32, client="a", releases=releases)


@pytest.mark.parametrize("number", [5, 17, 200])
def test_a_header_with_many_releases_is_refused_at_once(number):
    """200 of them kept `inspect` busy for a minute."""
    began = time.perf_counter()
    with pytest.raises(CoreshotError, match="releases"):
        inspect_message(message([noisy(index) for index in range(number)]), "f.coreset")
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize(("multiplier", "steps", "rate"), [(0.06, 10**5, 0.001), (6.5, 10**5, 1.0), (0.05, 1, 1.0)])
def test_noise_too_small_for_any_promise_is_not_accounted(multiplier, steps, rate):
    """The accountant took minutes for one of them."""
    release = Release("r", "sums", "dp_sgd", 1.0, multiplier, steps, rate, 1e-5)
    with pytest.raises(CoreshotError, match="its list of releases cannot be read"):
        parse_releases([release.to_dict()], "here")
    fine = Release("r", "sums", "dp_sgd", 1.0, 0.7, 10_000, 0.001, 1e-5)
    assert parse_releases([fine.to_dict()], "here") == (fine,)


@pytest.mark.parametrize("file", ["../../../etc/passwd", "/etc/passwd", "a/../../b", "..\\..\\b", "C:\\b", ".."])
def test_a_network_s_file_stays_in_its_folder(file):
    with pytest.raises(CoreshotError, match="leads out of the folder of networks; name a file inside it"):
        decode(Frozen, {"dimension": 4, "file": file, "sha256": "ab" * 32}, "features")
    assert Frozen(dimension=4, file="below/net.safetensors", sha256="ab" * 32)


@pytest.fixture
def network(tmp_path):
    model = Model(Mlp(hidden=(4,), activation="relu"), "classification", (2,), 2, 0.0, 1.0)
    path = tmp_path / "net.safetensors"
    return path, save_network(path, model, model.init(jax.random.key(0)))


def test_the_hash_of_another_file_is_not_shown(tmp_path, network):
    load_network(*network)
    other = tmp_path / "patients.csv"
    other.write_text("age\n50\n")
    with pytest.raises(CoreshotError, match="is not the study's network, whose SHA-256 is abababababab") as caught:
        load_network(other, "ab" * 32)
    assert hashlib.sha256(other.read_bytes()).hexdigest()[:6] not in str(caught.value)


def bad_networks(header, arrays):
    def with_header(**change):
        return safetensors.numpy.save(arrays, {"coreshot": json.dumps({**header, **change})})

    yield b""
    yield b"\xff" * 100
    yield safetensors.numpy.save(arrays)
    yield safetensors.numpy.save(arrays, {"coreshot": "[" * 100_000})
    yield with_header(network={"name": "mlp"})
    yield with_header(network=3)
    yield with_header(input_shape="ab")
    yield with_header(input_shape=[-1])
    yield with_header(num_outputs=10**12)
    yield with_header(num_outputs=3)
    yield safetensors.numpy.save({**arrays, "more": np.zeros(2, np.float32)}, {"coreshot": json.dumps(header)})


def test_a_bad_network_file_is_one_sentence(network):
    path, _ = network
    good = path.read_bytes()
    header = json.loads(json.loads(good[8 : 8 + int.from_bytes(good[:8], "little")])["__metadata__"]["coreshot"])
    for data in bad_networks(header, safetensors.numpy.load(good)):
        path.write_bytes(data)
        with pytest.raises(CoreshotError) as caught:
            load_network(path, hashlib.sha256(data).hexdigest())
        assert str(path) in str(caught.value)


def test_a_site_limits_the_memory_of_a_study(coreshot, study_path, write_site):
    patients = write_site("patients")
    said = coreshot("distill", study_path, patients, "--out", "a.coreset", "--max-memory", 0.25, code=2)
    assert "study: needs about 0.3 GB of memory or disk for 1 records, and this site's limit is 0.2 GB" in said
    assert "raise it with --max-memory" in said
    coreshot("distill", study_path, patients, "--out", "a.coreset", "--max-memory", 1)


def test_memory_is_refused_before_the_records_are_read(coreshot, study_path, tmp_path, bpc_settings):
    """The experts of a learner: the records' file would be refused too, and nobody looks at it."""
    experts = {**bpc_settings["experts"], "num_trajectories": 5000, "num_steps": 5000, "save_interval": 1}
    text = study_path.read_text()
    learner = tomli_w.dumps({"learner": {**bpc_settings, "experts": {**experts, "store": "memory"}}})
    study_path.write_text(text[: text.index("[method]")] + learner)
    (tmp_path / "patients.csv").write_text("nonsense")
    said = coreshot("distill", study_path, "patients.csv", "--out", "a.coreset", code=2)
    assert "GB of memory or disk for 1 records, and this site's limit is 8.0 GB" in said
