"""What `inspect` reads off a message is what numpy computes from the records, within rounding; and not from others."""

from dataclasses import replace

import numpy as np
import pytest

from coreshot.api import distill
from coreshot.data.schema import Classes, Column, Quantity, Table
from coreshot.data.validate import check_points
from coreshot.errors import CoreshotError
from coreshot.fitted.against import measure_loss, read_off
from coreshot.fitted.message_facts import message_facts, not_told, told
from coreshot.methods.glm import Glm
from coreshot.methods.spectral import Spectral
from coreshot.models import Mlp
from coreshot.spectral.features import Identity, RandomVector
from coreshot.study.study import Agreement, Study
from coreshot.wire.messages import decode_message

COLUMNS = (
    Column(name="age", kind="number", range=(20.0, 100.0)),
    Column(name="bmi", kind="number", range=(10.0, 60.0)),
    Column(name="seen", kind="date", range=("2010-01-01", "2024-12-31")),
    Column(name="smoker", kind="yes_no"),
    Column(name="group", kind="category", values=("a", "b", "rare")),
)
CLASSES = Classes(name="ill", classes=("no", "yes"))
THREE = Classes(name="stage", classes=("i", "ii", "iii"))
QUANTITY = Quantity(name="days", range=(0.0, 50.0))
DEVIATIONS = 0.02  # how far rounding may move a mean, in deviations of the column


def make_study(target, method, missing="indicator"):
    table = Table(columns=COLUMNS, missing=missing)
    kind = "classification" if isinstance(target, Classes) else "regression"
    terms = Agreement(
        task="t", kind=kind, input_shape=table.input_shape, num_outputs=target.num_outputs, prior_precision=1.0
    )
    return Study(terms, Mlp(hidden=(), activation="relu"), method, table, target)


def make_glm(missing="indicator"):
    table = Table(columns=COLUMNS, missing=missing)
    return Glm(dimension=24, powers=table.number_inputs, products=table.column_inputs)


def draw_cells(count=300, seed=0):
    draws = np.random.default_rng(seed)
    age, bmi = draws.normal(60, 10, count).clip(20, 100), draws.normal(27, 4, count)
    cells = {
        "age": age,
        "bmi": np.where(draws.random(count) < 0.2, np.nan, bmi),
        "seen": np.asarray(["2012-03-04", "2020-05-06"])[draws.integers(2, size=count)],
        "smoker": np.where(draws.random(count) < 0.3, "yes", "no"),
        "group": np.asarray(["a", "b"])[draws.integers(2, size=count)].astype(object),
    }
    score = (age - 60) / 10 + draws.logistic(size=count)
    return cells, score


def distilled(study, cells, y):
    x, _ = study.inputs.encode({name: np.asarray(column) for name, column in cells.items()}, "test")
    data = distill(study, x, y, client="a")
    message = decode_message(data, study_hash=study.hash, releases=study.releases)
    content = study.method.read(study.model, "a", message)
    terms = study.agreement
    points = check_points(
        x, y, kind=terms.kind, input_shape=terms.input_shape, num_outputs=terms.num_outputs, client="a"
    )
    return message_facts(study, message, content), content, points


def by_name(facts):
    return {fact.name: fact for fact in facts.columns}


METHODS = {
    "glm": make_glm(),
    "identity": Spectral(features=Identity(dimension=12)),
    "with_inputs": Spectral(
        features=RandomVector(dimension=20, with_inputs=True, nonlinearity="relu", input_scale=3.0), max_bytes=100_000
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_means_deviations_and_correlations_are_numpy_s(name):
    study = make_study(CLASSES, METHODS[name])
    cells, score = draw_cells()
    ill = (score > 0).astype(int)
    facts, _, _ = distilled(study, cells, ill)
    found = by_name(facts)
    bmi, present = cells["bmi"], ~np.isnan(cells["bmi"])
    assert facts.num_records == 300
    assert facts.class_sizes == {"no": int(np.sum(ill == 0)), "yes": int(np.sum(ill))}
    for column, cell in (("age", cells["age"]), ("bmi", bmi)):
        fact, size = found[column], np.nanstd(cell)
        assert fact.mean == pytest.approx(np.nanmean(cell), abs=DEVIATIONS * size)
        assert fact.deviation == pytest.approx(size, rel=DEVIATIONS)
        for label in (0, 1):
            assert fact.class_means[label] == pytest.approx(np.nanmean(cell[ill == label]), abs=2 * DEVIATIONS * size)
        filled = np.where(np.isnan(cell), np.nanmean(cell), cell)
        assert fact.correlations == pytest.approx((np.corrcoef(filled, ill)[0, 1],), abs=DEVIATIONS)
    assert found["bmi"].missing == pytest.approx(1 - np.mean(present), abs=0.005)
    assert found["age"].missing == pytest.approx(0, abs=0.005)
    assert found["smoker = yes"].mean == pytest.approx(np.mean(cells["smoker"] == "yes"), abs=0.01)
    assert found["group = a"].mean == pytest.approx(np.mean(cells["group"] == "a"), abs=0.01)
    days = np.where(cells["seen"] == "2012-03-04", 734566, 737551)
    assert found["seen"].mean == pytest.approx(np.mean(days), abs=DEVIATIONS * np.std(days))


def test_other_records_have_other_means():
    """The negative control: the numbers come from the message, and the tolerance tells records apart."""
    study = make_study(CLASSES, METHODS["glm"])
    cells, score = draw_cells()
    facts, content, _ = distilled(study, cells, (score > 0).astype(int))
    others, scores = draw_cells(seed=1)
    _, _, points = distilled(study, others, (scores > 0).astype(int))
    age = by_name(facts)["age"]
    assert abs(age.mean - np.mean(others["age"])) > DEVIATIONS * np.std(others["age"])
    ill = np.argmax(np.asarray(points.y), axis=1)[:200]
    fewer = check_points(points.x[:200], ill, kind="classification", input_shape=(12,), num_outputs=2, client="a")
    with pytest.raises(CoreshotError, match=r"site.csv: .*200 records, .*300; give the file that it was made from"):
        measure_loss(study, content, fewer, facts.sums, "site.csv")


def test_a_quantity_and_three_classes():
    cells, score = draw_cells()
    days = (25 + 4 * score).clip(0, 50)
    facts, _, _ = distilled(make_study(QUANTITY, make_glm()), cells, (days[:, None] / 25 - 1))
    assert (facts.target.mean, facts.target.deviation) == pytest.approx((np.mean(days), np.std(days)), rel=0.02)
    assert by_name(facts)["age"].correlations[0] == pytest.approx(np.corrcoef(cells["age"], days)[0, 1], abs=0.02)
    assert by_name(facts)["age"].class_means == ()
    assert any("linear regression follows" in line for line in told(facts))
    stage = np.digitize(score, [-1, 1])
    facts, _, _ = distilled(make_study(THREE, make_glm()), cells, stage)
    expected = [np.corrcoef(cells["age"], stage == index)[0, 1] for index in range(3)]
    assert by_name(facts)["age"].correlations == pytest.approx(tuple(expected), abs=0.02)
    assert facts.slopes.shape == (7, 3)


def test_the_site_s_own_regression_is_in_it():
    """Its slope at the mean is that of a logistic regression of the same data, which was drawn with a slope of 1."""
    cells, score = draw_cells(3000)
    facts, _, _ = distilled(make_study(CLASSES, make_glm()), cells, (score > 0).astype(int))
    names = [fact.name for fact in facts.columns]
    assert facts.slopes[names.index("age"), 0] == pytest.approx(1, abs=0.25)
    assert abs(facts.slopes[names.index("bmi"), 0]) < 0.25
    one_class, _, _ = distilled(make_study(CLASSES, make_glm()), cells, np.zeros(3000, int))
    assert one_class.slopes is None
    assert any("records of one class" in line for line in told(one_class))
    assert by_name(one_class)["age"].correlations == (None,)


def test_without_indicators_what_is_missing_is_told_only_of_categories_and_yes_or_no():
    cells, score = draw_cells()
    cells["smoker"] = np.where(np.arange(300) < 60, "", cells["smoker"])
    facts, _, _ = distilled(make_study(CLASSES, make_glm("zero"), "zero"), cells, (score > 0).astype(int))
    found = by_name(facts)
    assert found["bmi"].missing is None
    assert found["smoker = yes"].missing == pytest.approx(0.2, abs=0.005)
    assert found["group = a"].missing == pytest.approx(0.0, abs=0.005)
    filled = np.where(np.isnan(cells["bmi"]), 35.0, cells["bmi"])
    assert found["bmi"].mean == pytest.approx(np.mean(filled), abs=DEVIATIONS * np.std(filled))
    assert any("middle of its range" in line for line in not_told(facts))


@pytest.mark.parametrize("alone", ["rare", "smoker", "missing", "class", "none"])
def test_a_record_that_is_alone_in_a_group_can_be_read_off_and_it_is_said(alone):
    study = make_study(CLASSES, make_glm())
    cells, score = draw_cells()
    ill = (score > 0).astype(int)
    if alone == "rare":
        cells["group"][17] = "rare"
    elif alone == "smoker":
        cells["smoker"] = np.where(np.arange(300) == 17, "yes", "no")
    elif alone == "missing":
        cells["age"] = np.where(np.arange(300) == 17, np.nan, cells["age"])
    elif alone == "class":
        ill = (np.arange(300) == 17).astype(int)
    facts, _, points = distilled(study, cells, ill)
    group = {"rare": "group = rare", "smoker": "smoker = yes", "missing": "age missing", "class": "ill = yes"}
    warned = [line for line in not_told(facts) if "one record alone" in line]
    if alone == "none":
        assert facts.lone == []
        assert warned == []
        return
    [(words, inputs)] = facts.lone
    assert words == group[alone]
    assert words in warned[0]
    numbers = list(study.inputs.number_inputs)
    error = np.abs(inputs - np.asarray(points.x)[17])[numbers] / np.std(np.asarray(points.x), axis=0)[numbers]
    assert np.max(error) < 0.2
    [found] = read_off(study, facts, points)
    assert found.error == pytest.approx(np.sqrt(np.mean(error**2)), abs=1e-6)


def test_few_records_may_be_determined_and_many_are_not_said_to_be():
    study = make_study(CLASSES, make_glm())
    for count, is_danger in ((12, True), (600, False)):
        cells, score = draw_cells(count)
        facts, _, _ = distilled(study, cells, (score > 0).astype(int))
        assert facts.may_determine_records == is_danger
        assert any("may determine single records" in line for line in not_told(facts)) == is_danger
    cells, _ = draw_cells(1)
    facts, _, _ = distilled(study, cells, np.zeros(1, int))
    assert by_name(facts)["age"].mean == pytest.approx(cells["age"][0], abs=0.01)
    assert not_told(facts)[-1] == "warning: of one record, the means are this record."


@pytest.mark.parametrize("name", METHODS)
def test_the_loss_on_the_records_is_small_and_that_of_a_damaged_message_is_not(name):
    study = make_study(CLASSES, METHODS[name])
    cells, score = draw_cells()
    facts, content, points = distilled(study, cells, (score > 0).astype(int))
    loss = measure_loss(study, content, points, facts.sums, "site.csv")
    assert loss.mean_change <= loss.largest_change
    assert loss.mean_change < 0.02
    assert loss.mean_error < 0.05
    if name == "glm":
        assert loss.mean_change == pytest.approx(content.loss, abs=1e-6)
        codes = {"class_0": content.codes["class_1"], "class_1": content.codes["class_0"]}
        flipped = replace(content, codes=codes)
        assert measure_loss(study, flipped, points, facts.sums, "site.csv").mean_change > 0.05
    if name == "with_inputs":
        coarse = make_study(CLASSES, replace(METHODS[name], max_bytes=4_000))
        facts, content, points = distilled(coarse, cells, (score > 0).astype(int))
        assert measure_loss(coarse, content, points, facts.sums, "site.csv").mean_change > 3 * loss.mean_change
