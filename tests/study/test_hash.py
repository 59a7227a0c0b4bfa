"""A study's hash covers what was agreed: golden studies keep theirs, and a new setting at its default changes none."""

import dataclasses
import json
from typing import get_args

import pytest

from coreshot.config import canonical, decode, settings
from coreshot.data.partition import PARTITIONERS
from coreshot.data.schema import Classes, Column, Images, Quantity, Table
from coreshot.inference.registry import INFERENCES
from coreshot.learners import LEARNERS
from coreshot.methods import METHODS
from coreshot.models import NETWORKS
from coreshot.spectral.features import AnyFeatures
from coreshot.study import Agreement, Study
from coreshot.study.file import read_study

SCHEMA = {"table": Table, "column": Column, "image": Images, "classes": Classes, "quantity": Quantity}
FEATURES = {cls.__name__: cls for cls in get_args(get_args(AnyFeatures)[0])}
AGREED = {**METHODS, **LEARNERS, **NETWORKS, **SCHEMA, **FEATURES, "agreement": Agreement}


@pytest.fixture
def golden(project):
    return project / "tests" / "study" / "golden"


def test_golden_studies_keep_their_hash(golden):
    """These files and hashes stay for ever: an upgrade must not break an open study."""
    expected = json.loads((golden / "hashes.json").read_text())
    assert {path.name: read_study(path).hash for path in sorted(golden.glob("*.toml"))} == expected
    assert len(set(expected.values())) == len(expected) >= 4


def test_the_hash_survives_the_dictionary_that_workers_get(golden):
    for path in golden.glob("*.toml"):
        study = read_study(path)
        assert Study.from_dict(json.loads(json.dumps(study.to_dict()))).hash == study.hash


@pytest.mark.parametrize("part", ["agreement", "method", "learner", "network"])
def test_a_version_with_one_more_setting_computes_the_same_hash(golden, part, monkeypatch):
    """The class of each part gets a further field with a default, as a later version may have it."""
    name = "learner.toml" if part == "learner" else "table.toml"
    study = read_study(golden / name)
    old = {"agreement": study.agreement, "method": study.method, "learner": study.learner, "network": study.network}
    later = _with_one_more(type(old[part]), monkeypatch)
    changed = decode(later, {field.name: _plain(old[part], field.name) for field in dataclasses.fields(old[part])}, "")
    assert "added_later" in {field.name for field in dataclasses.fields(changed)}
    assert canonical(changed) == canonical(old[part])
    different = dataclasses.replace(changed, added_later=4)
    assert canonical(different) == {**canonical(old[part]), "added_later": 4}, "negative control"


def _plain(value, name):
    item = getattr(value, name)
    return json.loads(json.dumps(dataclasses.asdict(item))) if dataclasses.is_dataclass(item) else item


def _with_one_more(cls, monkeypatch):
    body = {"__annotations__": {"added_later": int}, "added_later": 3, "__module__": cls.__module__}
    return settings(type(cls.__name__, (cls,), body))


def test_every_setting_counts(golden):
    """Negative control: a changed setting is another study."""
    study = read_study(golden / "table.toml")
    values = study.to_dict()
    changes = [{"seed": 1}, {"prior_precision": 2.0}, {"task": "other"}, {"method": {**values["method"], "ridge": 0.5}}]
    hashes = {Study.from_dict({**values, **change}).hash for change in changes}
    assert len(hashes | {study.hash}) == len(changes) + 1


def test_saying_a_default_is_the_same_as_leaving_it_out(golden):
    study = read_study(golden / "table.toml")
    values = study.to_dict()
    assert Study.from_dict({key: value for key, value in values.items() if key != "noise_scale"}).hash == study.hash


def test_no_default_of_an_agreed_setting_has_changed(golden):
    """A default is part of what was agreed without being said. To change one, give the setting another name, or raise
    HASH_FORMAT and write this file anew."""
    found = {}
    for name, cls in sorted(AGREED.items()):
        for field in dataclasses.fields(cls):
            if field.default is not dataclasses.MISSING and not isinstance(field.default, type(dataclasses.field())):
                found[f"{name}.{field.name}"] = repr(field.default)
    expected = json.loads((golden / "defaults.json").read_text())
    changed = {key: (expected[key], found.get(key)) for key in expected if found.get(key) != expected[key]}
    assert changed == {}
    assert found.keys() == expected.keys(), "a new default: add it to tests/study/golden/defaults.json"


def test_the_registries_that_are_not_agreed_on_are_not_in_the_hash():
    """How the server infers and how a simulation deals out data are no part of a study."""
    assert not set(INFERENCES) & set(AGREED)
    assert not set(PARTITIONERS) & set(AGREED)
