"""A client's arrays are checked before any work, and each error names the client, what was found and what to do."""

import numpy as np
import pytest

import coreshot
from coreshot.data.validate import check_fits_learner, check_points
from coreshot.errors import CoreshotError
from coreshot.types import make_points

X = np.arange(6.0).reshape(3, 2)


def check(x, y, kind="classification", num_outputs=2):
    return check_points(x, y, kind=kind, input_shape=(2,), num_outputs=num_outputs, client="ward 7")


def test_integer_labels_become_one_hot():
    points = check(X, [1, 0, 1])
    assert points.y.tolist() == [[0, 1], [1, 0], [0, 1]]
    assert points.x.tolist() == X.tolist()
    assert points.weight.tolist() == [1, 1, 1]


def test_labels_may_be_a_column_or_probabilities():
    assert check(X, [[1], [0], [1]]).y.tolist() == [[0, 1], [1, 0], [0, 1]]
    assert check(X, [[0.25, 0.75], [1, 0], [0, 1]]).y.tolist() == [[0.25, 0.75], [1, 0], [0, 1]]


def test_targets_may_be_flat():
    assert check(X, [1.5, 2, 3], "regression", 1).y.tolist() == [[1.5], [2], [3]]


NAN = np.array([[0, 1], [2, np.nan], [4, 5]])

REFUSED = {
    "flat inputs": ([1.0, 2.0, 3.0], [0, 1, 0], ("(3,)", "(points, 2)", "reshape")),
    "too many columns": (np.zeros((3, 3)), [0, 1, 0], ("(3, 3)", "(points, 2)", "reshape")),
    "fewer labels than inputs": (X, [0, 1], ("3 inputs but 2 labels", "give one for each")),
    "no points": (np.zeros((0, 2)), [], ("no points", "leave this client out")),
    "an empty list": ([], [], ("no points", "leave this client out")),
    "a missing value": (NAN, [0, 1, 0], ("inputs", "not finite at index (1, 1)", "1 such values", "remove or fill")),
    "an infinite value": (
        np.array([[np.inf, 1], [2, 3], [4, 5]]),
        [0, 1, 0],
        ("not finite at index (0, 0)", "remove or fill"),
    ),
    "a missing label": (X, [0, np.nan, 1], ("labels", "not finite at index (1,)", "remove or fill")),
    "a label above": (X, [0, 2, 1], ("the label at index 1", "classes 0 to 1", "relabel or drop")),
    "a label below": (X, [0, 1, -1], ("the label at index 2", "classes 0 to 1", "relabel or drop")),
    "half a label": (X, [0, 0.5, 1], ("the label at index 1", "relabel or drop")),
    "probabilities of another number of classes": (X, np.ones((3, 3)) / 3, ("(3, 3)", "2 probabilities")),
    "probabilities that do not sum to one": (X, [[0.5, 0.5], [0.5, 0.6], [1, 0]], ("label row 1", "sum to 1", "mend")),
    "negative probabilities": (X, [[0.5, 0.5], [-0.5, 1.5], [1, 0]], ("label row 1", "mend")),
    "text": (X, ["a", "b", "c"], ("labels are not an array of numbers", "give numbers")),
    "ragged rows": ([[1, 2], [3]], [0, 1], ("inputs are not an array of numbers", "of one shape")),
    "a single number": (3.0, [0], ("inputs are a single number", "give one row a point")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_client_finding_and_remedy(case):
    x, y, words = REFUSED[case]
    with pytest.raises(CoreshotError) as error:
        check(x, y)
    text = str(error.value)
    assert text.startswith("ward 7: ")
    assert "\n" not in text
    for word in words:
        assert word in text


def test_targets_of_another_width_are_refused():
    with pytest.raises(
        CoreshotError, match=r"ward 7: targets have shape \(3, 2\), the study wants \(points, 1\); reshape"
    ):
        check(X, np.zeros((3, 2)), "regression", 1)


def test_one_class_only_is_refused():
    points = make_points(X, np.eye(2)[[1, 1, 1]])
    with pytest.raises(
        CoreshotError, match=r"ward 7: all 3 labels are class 1; .*add points of another class or leave this client out"
    ):
        check_fits_learner(points, kind="classification", num_points=2, client="ward 7")
    check_fits_learner(make_points(X, np.eye(2)[[1, 0, 1]]), kind="classification", num_points=2, client="ward 7")
    check_fits_learner(make_points(X, np.ones((3, 1))), kind="regression", num_points=2, client="ward 7")


def test_fewer_points_than_the_coreset_is_refused():
    points = make_points(X, np.eye(2)[[1, 0, 1]])
    with pytest.raises(
        CoreshotError,
        match=r"ward 7: 3 points are fewer than the coreset's 4; lower num_points or leave this client out",
    ):
        check_fits_learner(points, kind="classification", num_points=4, client="ward 7")
    check_fits_learner(points, kind="classification", num_points=3, client="ward 7")
    check_fits_learner(points, kind="classification", num_points=None, client="ward 7")


@pytest.mark.parametrize(
    ("x", "y", "words"), [(NAN, [0, 1, 0], "not finite"), (X, [0, 0, 0], "class 0"), (X[:2], [0, 1], "fewer than")]
)
def test_distill_checks_before_any_work(make_study, monkeypatch, x, y, words):
    monkeypatch.setattr("coreshot.methods.one_shot.distill", lambda *_, **__: pytest.fail("the learner was started"))
    with pytest.raises(CoreshotError, match=f"ward 7: .*{words}"):
        coreshot.distill(make_study("classification"), x, y, client="ward 7")
