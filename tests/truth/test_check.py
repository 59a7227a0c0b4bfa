"""Do records look like those of the federation: seldom an alarm where nothing is wrong, always one where it is."""

import numpy as np
import pytest

from coreshot.api import distill
from coreshot.errors import CoreshotError
from coreshot.fitted.calibrated_here import calibration_here
from coreshot.fitted.fits_here import ALL, check_fit
from coreshot.fitted.model import fit, read_messages
from coreshot.methods.spectral import Spectral
from coreshot.models.networks import Mlp
from coreshot.spectral.features import RandomConv
from coreshot.study import Agreement, Study
from coreshot.study.file import parse_study

STUDY = """
format = 1
name = "check"
task = "classification"
[target]
name = "ill"
classes = ["no", "yes"]
[table]
missing = "mean"
[[table.column]]
name = "age"
kind = "number"
range = [0, 100]
[[table.column]]
name = "pressure"
kind = "number"
range = [50, 250]
outside = "missing"
[method]
name = "glm"
dimension = 4
"""
NUM_DRAWS, NUM_RECORDS = 30, 60


def patients(draws, size, age=50, lacks_pressure=False):
    """Cells, and who is ill."""
    ages = np.clip(draws.normal(age, 12, size), 0, 100)
    pressures = np.clip(draws.normal(100 + 0.6 * ages, 15), 60, 240)
    ill = draws.uniform(size=size) < 1 / (1 + np.exp(-(ages - 50) / 8))
    cells = {"age": ages.tolist(), "pressure": [None] * size if lacks_pressure else pressures.tolist()}
    return cells, ill.astype(int)


@pytest.fixture(scope="module")
def federation():
    study, draws = parse_study(STUDY, "study").study, np.random.default_rng(0)
    parts = [patients(draws, 300), patients(draws, 200, age=62), patients(draws, 150, lacks_pressure=True)]
    messages = [
        distill(study, study.inputs.encode(cells, "here")[0], y, client=f"site-{number}")
        for number, (cells, y) in enumerate(parts)
    ]
    return study, fit(study, messages), read_messages(study, messages)


def alarms(federation, make):
    study, model, contents = federation
    draws = np.random.default_rng(1)
    found = [check_fit(model, contents, study.inputs.encode(make(draws), "here")[0]) for _ in range(NUM_DRAWS)]
    return sum(one.is_alarm for one in found), found[0]


@pytest.mark.parametrize(
    ("who", "more"), [("site-0", {}), ("site-1", {"age": 62}), ("site-2", {"lacks_pressure": True})]
)
def test_records_of_a_client_are_seldom_strange(federation, who, more):
    """Also of one that lacks a column."""
    number, found = alarms(federation, lambda draws: patients(draws, NUM_RECORDS, **more)[0])
    assert number <= 2
    assert found.nearest in (who, ALL)
    assert "look like those of" in found.sentence


def change(column, to):
    def make(draws):
        cells = patients(draws, NUM_RECORDS)[0]
        return {**cells, column: [to(cell) for cell in cells[column]]}

    return make


@pytest.mark.parametrize(
    ("column", "to"),
    [
        ("age", lambda cell: min(cell + 25, 100)),
        ("pressure", lambda cell: cell + 40),
        ("age", lambda cell: 0.0),
    ],
)
def test_shifted_columns_and_other_units_are_always_noticed(federation, column, to):
    number, found = alarms(federation, change(column, to))
    assert number == NUM_DRAWS
    assert "nobody's" in found.sentence
    assert next(iter(found.differing)) == column


def test_a_pressure_in_other_units_counts_as_missing_and_looks_like_the_client_that_lacks_it(federation):
    """All its cells are outside of the range; reading the file warns of that."""
    number, found = alarms(federation, change("pressure", lambda cell: 0.1333 * cell))
    assert number <= 2
    assert found.nearest == "site-2"


def test_a_column_that_is_lost_is_named(federation):
    assert alarms(federation, change("age", lambda cell: None))[1].lost == ("age",)
    study, model, contents = federation
    with pytest.raises(CoreshotError, match="too few to compare"):
        check_fit(model, contents, study.inputs.encode(patients(np.random.default_rng(0), 5)[0], "here")[0])


def test_shares_of_classes_here_beside_those_that_are_expected(federation):
    study, model, _ = federation
    cells, ill = patients(np.random.default_rng(2), 400)
    x = study.inputs.encode(cells, "here")[0]
    right, wrong = (calibration_here(model, x, y)[1] for y in (ill, np.ones(400, int)))
    assert right.low < right.difference < right.high
    assert right.low < 0 < right.high
    assert "as expected" in right.sentence
    assert wrong.low > 0
    assert "coreshot adapt" in wrong.sentence


def test_rotated_images_are_noticed():
    draws = np.random.default_rng(0)

    def images(size):
        """A bright bar at the top, and noise."""
        found = 0.3 * draws.uniform(size=(size, 8, 8, 1))
        found[:, 1:3] += draws.uniform(0.3, 0.7, size=(size, 1, 1, 1))
        return found.astype(np.float32), draws.integers(2, size=size)

    terms = Agreement(task="bars", kind="classification", input_shape=(8, 8, 1), num_outputs=2, prior_precision=1.0)
    features = RandomConv(dimension=24, num_filters=6, size=3, grid=2)
    study = Study(terms, Mlp(hidden=(5,), activation="relu"), Spectral(features=features))
    messages = [distill(study, *images(80), client=name) for name in ("north", "south")]
    model, contents = fit(study, messages), read_messages(study, messages)
    asked = [images(60)[0] for _ in range(10)]
    assert sum(check_fit(model, contents, x).is_alarm for x in asked) <= 1
    assert all(check_fit(model, contents, np.rot90(x, axes=(1, 2)).copy()).is_alarm for x in asked)
