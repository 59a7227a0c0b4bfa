"""Reports: no task or arm is known by name, nothing is simulated or trained, and matplotlib is loaded by them alone."""

import ast
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from matplotlib.collections import PolyCollection

from coreshot.config import Count, settings
from coreshot.data import TASKS, FederatedData
from coreshot.data.display import Display, SummaryColumn
from coreshot.data.synthetic import Moons, Regression
from coreshot.experiments import run as experiments_run
from coreshot.experiments.preset import build_preset, load_preset, preset_names
from coreshot.experiments.run import run
from coreshot.experiments.run_directory import finished_jobs, read_coresets
from coreshot.report import run_report
from coreshot.report.convergence import arm_role
from coreshot.report.images import draw_images, gallery
from coreshot.report.run_report import write_report
from coreshot.report.task_figures import Panel, draw_plane
from coreshot.runtime import simulate as runtime_simulate
from coreshot.types import Coreset, Predictive, make_points

NUM_CLASSES = 100
PRESET = """
title = "a task of the test"
seeds = [0]
prior_precision = 0.1
network = { name = "mlp", hidden = [4], activation = "tanh" }
learner.dm = { name = "dm", num_points = 3, num_updates = 1, step_size_x = 0.1, init_scale = 0.1 }
inference.adam = { name = "map_estimate", optimizer = "adam", step_size = 0.02, num_steps = 2 }
method.fed_avg = { name = "fed_avg", num_rounds = 2, local_steps = 1, batch_size = 4, client_optimizer = { name = "sgd", step_size = 0.05 }, server_optimizer = { name = "sgd", step_size = 1.0 } }
learner.pooled = { name = "everything" }
learner.few = { name = "random_subset", num_points = 2 }
arm = [
  { label = "one", learner = "few", inference = "adam", weighting = "mass" },
  { label = "two", learner = "dm", inference = "adam", weighting = "mass" },
  { label = "three", learner = "pooled", inference = "adam", weighting = "mass" },
  { label = "four", method = "fed_avg" },
  { label = "five", learner = "dm", inference = "adam", weighting = "mass", method = "fed_avg" },
]
"""  # noqa: E501


class ImageTask:
    kind: ClassVar[str] = "classification"
    num_outputs: ClassVar[int] = NUM_CLASSES

    def make(self, seed):
        draws = np.random.default_rng(seed)
        labels = np.array([0, 0, 0, 98, 98, 99, 99, 99])
        parts = [make_points(draws.uniform(size=(8, *self.input_shape)), np.eye(NUM_CLASSES)[labels]) for _ in range(3)]
        return FederatedData(self.kind, {"north": parts[0], "south": parts[1]}, parts[2], None)

    def summaries(self, predict):
        return {"spread": 8643.0, "scale": 2.0}


@settings
class ManyClasses(ImageTask):
    num_clients: Count
    input_shape: ClassVar[tuple[int, ...]] = (4, 4, 1)
    display: ClassVar[Display] = Display(
        columns=(SummaryColumn("spread", "spread / scale", ".1f", divisor="scale"),), columns_note="Spread of the test."
    )


@settings
class Coloured(ImageTask):
    num_clients: Count
    input_shape: ClassVar[tuple[int, ...]] = (5, 4, 3)
    display: ClassVar[Display] = Display(class_names=tuple(f"name-{label}" for label in range(NUM_CLASSES)))


@pytest.fixture(scope="module", params=["many_classes", "coloured"])
def finished(request, tmp_path_factory):
    out = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, "many_classes", ManyClasses)
        patch.setitem(TASKS, "coloured", Coloured)
        values = {**tomllib.loads(PRESET), "task": {"name": request.param, "num_clients": 2}}
        run([build_preset("test", values)], out)
        yield request.param, out


def test_a_report_of_any_image_task_without_a_simulation(finished, monkeypatch):
    """Of 100 classes, and of three channels; with all that could train or simulate taken away."""
    name, out = finished
    drawn = []

    def refuse(*arguments, **settings):
        raise AssertionError("a report simulates nothing")

    def remember(*arguments):
        drawn.append(draw_images(*arguments))
        return drawn[-1]

    for module in (experiments_run, runtime_simulate):
        monkeypatch.setattr(module, "simulate", refuse)
    monkeypatch.setattr(run_report, "draw_images", remember)
    page = write_report(out).read_text()
    assert {path.name for path in (out / "figures").glob("*.png")} == {
        "test.png",
        "test-convergence-floats.png",
        "test-convergence-bytes.png",
    }
    [drawing] = drawn
    titles = {text.get_text() for text in drawing.figure.axes[0].texts}
    assert titles & ({"98", "99"} if name == "many_classes" else {"name-98", "name-99"})
    assert {"north", "south"} <= titles
    assert "one scale for all" in page
    assert ("Spread of the test." in page) == ("spread / scale" in page) == (name == "many_classes")
    assert (">4321.5<" in page) == (name == "many_classes")


def test_arms_have_roles_by_their_parts(finished):
    job = finished_jobs(finished[1])[0]
    roles = [arm_role(job.preset, arm) for arm in job.preset.arms]
    assert roles == ["baseline", "learned", "pooled", "method", "jump start"]


def test_coresets_are_read_as_they_were_received(finished):
    """The same points for the arm of one shot and for its jump start; of pooled data, the clients' own records."""
    jobs = {job.arm.label: job for job in finished_jobs(finished[1])}
    learned, jump = (read_coresets(jobs[label], finished[1]) for label in ("two", "five"))
    assert list(learned) == list(jump) == ["north", "south"]
    for name in learned:
        np.testing.assert_array_equal(learned[name].points.x, jump[name].points.x)
    pooled = read_coresets(jobs["three"], finished[1])
    np.testing.assert_array_equal(pooled["south"].points.x, jobs["three"].data().clients["south"].x)


def test_three_channels_are_colours_on_one_scale():
    images = np.zeros((2, 2, 2, 3), np.float32)
    images[0, ..., 0], images[1, ..., 1] = 4.0, 2.0
    shown = [
        np.asarray(image.get_array()) for image in gallery(images, ["red", "green"], show_scale=True).axes[0].images
    ]
    np.testing.assert_allclose([shown[0][0, 0], shown[1][0, 0]], [[1, 0, 0], [0, 0.5, 0]])
    grey = gallery(np.zeros((1, 2, 2, 5)), ["five channels"]).axes[0].images[0]
    assert np.asarray(grey.get_array()).shape == (2, 2)


def test_high_values_are_light_unless_the_task_says_ink():
    coreset = Coreset(make_points(np.ones((1, 2, 2, 1)), np.ones((1, 1))), 1.0)
    for high_is_dark, colours in ((False, "gray"), (True, "gray_r")):
        drawing = draw_images({"a": coreset}, Display(high_is_dark=high_is_dark), (0.0, 1.0))
        assert drawing.figure.axes[0].images[0].get_cmap().name == colours


def test_a_ratio_has_no_value_without_its_parts():
    column = SummaryColumn("a", "a / b", ".1f", divisor="b")
    assert column.value({"a": 3.0, "b": 2.0}) == 1.5
    assert column.value({"a": 3.0, "b": 0.0}) is column.value({"a": 3.0}) is column.value({"b": 2.0}) is None


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_without_a_base_highlights_its_own_arms(name, source):
    values = tomllib.loads((source / "presets" / f"{name}.toml").read_text())
    if "highlight" in values:
        assert set(values["highlight"]) <= {arm["label"] for arm in values["arm"]}
        assert load_preset(name).highlight == tuple(values["highlight"])


# Who loads matplotlib


def imports_matplotlib(text):
    """Anywhere in a file, inside functions too."""
    nodes = ast.walk(ast.parse(text))
    names = [
        name
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    ]
    return any(name.split(".")[0] in ("matplotlib", "mpl_toolkits", "pylab") for name in names)


def test_only_reports_import_matplotlib(source):
    found = {path.relative_to(source).parts[0] for path in source.rglob("*.py") if imports_matplotlib(path.read_text())}
    assert found == {"report"}


def test_negative_control_an_import_inside_a_function_is_seen():
    assert imports_matplotlib("def late():\n    from matplotlib.figure import Figure\n")
    assert imports_matplotlib("import matplotlib.pyplot as plt\n")
    assert not imports_matplotlib("matplotlib = 'import matplotlib'\n")


def test_runs_sites_and_servers_do_not_load_matplotlib():
    pytest.importorskip("flwr")
    script = (
        "import sys\n"
        "import coreshot.experiments.run, coreshot.flower.server_app, coreshot.api, coreshot.audit.frontier\n"
        "import coreshot.report.tables\n"
        "assert 'matplotlib' not in sys.modules, 'loaded'\n"
        "import coreshot.report.run_report\n"
        "assert 'matplotlib' in sys.modules, 'the check sees nothing'\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Planes


@dataclass(frozen=True)
class FakePosterior:
    is_point_estimate: bool
    num_outputs: int

    def predict(self, x):
        mean = np.full((len(x), self.num_outputs), 1 / self.num_outputs)
        spread = np.full_like(mean, 0.0 if self.is_point_estimate else 0.2)
        return Predictive(mean, spread, spread)


@pytest.mark.parametrize("task", [Moons, Regression])
def test_arms_that_sample_show_their_deviation_and_highlighted_arms_come_first(task):
    data = task(num_clients=2, points_per_client=6, noise_scale=0.1, num_test=4).make(0)
    received = data.clients["client-0"]
    panels = [
        Panel(label, "a note", FakePosterior(label != "sampled", task.num_outputs), received)
        for label in ("plain", "sampled", "first")
    ]
    ordered = run_report._in_order(panels, ("first", "an arm of the base"))
    drawing = draw_plane(task.display, data, ordered)
    titles = [axes.get_title() for axes in drawing.figure.axes if axes.get_title()]
    assert titles[:3] == ["first", "plain", "sampled"]
    if task is Moons:
        assert titles[3:] == ["sampled"]  # a panel of deviations for the arm that has them
    else:
        bands = {
            axes.get_title(): any(isinstance(one, PolyCollection) for one in axes.collections)
            for axes in drawing.figure.axes
        }
        assert (bands["plain"], bands["sampled"]) == (False, True)
    assert draw_plane(Display(), data, ordered) is None
