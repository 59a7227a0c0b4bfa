"""docs/add-a-part.md is right: its learner and its file format are added as it says, in two files, and work."""

import re
from importlib import import_module

import jax
import numpy as np
import pytest

import coreshot
from coreshot.config import settings
from coreshot.data import table_files
from coreshot.inference.registry import MapEstimate
from coreshot.learners import LEARNERS
from coreshot.study import Study
from coreshot.study.file import read_study
from coreshot.study.site_records import read_study_records


@pytest.fixture(scope="module")
def document(project):
    return (project / "docs" / "add-a-part.md").read_text()


def run_example(document, heading):
    """The names that the code block under this heading defines."""
    block = re.search(rf"^## {heading}.*?^```python\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    names = {"__name__": "coreshot.example"}
    exec(block.group(1), names)
    return names


def test_a_learner_is_one_class_and_one_line(document, make_study, sample_points, monkeypatch):
    added = run_example(document, "A learner")["FirstPoints"]
    monkeypatch.setitem(LEARNERS, "first_points", added)
    learner = {"name": "first_points", "num_points": 3}
    values = {**make_study("classification").to_dict(), "learner": learner}
    study = Study.from_dict({key: value for key, value in values.items() if key != "method"})
    assert Study.from_dict(study.to_dict()) == study
    clients = {name: sample_points("classification", index, 8) for index, name in enumerate("ab")}
    sent = [coreshot.distill(study, one.x, one.y.argmax(axis=1), client=name) for name, one in clients.items()]
    model = coreshot.fit(study, sent, MapEstimate(optimizer="adam", step_size=0.05, num_steps=3))
    coreset = model.state.coresets["a"]
    np.testing.assert_array_equal(coreset.points.x, clients["a"].x[:3])
    assert float(coreset.num_examples) == 8


def test_negative_control_a_learner_that_uses_more_than_it_declares_is_refused(
    document, make_study, sample_points, monkeypatch
):
    added = run_example(document, "A learner")["FirstPoints"]

    def releases(self, model):
        return added.releases(self, model)[1:]

    greedy = settings(type("Greedy", (added,), {"releases": releases, "__annotations__": {}}))
    monkeypatch.setitem(LEARNERS, "greedy", greedy)
    values = {**make_study("classification").to_dict(), "learner": {"name": "greedy", "num_points": 3}}
    study = Study.from_dict({key: value for key, value in values.items() if key != "method"})
    points = sample_points("classification", 0, 8)
    with pytest.raises(coreshot.CoreshotError, match="records"):
        coreshot.distill(study, points.x, points.y.argmax(axis=1), client="a")


TABLE = """
format = 1
name = "json lines"
task = "classification"
[target]
name = "ill"
classes = ["no", "yes"]
[table]
[[table.column]]
name = "age"
kind = "number"
range = [20, 100]
[method]
name = "spectral"
features = { name = "identity", dimension = 2 }
"""


def test_a_file_format_is_one_function_and_one_line(document, tmp_path, monkeypatch):
    (tmp_path / "study.toml").write_text(TABLE)
    (tmp_path / "site.jsonl").write_text('{"age": 30, "ill": "no"}\n\n{"ill": "yes"}\n')
    study = read_study(tmp_path / "study.toml")
    with pytest.raises(coreshot.CoreshotError, match=r"a table is a file ending in \.csv, .* \.parquet or \.npz"):
        read_study_records(study, tmp_path / "site.jsonl")
    monkeypatch.setitem(table_files.TABLE_FORMATS, ".jsonl", run_example(document, "A file format")["read_json_lines"])
    records = read_study_records(study, tmp_path / "site.jsonl")
    np.testing.assert_allclose(records.x[:, 0], [2 * (30 - 20) / 80 - 1, 0.0])
    assert records.y.tolist() == [0, 1]


def test_a_feature_map_has_the_shape_that_it_says(document):
    squares = run_example(document, "A feature map")["Squares"](dimension=4)
    np.testing.assert_allclose(
        squares.apply(squares.draw(jax.random.key(0), (2,)), np.array([[2.0, 3.0]])), [[2, 3, 4, 9]]
    )


def test_the_files_that_the_document_names_exist(document, source):
    """Every registry line of its table is where it says."""
    rows = re.findall(r"^\| [a-z ']+ \|[^|]*\| (.*?) \|$", document, re.MULTILINE)
    named = [pair for row in rows for pair in re.findall(r"`([a-z_/]+\.py)`, `([A-Za-z_]+)`", row)]
    assert len(named) == 9
    for file, name in named:
        module = "coreshot." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        assert (source / file).is_file()
        assert name in vars(import_module(module)), f"{file} has no {name}"
