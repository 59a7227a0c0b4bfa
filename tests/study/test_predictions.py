"""Predictions that a person can use: ids, named columns, units, and no cell that a spreadsheet would compute."""

import csv
import json

import numpy as np
import pytest

from coreshot.fitted.folder import open_model
from coreshot.fitted.prediction_table import disarm
from coreshot.study.site_records import read_study_records

IDS = ("=1+1", "-7", "@x", "007", "+49 30", '"a, b"', "-2.5e3", "NA", "")
SHOWN = ("'=1+1", "-7", "'@x", "007", "'+49 30", "a, b", "-2.5e3", "NA", "")

REGRESSION = """
format = 1
name = "stay"
task = "regression"

[target]
name = "days"
range = [0, 40]

[[table.column]]
name = "age"
kind = "number"
range = [20, 100]

[method]
name = "spectral"
features = { name = "identity", dimension = 2 }
"""
POINTS = """
[learner]
name = "random_subset"
num_points = 12

[network]
name = "mlp"
hidden = [4]
activation = "tanh"
"""


def with_ids(lines):
    return [lines[0] + ",patient", *(f"{line},{IDS[index % len(IDS)]}" for index, line in enumerate(lines[1:]))]


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def model(coreshot, study_path, three_coresets):
    coreshot("fit", *three_coresets, "--study", study_path, "--out", "model")
    return "model"


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("-1+1", "'-1+1"),
        ("+1", "+1"),
        ("-.5", "-.5"),
        ("-1e-3", "-1e-3"),
        ("-inf", "'-inf"),
        ("-", "'-"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("＝1", "'＝1"),
        ("a=1", "a=1"),
        ("", ""),
    ],
)
def test_formulas_are_disarmed_and_numbers_are_not(cell, shown):
    assert disarm(cell) == shown


def test_ids_are_carried_and_columns_are_explained(coreshot, model, write_site, tmp_path):
    test = write_site("test", count=18, seed=9, change=with_ids)
    told = coreshot("predict", model, test, "--id", "patient", "--out", "pred.csv")
    rows = rows_of(tmp_path / "pred.csv")
    assert list(rows[0]) == [
        "patient",
        "predicted",
        "probability of no",
        "probability of yes",
        "uncertainty of the model",
        "unlike the training data",
    ]
    assert [row["patient"] for row in rows] == [*SHOWN, *SHOWN]
    for row in rows:
        no, yes = row["probability of no"], row["probability of yes"]
        assert len(no) == len(yes) == len("0.123")
        assert float(no) + float(yes) == pytest.approx(1, abs=0.0011)
        assert row["predicted"] == ("yes" if float(yes) > float(no) else "no")
        assert 0 < float(row["uncertainty of the model"]) < 0.5
        assert row["unlike the training data"] == "no"
    words = (tmp_path / "pred.columns.txt").read_text()
    for name in rows[0]:
        assert f"{name}: " in words
    assert "an apostrophe stands before" in words
    assert "unlike the training data: 0" in told
    facts = json.loads(coreshot("predict", model, test, "--out", "again.csv", "--json"))
    assert facts["records"] == 18
    assert set(facts["meanings"]) == set(rows_of(tmp_path / "again.csv")[0])
    assert [row["record"] for row in rows_of(tmp_path / "again.csv")][:3] == ["1", "2", "3"]


def test_ids_and_clients_of_a_file_as_a_german_hospital_writes_it(coreshot, model, tmp_path):
    lines = ["age;sex;pressure;ill;Fall-Nr.;client", "61,5;f;120,0;0;Ä-01;Köln", "44,0;m;118,5;1;Ä-02;Bonn"]
    (tmp_path / "new.csv").write_bytes("\r\n".join(lines).encode("cp1252"))
    coreshot("predict", model, "new.csv", "--id", "Fall-Nr.", "--out", "p.csv")
    assert [row["Fall-Nr."] for row in rows_of(tmp_path / "p.csv")] == ["Ä-01", "Ä-02"]
    assert set(json.loads(coreshot("evaluate", model, "new.csv", "--json"))["clients"]) == {"Köln", "Bonn"}


def test_mistakes_get_one_sentence_and_nothing_is_written(coreshot, model, write_site, tmp_path):
    test = write_site(
        "test", count=5, change=lambda lines: [lines[0] + ",predicted", *(f"{line},1" for line in lines[1:])]
    )
    assert "has no such column; give the name" in coreshot(
        "predict", model, test, "--id", "nobody", "--out", "p.csv", code=2
    )
    assert "have a column of this name too" in coreshot(
        "predict", model, test, "--id", "predicted", "--out", "p.csv", code=2
    )
    assert not (tmp_path / "p.csv").exists()
    (tmp_path / "p.columns.txt").write_text("mine")
    assert "p.columns.txt: is there already" in coreshot("predict", model, test, "--out", "p.csv", code=2)
    assert (tmp_path / "p.columns.txt").read_text() == "mine"
    assert not (tmp_path / "p.csv").exists()


def test_a_record_unlike_all_others_is_called_so(coreshot, study_path, write_site, tmp_path):
    """No site ever lacked an age, so a record without one is unlike them; the same record with one is not."""
    coreshot("distill", study_path, write_site("north", count=80), "--out", "north.coreset")
    coreshot("fit", "north.coreset", "--study", study_path, "--out", "model")
    (tmp_path / "new.csv").write_text("age,sex,pressure\n60,f,120\n,f,120\n")
    coreshot("predict", "model", "new.csv", "--out", "p.csv")
    assert [row["unlike the training data"] for row in rows_of(tmp_path / "p.csv")] == ["no", "yes"]


def test_a_point_estimate_claims_no_uncertainty(coreshot, study_path, write_site, tmp_path):
    """One set of weights cannot say how sure it is, and knows nothing of where the records were."""
    study_path.write_text(study_path.read_text().split("[method]")[0] + POINTS)
    site = write_site("a")
    coreshot("distill", study_path, site, "--out", "a.coreset")
    settings = 'name = "map_estimate"\noptimizer = "adam"\nstep_size = 0.01\nnum_steps = 5\n'
    (tmp_path / "map.toml").write_text(settings)
    coreshot("fit", "a.coreset", "--study", study_path, "--out", "model", "--inference", "map.toml")
    coreshot("predict", "model", site, "--out", "p.csv")
    assert list(rows_of(tmp_path / "p.csv")[0]) == ["record", "predicted", "probability of no", "probability of yes"]


def test_a_private_model_knows_its_usual_novelty_too(coreshot, private_path, write_site, tmp_path):
    """With hardly any noise. Rows have norm one there, and the constant feature is another one."""
    study_path = private_path
    study_path.write_text(study_path.read_text().replace("epsilon = 2.0", "epsilon = 32.0"))
    site = write_site("a", count=3000)
    coreshot("distill", study_path, site, "--out", "a.coreset")
    coreshot("fit", "a.coreset", "--study", study_path, "--out", "model")
    fitted = open_model(tmp_path / "model").load()
    novelty = fitted.novelty(read_study_records(fitted.study, site).x)
    assert fitted.posterior.usual_novelty() == pytest.approx(np.sqrt(np.mean(novelty**2)), rel=0.1)


def test_a_quantity_is_predicted_in_its_units(coreshot, tmp_path):
    (tmp_path / "days.toml").write_text(REGRESSION)
    truth = {age: 10 + (age - 20) / 4 for age in range(20, 100)}
    lines = [
        f"{age},{truth[age] + (index * 7919 % 13) / 4 - 1.5}" for index, age in enumerate([*truth, *truth, *truth])
    ]
    (tmp_path / "site.csv").write_text("\n".join(["age,days", *lines]) + "\n")
    coreshot("distill", "days.toml", "site.csv", "--out", "site.coreset")
    coreshot("fit", "site.coreset", "--study", "days.toml", "--out", "model")
    coreshot("predict", "model", "site.csv", "--id", "age", "--out", "p.csv")
    rows = rows_of(tmp_path / "p.csv")
    assert list(rows[0]) == [
        "age",
        "predicted",
        "low 90%",
        "high 90%",
        "uncertainty of the model",
        "unlike the training data",
    ]
    for row in rows[:80]:
        low, value, high = (float(row[name]) for name in ("low 90%", "predicted", "high 90%"))
        assert value == pytest.approx(truth[int(row["age"])], abs=0.5)
        assert (low + high) / 2 == pytest.approx(value, abs=1e-3)
        assert 1 < high - low < 5
    words = (tmp_path / "p.columns.txt").read_text()
    assert "days with a probability of 90 %" in words
    facts = json.loads(coreshot("evaluate", "model", "site.csv", "--json"))
    assert 0.5 < facts["rmse"] < 1.5
    assert facts["baselines"]["rmse"] == pytest.approx(5.9, abs=0.2)
    assert "for classes" in coreshot("evaluate", "model", "site.csv", "--threshold", "0.3", code=2)
