"""Messages written by released versions are read, and written, byte for byte: format 1."""

import jax.numpy as jnp
import pytest

from coreshot.types import Message
from coreshot.wire import decode_message, encode_message

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
