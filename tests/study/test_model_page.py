"""The page of a model: metrics, for each client too, who is in it and what is promised; the same numbers as JSON."""

import json

import pytest
from PIL import Image

REGRESSION = """
format = 1
name = "days"
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


@pytest.fixture
def model(coreshot, study_path, three_coresets):
    coreshot("fit", *three_coresets, "--study", study_path, "--out", "model")
    return "model"


def with_owner(lines):
    return [
        lines[0] + ",client",
        *(f"{line},{'north' if index % 3 else 'south'}" for index, line in enumerate(lines[1:])),
    ]


def test_a_page_a_picture_and_numbers_for_each_client(coreshot, model, write_site, tmp_path):
    test = write_site("test", count=90, seed=9, change=with_owner)
    told = coreshot("evaluate", model, test, "--html", "page.html", "--picture", "diagram.png")
    assert "page: page.html" in told
    assert told.startswith("Of 90 records the model is right on ")
    with Image.open(tmp_path / "diagram.png") as picture:
        assert picture.size[0] > 300
    page = (tmp_path / "page.html").read_text()
    for words in (
        "coreshot model: small",
        "ECE",
        "north",
        "No promise of privacy",
        "Reliability",
        "[method]",
        "records of test.csv",
        "Of 90 records the model is right on ",
        "sensitivity for &#39;yes&#39; at 0.5",
        "predicted yes",
        "Confusion matrix",
        "Calibration of classes",
        "Metrics by client",
        "bootstrap with 1,000 resamples",
    ):
        assert words in page
    facts = json.loads(coreshot("evaluate", model, test, "--json"))
    assert {name: row["records"] for name, row in facts["clients"].items()} == {"north": 60, "south": 30}
    mixed = sum(row["records"] * row["accuracy"] for row in facts["clients"].values()) / facts["records"]
    assert mixed == pytest.approx(facts["accuracy"])
    names = {"accuracy", "auc", "sensitivity", "specificity", "nll", "brier", "ece"}
    for row in (facts, *facts["clients"].values()):
        assert names == set(row["intervals"])
        assert names - {"sensitivity", "specificity"} == set(row["baselines"])
        assert all(row["intervals"][name][0] <= row[name] <= row["intervals"][name][1] for name in names)
    assert (facts["positive"], facts["threshold"]) == ("yes", 0.5)
    assert sum(map(sum, facts["confusion"])) == 90
    assert [one["name"] for one in facts["classes"]] == ["no", "yes"]
    strict = json.loads(coreshot("evaluate", model, test, "--positive", "no", "--threshold", "0.9", "--json"))
    assert strict["accuracy"] == facts["accuracy"]
    assert strict["sensitivity"] < facts["specificity"]  # fewer are called "no"
    assert "give one of no, yes" in coreshot("evaluate", model, test, "--positive", "maybe", code=2)
    assert "between 0 and 1" in coreshot("evaluate", model, test, "--threshold", "50", code=2)
    assert "is there already" in coreshot("evaluate", model, test, "--html", "page.html", code=2)
    assert "no such column" in coreshot("evaluate", model, test, "--by", "nothing", code=2)


def test_names_on_a_page_are_text(coreshot, model, write_site, tmp_path):
    """A cell of somebody's file must not become part of the page's code."""
    test = write_site(
        "test",
        count=30,
        seed=9,
        change=lambda lines: [lines[0] + ",client", *(line + ",<script>alert(1)</script>" for line in lines[1:])],
    )
    coreshot("evaluate", model, test, "--html", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_regression_has_coverage(coreshot, tmp_path):
    (tmp_path / "days.toml").write_text(REGRESSION)
    rows = [f"{20 + index % 80},{10 + (index % 80) / 4 + (index * 7919 % 13) / 4}" for index in range(300)]
    (tmp_path / "site.csv").write_text("\n".join(["age,days", *rows]) + "\n")
    coreshot("distill", "days.toml", "site.csv", "--out", "site.coreset")
    coreshot("fit", "site.coreset", "--study", "days.toml", "--out", "model")
    facts = json.loads(coreshot("evaluate", "model", "site.csv", "--html", "page.html", "--json"))
    assert 0.8 < facts["coverage_90"] <= 1
    # In days: noise of 0 to 3 in steps of a quarter, and the spread of 20 days.
    assert facts["rmse"] == pytest.approx(0.94, abs=0.1)
    assert facts["baselines"]["rmse"] == pytest.approx(5.9, abs=0.3)
    page = (tmp_path / "page.html").read_text()
    assert "Coverage of intervals" in page
    assert "For 300 records the model predicts days with a root mean squared error of" in page
