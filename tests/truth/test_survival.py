"""Time to an event: who is at risk when, curves with known answers, scores, and a study from files to predictions."""

import json

import numpy as np
import pytest

from coreshot.data.files import read_records
from coreshot.data.periods import at_risk
from coreshot.errors import CoreshotError
from coreshot.fitted.survival import People, survival_quality
from coreshot.study.file import parse_study

STUDY = """
format = 1
name = "ward"
task = "survival"
[target]
name = "died"
classes = ["no", "yes"]
time = "days"
ends = [10, 20, 30]
[table]
missing = "mean"
[[table.column]]
name = "age"
kind = "number"
range = [20, 90]
[method]
name = "glm"
dimension = 20
"""


SPECTRAL = 'name = "spectral"\nfeatures = { name = "identity", dimension = 5 }'


def test_a_person_is_at_risk_until_the_event_or_the_last_period_that_was_seen_to_its_end():
    times, events = [5, 10, 15, 25, 99, 30, 9], [1, 1, 1, 0, 1, 0, 0]
    owner, period, y = at_risk(np.asarray(times, float), np.asarray(events), (10, 20, 30))
    found = {person: list(zip(period[owner == person], y[owner == person], strict=True)) for person in range(7)}
    assert found == {
        0: [(0, 1)],
        1: [(0, 1)],  # an end belongs to the period that ends there
        2: [(0, 0), (1, 1)],
        3: [(0, 0), (1, 0)],  # lost in the third
        4: [(0, 0), (1, 0), (2, 0)],  # later than the last end
        5: [(0, 0), (1, 0), (2, 0)],
        6: [],
    }
    third = np.asarray([1 / 3], np.float32).astype(np.float64) * 30  # single precision
    assert at_risk(third, np.asarray([1]), (10, 20, 30))[1].tolist() == [0]


def everybody():
    """Six people of one period of inputs; by hand."""
    periods, events = np.asarray([1, 1, 2, 3, 3, 3]), np.asarray([True, False, True, True, False, False])
    return People(np.zeros((6, 1), np.float32), periods, events, 3)


def test_the_life_table_and_scores_by_hand():
    people = everybody()
    assert np.allclose(people.kaplan_meier(), [5 / 6, 5 / 6 * 3 / 4, 5 / 6 * 3 / 4 * 2 / 3])
    survival = np.tile([0.9, 0.8, 0.5], (6, 1))
    assert np.allclose(np.exp(people.log_prob(survival)), [0.1, 0.9, 0.1, 0.3, 0.5, 0.5])
    # One of the five who are left after the first period is lost there, so those seen later count 5 / 4 times.
    assert np.allclose(people.brier(survival)[:, 1], [0.64, 0, 0.64 * 1.25, 0.04 * 1.25, 0.04 * 1.25, 0.04 * 1.25])
    right = np.asarray([[0.1] * 3, [0.9] * 3, [0.2] * 3, [0.3] * 3, [0.8] * 3, [0.7] * 3])
    assert people.concordance(right) == 1.0
    assert people.concordance(1 - right) == 0.0
    assert people.concordance(np.ones((6, 3))) == 0.5


def write_ward(path, draws, size, slope=1.0):
    """The hazard of a period is 1 / (1 + exp(2 - slope (age - 55) / 17))."""
    ages = draws.integers(20, 90, size=size)
    hazard = 1 / (1 + np.exp(2 - slope * (ages - 55) / 17))
    had = draws.uniform(size=(size, 3)) < hazard[:, None]
    first = np.where(had.any(axis=1), had.argmax(axis=1), 3)
    lost = draws.integers(1, 5, size=size)
    lines = [
        f"{age},{10 * period + 4},yes" if period < out else f"{age},{10 * out},no"
        for age, period, out in zip(ages, first, lost, strict=True)
    ]
    path.write_text("\n".join(["age,days,died", *lines]) + "\n")


def test_a_study_of_survival_from_files_to_predictions(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draws = np.random.default_rng(0)
    (tmp_path / "study.toml").write_text(STUDY)
    for name in ("north", "south"):
        write_ward(tmp_path / f"{name}.csv", draws, 250)
        assert call("distill", "study.toml", f"{name}.csv", "--client", name, "--out", f"{name}.coreset")[0] == 0
    assert call("fit", "north.coreset", "south.coreset", "--study", "study.toml", "--out", "model")[0] == 0
    (tmp_path / "new.csv").write_text("age\n30\n55\n78\n")
    assert call("predict", "model", "new.csv", "--out", "p.csv")[0] == 0
    rows = [line.split(",") for line in (tmp_path / "p.csv").read_text().splitlines()]
    assert rows[0][:4] == ["record", "without died until 10", "without died until 20", "without died until 30"]
    for row, age in zip(rows[1:], (30, 55, 78), strict=True):
        hazard = 1 / (1 + np.exp(2 - (age - 55) / 17))
        assert np.allclose(np.asarray(row[1:4], float), (1 - hazard) ** np.arange(1, 4), atol=0.12)
    write_ward(tmp_path / "held.csv", draws, 300)
    code, said, errors = call("evaluate", "model", "held.csv", "--json", "--picture", "curves.png", "--html", "m.html")
    assert code == 0, errors
    found = json.loads(said)
    assert found["integrated_brier"] < 0.97 * found["baselines"]["integrated_brier"]
    assert found["nll"] < found["baselines"]["nll"]
    assert found["concordance"] > 0.6
    write_ward(tmp_path / "other.csv", draws, 300, slope=-1.0)  # negative control: there, age protects
    worse = json.loads(call("evaluate", "model", "other.csv", "--json")[1])
    assert worse["integrated_brier"] > worse["baselines"]["integrated_brier"]
    assert call("adapt", "model", "other.csv", "--out", "local")[0] == 0
    better = json.loads(call("evaluate", "local", "other.csv", "--json")[1])
    assert better["integrated_brier"] < worse["integrated_brier"]
    for wrong in (["check", "model", "held.csv"], ["adapt", "model", "--share", "yes=0.5", "--out", "l2"]):
        code, _, errors = call(*wrong)
        assert (code, "time to an event" in errors) == (2, True)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('task = "survival"', 'task = "classification"', "make task and both agree"),
        ("ends = [10, 20, 30]", "ends = [10, 10, 30]", "each later"),
        ("ends = [10, 20, 30]", "", "give both"),
        ('name = "age"', 'name = "days"', "both a column and the time"),
        (
            'name = "glm"\ndimension = 20',
            'name = "spectral"\nfeatures = { name = "identity", dimension = 5 }',
            "only the method glm",
        ),
    ],
)
def test_studies_that_are_no_survival(old, new, what):
    with pytest.raises(CoreshotError, match=what):
        parse_study(STUDY.replace(old, new), "study")


@pytest.mark.parametrize(
    ("lines", "what"),
    [("50,,yes", "has no 'days'"), ("50,-3,no", "one below 0"), ("50,4,no", "nobody who was seen")],
)
def test_files_without_times(tmp_path, lines, what):
    study, path = parse_study(STUDY, "study").study, tmp_path / "ward.csv"
    path.write_text(f"age,days,died\n{lines}\n")
    with pytest.raises(CoreshotError, match=what):
        read_records(path, study.inputs, study.target)


def test_an_event_after_the_last_end_is_none_in_the_periods(tmp_path):
    study, path = parse_study(STUDY, "study").study, tmp_path / "ward.csv"
    path.write_text("age,days,died\n50,34,yes\n50,9999,yes\n50,30,yes\n")
    read = read_records(path, study.inputs, study.target)
    assert read.y.tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert read.owner.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_quality_says_who_had_the_event():
    target = parse_study(STUDY, "study").study.target
    quality = survival_quality(everybody(), np.tile([0.9, 0.8, 0.5], (6, 1)), target)
    assert quality.sentence.startswith("For 6 people, of whom 3 had the event (died = yes)")
