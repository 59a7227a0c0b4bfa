"""What it takes to match: the first point of a curve that is as good as the arm to match, seed by seed."""

import pytest
from matplotlib.collections import PathCollection

from coreshot.experiments.communication import Curve, communication_rows, first_match, summarise_matches
from coreshot.report.convergence import draw_convergence
from coreshot.report.tables import communication_grid


def point(floats, accuracy, nll):
    return {"round": floats // 10, "floats": floats, "bytes": 4 * floats, "accuracy": accuracy, "nll": nll}


def row(arm, seed, accuracy, nll):
    sent = {"floats_up": 5, "floats_down": 1, "bytes_up": 50, "bytes_down": 10}
    return {"arm": arm, "seed": seed, "accuracy": accuracy, "nll": nll, "rmse": None, "ece": 0.1, **sent}


CURVE = [point(10, 0.5, 0.9), point(20, 0.8, 0.4), point(30, 0.7, 0.3)]
ROWS = [
    row("BPC-FL + SGD", 0, 0.75, 0.2),
    row("BPC-FL + SGD", 1, 0.6, 0.35),
    row("FedAvg", 0, 0.7, 0.3),
    row("FedAvg", 1, 0.7, 0.3),
]
ROLES = {"BPC-FL + SGD": "learned", "FedAvg": "method"}
MATCHES = communication_rows(ROWS, [Curve("FedAvg", 0, CURVE), Curve("FedAvg", 1, CURVE)], "BPC-FL + SGD")


def test_the_first_point_that_is_as_good_even_if_later_ones_are_not():
    assert first_match(CURVE, "accuracy", 0.75)["floats"] == 20
    assert first_match(CURVE, "nll", 0.4)["floats"] == 20  # as good is good enough
    assert first_match(CURVE, "accuracy", 0.9) is None


def test_each_seed_is_matched_with_its_own():
    found = {(one["seed"], one["metric"]): (one["floats"], one["bytes"]) for one in MATCHES}
    assert found == {
        (0, "accuracy"): (20, 80),
        (0, "nll"): (None, None),
        (1, "accuracy"): (20, 80),
        (1, "nll"): (30, 120),
    }


def test_the_table_says_how_many_seeds_matched():
    assert summarise_matches(MATCHES, "FedAvg", "nll", "floats") == {"mean": 30.0, "reached": 1, "seeds": 2}
    grid = communication_grid(ROWS, MATCHES)
    assert grid.headings == [
        "arm",
        "accuracy",
        "floats to match in accuracy",
        "NLL",
        "floats to match in NLL",
        "ECE",
        "floats in all",
    ]
    assert [line[2] for line in grid.lines] == ["–", "20"]
    assert grid.lines[1][4] == "30 (1 of 2 seeds)"
    assert grid.lines[0][-1] == "6"


def test_without_the_arm_to_match_there_is_no_table():
    assert communication_rows(ROWS, [Curve("FedAvg", 0, CURVE)], "no such arm") == []
    assert communication_grid(ROWS, []) is None


@pytest.mark.parametrize("unit", ["floats", "bytes"])
def test_the_figure_has_a_panel_for_each_metric_and_a_logarithmic_axis(unit):
    drawing = draw_convergence(ROWS, [Curve("FedAvg", 0, CURVE), Curve("FedAvg", 1, CURVE)], unit, ROLES)
    axes = drawing.figure.axes
    assert [one.get_title() for one in axes] == ["accuracy", "NLL"]
    assert {one.get_xscale() for one in axes} == {"log"}
    assert axes[0].lines[0].get_xdata().tolist() == [one[unit] for one in CURVE]
    assert draw_convergence(ROWS, [], unit, ROLES) is None


def test_the_jump_start_is_red():
    roles = {**ROLES, "jump": "jump start"}
    drawing = draw_convergence(ROWS, [Curve("FedAvg", 0, CURVE), Curve("jump", 0, CURVE)], "floats", roles)
    colours = {line.get_label(): line.get_color() for line in drawing.figure.axes[0].lines}
    assert colours["jump"] == "#d62728" != colours["FedAvg"]


def test_what_an_arm_is_decides_how_it_is_drawn_and_its_label_does_not():
    """Marks for arms that learned, dashes for pooled data, nothing for a baseline; labels are swapped on purpose."""
    rows = [row(arm, 0, 0.7, 0.3) for arm in ("pooled + HMC", "BPC-FL + HMC", "noise", *map(str, range(8)))]
    roles = {"pooled + HMC": "learned", "BPC-FL + HMC": "pooled", "noise": "baseline", "FedAvg": "method"}
    roles |= {str(index): "method" for index in range(8)}
    axes = draw_convergence([*rows, *ROWS[2:]], [Curve("FedAvg", 0, CURVE)], "floats", roles).figure.axes[0]
    assert [line.get_label() for line in axes.lines if line.get_linestyle() == "--"] == ["BPC-FL + HMC"]
    marks = [one for one in axes.collections if isinstance(one, PathCollection)]
    assert [one.get_label() for one in marks] == ["pooled + HMC", *map(str, range(8))]  # more arms than markers
    looks = {(tuple(one.get_paths()[0].vertices.ravel()), tuple(one.get_facecolor()[0])) for one in marks}
    assert len(looks) == len(marks)
