"""Four hospitals that look like the real ones: an honest file is not suspect, one with shuffled labels is; and the
commands say so.
"""

import importlib.util
import json
import tomllib

import numpy as np
import pytest

from coreshot.api import distill
from coreshot.data.files import read_records
from coreshot.fitted.model import compare_clients, read_messages
from coreshot.study.file import read_study

SEEDS = range(100, 108)


@pytest.fixture(scope="module")
def heart(project):
    """The example, as a module."""
    spec = importlib.util.spec_from_file_location("heart_example", project / "examples" / "heart" / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def verdicts(heart, tmp_path_factory):
    """After distilling, coding and reading; `broken` is the hospital whose labels are shuffled."""
    study, folder = read_study(heart.STUDY), tmp_path_factory.mktemp("hospitals")
    records, honest = {}, {}
    for seed in SEEDS:
        (folder / str(seed)).mkdir()
        heart.look_alike(folder / str(seed), seed)
        for name in heart.HOSPITALS:
            found = read_records(folder / str(seed) / f"{name}.csv", study.inputs, study.target)
            records[seed, name], honest[seed, name] = found, distill(study, found.x, found.y, client=name)

    def compare(seed, broken=None):
        files = {name: honest[seed, name] for name in heart.HOSPITALS}
        if broken:
            found = records[seed, broken]
            shuffled = np.random.default_rng(seed).permutation(found.y)
            files[broken] = distill(study, found.x, shuffled, client=broken)
        standings = compare_clients(study, read_messages(study, files.values()))
        return {name: standing.verdict for name, standing in standings.items()}

    return compare


def test_honest_hospitals_are_not_suspect(verdicts):
    assert all("suspect" not in verdicts(seed).values() for seed in SEEDS)


@pytest.mark.parametrize("broken", ["cleveland", "hungarian"])
def test_shuffled_labels_are_found(heart, verdicts, broken):
    told = [verdicts(seed, broken) for seed in SEEDS]
    assert sum(found[broken] == "suspect" for found in told) >= 6  # nine of ten are usual
    assert all(found[name] != "suspect" for found in told for name in heart.HOSPITALS if name != broken)


def exchange_classes(lines):
    return [lines[0], *(line[:-1] + ("0" if line[-1] in "12" else "1") for line in lines[1:])]


def test_the_commands_say_it_and_forgetting_mends_it(coreshot, study_path, three_coresets, write_site, tmp_path):
    coreshot(
        "distill", study_path, write_site("evil", seed=7, count=200, change=exchange_classes), "--out", "evil.coreset"
    )
    told = coreshot("fit", *three_coresets, "evil.coreset", "--study", study_path, "--out", "model")
    assert "warning: evil may be broken or hostile" in told
    assert "opposite of what the others' do" in told
    values = tomllib.loads((tmp_path / "model" / "model.toml").read_text())
    assert values["standing"]["evil"]["verdict"] == "suspect"
    assert values["standing"]["evil"]["agreement"] < 0
    facts = json.loads(coreshot("forget", "model", "--client", "evil", "--json"))
    assert facts["suspects"] == []
    assert set(facts["standings"]) == {"north", "south", "west"}
    facts = json.loads(coreshot("fit", "--add", "evil.coreset", "model", "--json"))
    assert facts["suspects"] == ["evil"]


def test_two_clients_cannot_be_told(coreshot, study_path, three_coresets):
    facts = json.loads(coreshot("fit", *three_coresets[:2], "--study", study_path, "--out", "two", "--json"))
    assert all("of 2 clients nobody can tell" in standing["words"] for standing in facts["standings"].values())
