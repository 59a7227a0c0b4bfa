"""Bytes from anywhere decode to a valid message or raise CoreshotError: nothing else, ever."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coreshot.errors import CoreshotError
from coreshot.methods.one_shot import message_coreset
from coreshot.models import Model
from coreshot.models.networks import Mlp
from coreshot.types import Coreset
from coreshot.wire.messages import Message, decode_message, encode_message

STUDY = "ab" * 32
MODEL = Model(Mlp(hidden=(), activation="relu"), "classification", (2,), 2, 0.1, 1.0)
VALID = encode_message(
    Message(
        "coreset",
        0,
        {
            "x": jnp.arange(6, dtype=jnp.float32).reshape(3, 2),
            "labels": jnp.array([0, 1, 1], jnp.int32),
            "num_examples": jnp.array([20.0], jnp.float32),
        },
    ),
    study_hash=STUDY,
    client="a",
)
fuzz = settings(
    max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def try_decode(data):
    """The message, or None if it was refused; any other error is the test's failure."""
    try:
        return decode_message(data, study_hash=STUDY, client="a")
    except CoreshotError:
        return None


def check(data):
    message = try_decode(data)
    if message is None:
        return None
    assert isinstance(message.kind, str)
    assert type(message.round) is int
    assert all(isinstance(array, jax.Array) and np.all(np.isfinite(array)) for array in message.arrays.values())
    try:
        coreset = message_coreset(message, MODEL, "a")
    except CoreshotError:
        return message
    assert isinstance(coreset, Coreset)
    size = coreset.points.num_points
    assert coreset.points.x.shape == (size, 2)
    assert coreset.points.y.shape == (size, 2)
    assert np.allclose(coreset.points.y.sum(axis=1), 1, atol=1e-3)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(coreset))
    assert float(coreset.num_examples) >= 1
    return message


def test_the_valid_message_is_decoded():
    assert check(VALID) is not None


@fuzz
@given(st.binary(max_size=400))
def test_random_bytes(data):
    assert check(data) is None


@fuzz
@given(st.integers(0, len(VALID) - 1))
def test_truncations(length):
    assert check(VALID[:length]) is None


@fuzz
@given(st.binary(min_size=1, max_size=50))
def test_bytes_after_the_end(tail):
    assert check(VALID + tail) is None


@fuzz
@given(st.lists(st.integers(0, 8 * len(VALID) - 1), min_size=1, max_size=8, unique=True))
def test_bit_flips(positions):
    data = bytearray(VALID)
    for position in positions:
        data[position // 8] ^= 1 << position % 8
    check(bytes(data))


@fuzz
@given(st.integers(0, len(VALID) - 1), st.binary(min_size=1, max_size=20))
def test_overwritten_stretches(start, patch):
    check(VALID[:start] + patch + VALID[start + len(patch) :])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)


def framed(header, body=b""):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


@fuzz
@given(json_values)
def test_any_json_as_header(value):
    assert check(framed(value)) is None


@fuzz
@given(json_values)
def test_any_json_as_our_entry(value):
    check(framed({"__metadata__": {"coreshot": json.dumps(value)}}))
    check(framed({"__metadata__": value}))
    check(framed({"__metadata__": {"coreshot": value}}))


OURS = json.dumps({"format": 1, "kind": "coreset", "round": 0, "client": "a", "study": STUDY})
DTYPES = [
    "BOOL",
    "U8",
    "I8",
    "I16",
    "U16",
    "F16",
    "BF16",
    "I32",
    "U32",
    "F32",
    "F64",
    "I64",
    "U64",
    "C64",
    "F8_E4M3",
    "F8_E5M2",
    "nonsense",
]
SIZES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "F64": 8,
    "I64": 8,
    "U64": 8,
    "C64": 8,
}


@st.composite
def messages_with_odd_arrays(draw):
    """Well-formed files, whose arrays have any type, any shape and any bits."""
    tensors, body = {}, b""
    expected = {
        "x": ("F32", [3, 2]),
        "num_examples": ("F32", [1]),
        **draw(st.sampled_from([{"labels": ("I32", [3])}, {"y": ("F32", [3, 2])}])),
    }
    odd = draw(st.sampled_from([[name] for name in expected] + [list(expected)]))  # one array, or all of them
    for name, (dtype, shape) in expected.items():
        if name in odd:
            dtype = draw(st.sampled_from(DTYPES))  # noqa: PLW2901
            shape = draw(st.sampled_from([shape, shape, [3, 2], [3], [1], [0], [], [1, 2], [3, 1]]))  # noqa: PLW2901
        size = int(np.prod(shape)) * SIZES.get(dtype, 1)
        payload = draw(
            st.binary(min_size=size, max_size=size)
            | st.just(bytes(size))
            | st.just(np.ones(size, np.float32).tobytes()[:size])
        )
        tensors[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + size]}
        body += payload
    return framed({"__metadata__": {"coreshot": OURS}, **tensors}, body)


@fuzz
@given(messages_with_odd_arrays())
def test_arrays_of_any_type_and_shape(data):
    check(data)


@pytest.mark.parametrize("length", [0, 1, 2**31, 2**63, 2**64 - 1])
def test_lying_about_the_length(length):
    assert check(length.to_bytes(8, "little") + VALID[8:]) is None


def test_deep_nesting():
    text = b"[" * 100_000
    assert check(len(text).to_bytes(8, "little") + text) is None


def test_every_kind_of_coreset_damaged_in_every_way(project, monkeypatch):
    """A short run of benchmarks/fuzz_coresets.py, whose long one is 100,000 files."""
    monkeypatch.syspath_prepend(str(project / "benchmarks"))
    from fuzz_coresets import WORK, fuzz

    told = fuzz(2000, 60, seed=1)
    assert sum(told.values()) == 2000
    assert {name.split(":")[0] for name in told if "refused" in name} == set(WORK)
