"""Messages as bytes: the round trip, what is refused on arrival and why, and a ledger that adds up by hand."""

import ast
import json

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from coreshot.errors import CoreshotError
from coreshot.methods.one_shot import coreset_message, message_coreset
from coreshot.types import Coreset, Points, make_points
from coreshot.wire.ledger import Entry, Ledger
from coreshot.wire.messages import Message, decode_message, encode_message, read_header

STUDY = "ab" * 32


@pytest.fixture(scope="module")
def model(make_model):
    return make_model("classification")


@pytest.fixture(scope="module")
def line(make_model):
    return make_model("regression")


@pytest.fixture
def arrays():
    """A good coreset of the classification model: three points."""
    return {
        "x": jnp.arange(6, dtype=jnp.float32).reshape(3, 2),
        "labels": jnp.array([0, 1, 1], jnp.int32),
        "num_examples": jnp.array([20.0], jnp.float32),
    }


def encode(message, client="a", study=STUDY):
    return encode_message(message, study_hash=study, client=client)


def decode(data, client="a", study=STUDY):
    return decode_message(data, study_hash=study, client=client)


def test_round_trip(arrays, same):
    message = Message("coreset", 3, arrays)
    found = decode(encode(message))
    assert (found.kind, found.round) == ("coreset", 3)
    assert same(found.arrays, arrays)


def test_round_trip_of_an_empty_message():
    assert decode(encode(Message("invitation", 0, {}))) == Message("invitation", 0, {})


def test_same_message_same_bytes(arrays):
    shuffled = dict(reversed(arrays.items()))
    assert encode(Message("coreset", 0, arrays)) == encode(Message("coreset", 0, shuffled))
    assert encode(Message("coreset", 0, arrays)) != encode(Message("coreset", 1, arrays))
    assert encode(Message("coreset", 0, arrays)) != encode(Message("coreset", 0, arrays), client="b")


def test_a_view_is_sent_as_what_it_shows():
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert encode(Message("k", 0, {"x": table.T})) == encode(Message("k", 0, {"x": np.ascontiguousarray(table.T)}))
    np.testing.assert_array_equal(decode(encode(Message("k", 0, {"x": table.T}))).arrays["x"], table.T)


def test_header_is_readable_without_the_arrays(arrays):
    assert read_header(encode(Message("coreset", 2, arrays))) == {
        "format": 1,
        "kind": "coreset",
        "round": 2,
        "client": "a",
        "study": STUDY,
    }


def test_any_safetensors_reader_can_read_it(arrays):
    np.testing.assert_array_equal(safetensors.numpy.load(encode(Message("coreset", 0, arrays)))["x"], arrays["x"])


def test_another_study_is_refused(arrays):
    with pytest.raises(
        CoreshotError, match=r"client a, round 0, coreset: belongs to study abab.*, this is study cdcd.*; distill again"
    ):
        decode(encode(Message("coreset", 0, arrays)), study="cd" * 32)


def test_a_wrong_name_is_refused(arrays):
    with pytest.raises(CoreshotError, match=r"client a, round 0, coreset: came in the name of b; check who sent it"):
        decode(encode(Message("coreset", 0, arrays)), client="b")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(arrays, value):
    with pytest.raises(CoreshotError, match=r"client a, round 0, coreset: array 'x' has values that are not finite"):
        decode(encode(Message("coreset", 0, {**arrays, "x": arrays["x"].at[1, 1].set(value)})))


def test_a_double_too_large_for_a_float_is_refused(model):
    """Finite as it was sent, infinite once it is a float32: it must not get past the wire and the coreset's checks."""
    arrays = {"x": np.full((1, 2), 1e300), "labels": np.zeros(1, np.int32), "num_examples": np.ones(1, np.float32)}
    with pytest.raises(CoreshotError):
        message_coreset(decode(encode(Message("coreset", 0, arrays))), model, "a")


def with_header(arrays, **changes):
    header = {"format": 1, "kind": "coreset", "round": 0, "client": "a", "study": STUDY, **changes}
    header = {key: value for key, value in header.items() if value is not ...}
    return safetensors.numpy.save(
        {name: np.asarray(array) for name, array in arrays.items()}, {"coreshot": json.dumps(header)}
    )


def test_a_newer_format_is_refused(arrays):
    with pytest.raises(
        CoreshotError, match=r"written in format 2, this version reads 1; use the same coreshot on both sides"
    ):
        decode(with_header(arrays, format=2))


@pytest.mark.parametrize(
    "changes",
    [{"round": ...}, {"study": ...}, {"round": "0"}, {"round": True}, {"client": 5}, {"kind": None}, {"format": 1.0}],
)
def test_a_header_without_what_it_needs_is_refused(arrays, changes):
    with pytest.raises(CoreshotError, match="not a coreshot message"):
        decode(with_header(arrays, **changes))


def test_another_safetensors_file_is_refused():
    with pytest.raises(CoreshotError, match="not a coreshot message"):
        decode(safetensors.numpy.save({"x": np.zeros(3, np.float32)}))


REFUSED = {
    "x of another width": {"x": jnp.zeros((3, 3))},
    "x without points": {"x": jnp.zeros((0, 2)), "labels": jnp.zeros(0, jnp.int32)},
    "x flat": {"x": jnp.zeros(3)},
    "x a number": {"x": jnp.zeros(())},
    "x of whole numbers": {"x": jnp.zeros((3, 2), jnp.int32)},
    "fewer labels": {"labels": jnp.zeros(2, jnp.int32)},
    "a label above": {"labels": jnp.array([0, 1, 2], jnp.int32)},
    "a label below": {"labels": jnp.array([0, -1, 1], jnp.int32)},
    "half a label": {"labels": jnp.array([0, 0.5, 1], jnp.float32)},
    "labels one-hot": {"labels": jnp.eye(3, 2, dtype=jnp.int32)},
    "no examples": {"num_examples": jnp.array([0.0])},
    "less than one example": {"num_examples": jnp.array([0.5])},
    "negative examples": {"num_examples": jnp.array([-3.0])},
    "two counts": {"num_examples": jnp.array([3.0, 4.0])},
    "a bare count": {"num_examples": jnp.asarray(3.0)},
    "a complex count": {"num_examples": jnp.array([3.0 + 1j])},
    "an extra array": {"theta": jnp.zeros(3)},
    "labels and y": {"y": jnp.eye(3, 2)},
    "no x": {"x": None},
    "no labels": {"labels": None},
    "no count": {"num_examples": None},
    "y that sums to two": {"labels": None, "y": jnp.ones((3, 2))},
    "y with a negative part": {"labels": None, "y": jnp.array([[1.5, -0.5]] * 3)},
    "y of another shape": {"labels": None, "y": jnp.ones((3, 1))},
    "weights of another shape": {"weight": jnp.ones(2)},
    "a weight of zero": {"weight": jnp.array([0.0, 1.0, 1.0])},
    "a negative weight": {"weight": jnp.array([-1.0, 1.0, 1.0])},
    "weights that sum to too much": {"weight": jnp.array([1.0, 1.0, 5.0])},
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_coreset_that_is_not_one_is_refused(model, arrays, case):
    changed = {name: array for name, array in {**arrays, **REFUSED[case]}.items() if array is not None}
    with pytest.raises(CoreshotError) as error:
        message_coreset(Message("coreset", 4, changed), model, "ward 7")
    assert str(error.value).startswith("client ward 7, round 4, coreset: ")
    assert "distill it again" in str(error.value)


def test_another_kind_is_refused(model, arrays):
    with pytest.raises(CoreshotError, match="client ward 7, round 0, gradient"):
        message_coreset(Message("gradient", 0, arrays), model, "ward 7")


def test_labels_are_refused_in_regression(line, arrays):
    with pytest.raises(CoreshotError, match="labels are not"):
        message_coreset(Message("coreset", 0, arrays), line, "ward 7")


def test_the_good_coreset_is_accepted(model, arrays):
    """Or every refusal above would mean nothing."""
    coreset = message_coreset(Message("coreset", 0, arrays), model, "a")
    assert coreset.points.y.tolist() == [[1, 0], [0, 1], [0, 1]]
    assert coreset.points.weight.tolist() == [1, 1, 1]
    assert float(coreset.num_examples) == 20


def test_hard_labels_travel_as_classes_and_soft_ones_as_rows(model, same):
    hard = Coreset(make_points(np.zeros((2, 2)), [[0, 1], [1, 0]]), jnp.asarray(7.0))
    soft = Coreset(make_points(np.zeros((2, 2)), [[0.5, 0.5], [1, 0]]), jnp.asarray(7.0))
    assert coreset_message(hard, model, 0).arrays["labels"].tolist() == [1, 0]
    assert "labels" not in coreset_message(soft, model, 0).arrays
    for coreset in (hard, soft):
        assert same(message_coreset(coreset_message(coreset, model, 0), model, "a"), coreset)


def test_point_weights_travel_only_where_they_differ(model, same):
    points = make_points(np.zeros((2, 2)), [[0, 1], [1, 0]])
    uneven = Coreset(points.reweighted(jnp.array([0.5, 1.25])), jnp.asarray(7.0))
    assert "weight" not in coreset_message(Coreset(points, jnp.asarray(7.0)), model, 0).arrays
    assert same(message_coreset(coreset_message(uneven, model, 0), model, "a"), uneven)


def test_ledger_of_a_moons_coreset_by_hand(model):
    """Five points: 5 * 2 inputs, 5 class numbers, 1 count, 4 bytes each."""
    coreset = Coreset(Points(jnp.zeros((5, 2)), jnp.eye(2)[jnp.array([0, 1, 0, 1, 0])], jnp.ones(5)), jnp.asarray(20.0))
    message, invitation, ledger = coreset_message(coreset, model, 0), Message("invitation", 0, {}), Ledger()
    up, down = encode(message), encode(invitation)
    for client in ("a", "b"):
        ledger.book("down", client, invitation, down)
        ledger.book("up", client, message, up)
    assert ledger.entries[1] == Entry(0, "a", "up", "coreset", 16, 64, len(up) - 64)
    assert ledger.floats("up") == 2 * 16
    assert ledger.floats("down") == 0
    assert ledger.bytes("up") == 2 * len(up)
    assert ledger.bytes("down") == 2 * len(down)
    lines = [json.loads(line) for line in ledger.to_json_lines().splitlines()]
    assert [(line["client"], line["direction"], line["floats"]) for line in lines] == [
        ("a", "down", 0),
        ("a", "up", 16),
        ("b", "down", 0),
        ("b", "up", 16),
    ]


def test_the_envelope_is_small(model):
    """Hash, names and shapes: less than half a kilobyte."""
    coreset = Coreset(make_points(np.zeros((5, 2)), np.eye(2)[[0, 1, 0, 1, 0]]), jnp.asarray(20.0))
    assert len(encode(coreset_message(coreset, model, 0))) - 64 < 512


LOADERS_OF_CODE = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def unsafe_imports(text):
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
        elif (
            isinstance(node, ast.keyword)
            and node.arg == "allow_pickle"
            and not (isinstance(node.value, ast.Constant) and node.value.value is False)
        ):
            found.add("pickle")
    return found & LOADERS_OF_CODE


def test_nothing_is_unpickled(source):
    files = list(source.rglob("*.py"))
    assert len(files) > 20
    assert {str(path): unsafe_imports(path.read_text()) for path in files if unsafe_imports(path.read_text())} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "def f():\n    import joblib.memory",
        "np.load(f, allow_pickle=True)",
        "np.load(f, allow_pickle=flag)",
    ],
)
def test_negative_control_unpickling_is_found(text):
    assert unsafe_imports(text)
