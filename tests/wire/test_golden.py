"""Messages written by released versions are read, and written, byte for byte: format 1."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.api import fit
from coreshot.errors import CoreshotError
from coreshot.study.file import read_study
from coreshot.wire.messages import Message, decode_message, encode_message, read_header

STUDY = "5" * 64
GOLDEN = {
    "coreset-hard-1": {
        "x": jnp.asarray([[0.0, 1.5], [-2.0, 0.25]], jnp.float32),
        "labels": jnp.asarray([1, 0], jnp.int32),
        "num_examples": jnp.asarray([20.0], jnp.float32),
    },
    "coreset-soft-1": {
        "x": jnp.asarray([[0.5], [-0.5]], jnp.float32),
        "y": jnp.asarray([[1.25], [-3.0]], jnp.float32),
        "weight": jnp.asarray([1.5, 0.25], jnp.float32),
        "num_examples": jnp.asarray([100.0], jnp.float32),
    },
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_message(project, same, name):
    data = (project / "tests" / "wire" / "golden" / f"{name}.safetensors").read_bytes()
    message = decode_message(data, study_hash=STUDY, client="site-1")
    assert (message.kind, message.round) == ("coreset", 0)
    assert same(message.arrays, GOLDEN[name])
    assert encode_message(Message("coreset", 0, GOLDEN[name]), study_hash=STUDY, client="site-1") == data


@pytest.mark.parametrize("name", ["spectral-1", "private-spectral-1"])
def test_golden_study_and_its_files_still_make_the_same_model(project, name):
    """The hash is unchanged, so the files belong to the study; they declare its releases; predictions are the same."""
    folder = project / "tests" / "wire" / "golden" / name
    study, expected = read_study(folder / "study.toml"), json.loads((folder / "expected.json").read_text())
    files = [path.read_bytes() for path in sorted(folder.glob("*.coreset"))]
    assert [read_header(data)["study"] for data in files] == [study.hash, study.hash] == [expected["study"]] * 2
    np.testing.assert_allclose(fit(study, files).predict(expected["x"]).mean, expected["mean"], atol=1e-4)


def test_negative_control_a_file_of_the_other_study_is_refused(project):
    folder = project / "tests" / "wire" / "golden"
    study = read_study(folder / "spectral-1" / "study.toml")
    with pytest.raises(CoreshotError, match="belongs to study"):
        fit(study, [(folder / "private-spectral-1" / "site-1.coreset").read_bytes()])
