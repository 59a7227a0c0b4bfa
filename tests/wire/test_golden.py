"""Messages written by released versions are read, and written, byte for byte: format 1."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.errors import CoreshotError
from coreshot.fitted.model import fit
from coreshot.study.file import read_study
from coreshot.wire.messages import Message, decode_message, encode_message, pack, read_header, unpack

pytestmark = pytest.mark.optimized  # as users compile

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


@pytest.fixture(params=["spectral-1", "private-spectral-1"])
def golden(request, project):
    return project / "tests" / "wire" / "golden" / request.param


def renamed(data, study_hash):
    """The same message under another study's hash."""
    header, arrays = unpack(data)
    return pack({**header, "study": study_hash}, arrays)


def test_golden_files_still_make_the_same_model(golden):
    """They declare what their study declares, and predictions are as they were. Their study's hash was computed in
    another way before format 2 of the hash: as they stand, they belong to another study."""
    study, expected = read_study(golden / "study.toml"), json.loads((golden / "expected.json").read_text())
    files = [path.read_bytes() for path in sorted(golden.glob("*.coreset"))]
    assert [read_header(data)["study"] for data in files] == [expected["study"]] * 2
    with pytest.raises(CoreshotError, match="belongs to study"):
        fit(study, files)
    model = fit(study, [renamed(data, study.hash) for data in files])
    np.testing.assert_allclose(model.predict(expected["x"]).mean, expected["mean"], atol=1e-4)


def test_a_message_under_another_hash_is_byte_for_byte_the_same(golden):
    data = next(golden.glob("*.coreset")).read_bytes()
    assert renamed(data, read_header(data)["study"]) == data
    assert renamed(data, STUDY) != data


@pytest.mark.parametrize("name", ["glm-1", "glm-2", "glm-3", "glm-4"])
def test_golden_tables_still_make_the_same_model(project, name):
    """Under the study's own hash: that of format 2. glm-1 has one covariance and the quadratic of a site's own fit;
    glm-2 has a covariance for each class, glm-3 groups of records with similar scores, glm-4 means of missing numbers
    and limits of far ones. What the server makes of the first two has changed with the likelihood, the prior and the
    damping: all files are read, two models are new."""
    folder = project / "tests" / "wire" / "golden" / name
    study, expected = read_study(folder / "study.toml"), json.loads((folder / "expected.json").read_text())
    assert study.hash == expected["study"]
    model = fit(study, [path.read_bytes() for path in sorted(folder.glob("*.coreset"))])
    np.testing.assert_allclose(model.predict(np.asarray(expected["x"], np.float32)).mean, expected["mean"], atol=1e-6)
