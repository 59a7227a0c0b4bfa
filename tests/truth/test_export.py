"""Outside of coreshot: ONNX under onnxruntime, estimators by skops, and a card that names clients and promises."""

import contextlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import onnx
import onnxruntime
import pytest
import skops.io

from coreshot.api import distill
from coreshot.errors import CoreshotError
from coreshot.estimator import SpectralClassifier, SpectralRegressor
from coreshot.fitted.adapting import adapt_to_shares
from coreshot.fitted.exported_estimator import read_skops
from coreshot.fitted.model import FittedModel, fit, read_messages
from coreshot.fitted.onnx_file import to_onnx
from coreshot.inference.posterior import SamplePosterior
from coreshot.methods.glm import Glm
from coreshot.methods.spectral import Spectral
from coreshot.models.networks import Mlp
from coreshot.spectral.features import Identity, RandomConv, RandomVector
from coreshot.spectral.whitened_patches import WhitenedPatches
from coreshot.study import Agreement, Study

STUDIES = {
    "glm": (Glm(dimension=14, powers=(0, 1, 2), products=(0, 1, 2, 3), fills=((2, 3),), winsorise=True), (4,), 2),
    "glm, classes": (Glm(dimension=14), (4,), 3),
    "glm, quantity": (Glm(dimension=14), (4,), 1),
    "spectral": (Spectral(features=RandomVector(dimension=20, nonlinearity="relu", with_inputs=True)), (4,), 3),
    "spectral, cosines": (Spectral(features=RandomVector(dimension=20)), (4,), 2),
    "spectral, as they are": (Spectral(features=Identity(dimension=4)), (4,), 1),
    "spectral, colours": (Spectral(features=WhitenedPatches(dimension=16, size=3)), (8, 9, 3), 3),
    "spectral, images": (Spectral(features=RandomConv(dimension=30, num_filters=6, size=3, grid=2)), (8, 7, 1), 3),
}


def make(method, shape, num_outputs):
    kind = "regression" if num_outputs == 1 else "classification"
    terms = Agreement(task="export", kind=kind, input_shape=shape, num_outputs=num_outputs, prior_precision=1.0)
    return Study(terms, Mlp(hidden=(5,), activation="swish"), method)


def records(seed, count, shape, num_outputs):
    draws = np.random.default_rng(seed)
    x = draws.uniform(-1, 1, size=(count, *shape)).astype(np.float32)
    flat = x.reshape(count, -1)
    flat[:, 3] = draws.uniform(size=count) < 0.2  # an indicator
    signal = 2 * flat[:, 0] + flat[:, 1] * flat[:, 2] + 0.3 * draws.normal(size=count)
    y = 0.3 * signal if num_outputs == 1 else np.digitize(signal, np.linspace(-1, 1, num_outputs + 1)[1:-1])
    return x, y


def run(data, x):
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, {"inputs": x}), strict=True))


def assert_equal(model, x):
    found, said = run(to_onnx(model), x), model.predict(x)
    if "probabilities" in found:
        assert np.max(np.abs(found["probabilities"] - np.asarray(said.mean))) < 1e-5
        return
    assert np.max(np.abs(found["mean"] - np.asarray(said.mean))) < 1e-5
    deviation = np.hypot(np.asarray(said.epistemic), np.asarray(said.aleatoric))
    assert np.max(np.abs(found["deviation"] - deviation)) < 1e-5


@pytest.mark.parametrize("name", STUDIES)
def test_a_thousand_records_have_the_same_predictions_under_onnxruntime(name):
    method, shape, num_outputs = STUDIES[name]
    study = make(method, shape, num_outputs)
    messages = [distill(study, *records(seed, 120, shape, num_outputs), client=f"site-{seed}") for seed in range(2)]
    model = fit(study, messages)
    x = records(5, 1000, shape, num_outputs)[0]
    x.reshape(len(x), -1)[:10, :3] *= 50  # beyond the limits, and strange records
    assert_equal(model, x)
    if name == "glm":
        adapted = adapt_to_shares(model, read_messages(study, messages), {"1": 0.8}).model
        assert_equal(adapted, x)
        # Negative control: the base rates are in the graph.
        assert np.max(np.abs(run(to_onnx(model), x)["probabilities"] - np.asarray(adapted.predict(x).mean))) > 0.01
        said = {one.key: one.value for one in onnx.load_from_string(to_onnx(model)).metadata_props}
        assert said["study"] == study.hash


@pytest.mark.parametrize("num_outputs", [1, 3])
def test_samples_of_a_network_have_the_same_average(num_outputs):
    study = make(STUDIES["spectral"][0], (4,), num_outputs)
    params = jax.vmap(study.model.init)(jax.random.split(jax.random.key(0), 3))
    model = FittedModel(study, SamplePosterior(study.model, params))
    assert_equal(model, records(5, 1000, (4,), num_outputs)[0])


@pytest.mark.parametrize("kind", [SpectralClassifier, SpectralRegressor])
def test_a_fitted_estimator_predicts_the_same_after_the_round_trip(kind):
    """scikit-learn's own checks after it: tests/study/test_estimator.py."""
    x, y = records(0, 60, (4,), 2)
    fitted = kind(num_features=2).fit(x, y, sites=np.arange(60) % 2)
    data = skops.io.dumps(fitted)
    assert skops.io.get_untrusted_types(data=data) == [f"coreshot.estimator.{kind.__name__}"]
    again = skops.io.loads(data, trusted=[f"coreshot.estimator.{kind.__name__}"])
    assert np.array_equal(again.predict(x), fitted.predict(x))
    assert again.get_params() == fitted.get_params()


TABLE = """
format = 1
name = "ward | a"
task = "classification"
[target]
name = "ill"
classes = ["no", "yes"]
[[table.column]]
name = "age"
kind = "number"
range = [20, 90]
[[table.column]]
name = "sex"
kind = "category"
values = ["f", "m"]
[table]
missing = "mean"
[method]
name = "glm"
"""


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    (folder / "study.toml").write_text(TABLE)
    draws = np.random.default_rng(0)
    for name in ("north", "south"):
        ages = draws.integers(20, 90, size=80)
        lines = [f"{age},{'fm'[age % 2]},{'yes' if age + draws.normal(0, 15) > 60 else 'no'}" for age in ages]
        (folder / f"{name}.csv").write_text("\n".join(["age,sex,ill", *lines]) + "\n")
    return folder


def test_the_commands_write_a_local_model_an_estimator_and_a_card(call, model_folder, monkeypatch):
    monkeypatch.chdir(model_folder)
    for name in ("north", "south"):
        assert call("distill", "study.toml", f"{name}.csv", "--client", name, "--out", f"{name}.coreset")[0] == 0
    assert call("fit", "north.coreset", "south.coreset", "--study", "study.toml", "--out", "model")[0] == 0
    code, said, errors = call("adapt", "model", "north.csv", "--out", "local", "--json")
    assert (code, json.loads(said)["records"]) == (0, 80), errors
    assert "records of client north" in errors
    code, said, errors = call(
        "export", "local", "--onnx", "m.onnx", "--sklearn", "m.skops", "--card", "c.md", "--evaluate", "south.csv"
    )
    assert code == 0, errors
    card = (model_folder / "c.md").read_text()
    assert all(
        text in card for text in ("north", "south", "ward \\| a", "No promise of privacy", "Adapted at one place")
    )
    assert call("export", "model", "--card", "d.md")[0] == 0
    assert "| north | 80 |" in (model_folder / "d.md").read_text()
    estimator = read_skops((model_folder / "m.skops").read_bytes())
    x = np.asarray([[0.5, 1, 0, 0, 0], [-0.5, 0, 1, 0, 0], [0.0, 0, 1, 1, 0]], np.float32)
    found = run((model_folder / "m.onnx").read_bytes(), x)["probabilities"]
    assert np.allclose(estimator.predict_proba(x), found, atol=1e-5)
    assert list(estimator.predict(x)) == [("no", "yes")[index] for index in found.argmax(axis=1)]
    with pytest.raises(CoreshotError):
        estimator.fit(x, [0, 1, 1])
    changed = (model_folder / "d.md").read_text().replace("| north | 80 |", "| north | 79 |")
    (model_folder / "e.md").write_text(changed.replace("| south |", "| east |"))
    assert call("export", "model", "--card", "f.md", "--since", "e.md")[0] == 0
    told = (model_folder / "f.md").read_text().partition("## What changed")[2]
    for text in ("south was added, with 80 records", "east is no longer", "north has another file: 79 records before"):
        assert text in told
    assert call("export", "model", "--card", "g.md", "--since", "d.md")[0] == 0
    assert "Nothing: the same clients" in (model_folder / "g.md").read_text()
    assert call("evaluate", "local", "south.csv", "--html", "local.html")[0] == 0
    assert call("evaluate", "model", "south.csv", "--html", "model.html", "--new-site")[0] == 0
    page = (model_folder / "model.html").read_text()
    assert "Between clients" in page
    assert "these records" in page
    for wrong in (
        ["export", "model"],
        ["export", "model", "--card", "c.md"],
        ["export", "model", "--card", "h.md", "--since", "south.csv"],
        ["forget", "local", "--client", "north"],
    ):
        assert call(*wrong)[0] == 2
    assert call("predict", "local", "south.csv", "--out", "p.csv")[0] == 0
    assert call("predict", "local", "south.csv", "--out", "q.csv", "--new-site")[0] == 2


def test_a_run_of_mlflow_has_what_was_agreed_and_measured(call, model_folder, monkeypatch, tmp_path):
    """MLflow itself is replaced by what notes its calls."""
    monkeypatch.chdir(model_folder)
    noted = SimpleNamespace(params={}, metrics={}, names=[], text="")

    @contextlib.contextmanager
    def start_run(run_name):
        yield SimpleNamespace(info=SimpleNamespace(run_id=f"id of {run_name}"))

    stand_in = SimpleNamespace(
        set_experiment=noted.names.append,
        start_run=start_run,
        log_params=noted.params.update,
        log_metrics=noted.metrics.update,
        log_text=lambda text, name: noted.names.append(name),
        log_artifact=lambda path: noted.names.append(Path(path).name),
    )
    monkeypatch.setitem(sys.modules, "mlflow", None)
    code, _, errors = call("export", "model", "--mlflow", "wards")
    assert (code, "coreshot[mlflow]" in errors) == (2, True)
    monkeypatch.setitem(sys.modules, "mlflow", stand_in)
    card = str(tmp_path / "card.md")
    code, said, errors = call(
        "export", "model", "--mlflow", "wards", "--card", card, "--evaluate", "south.csv", "--json"
    )
    assert code == 0, errors
    assert json.loads(said)["mlflow run"] == "id of ward | a"
    assert noted.names == ["wards", "study.toml", "card.md"]
    assert noted.params["clients"] == "north, south"
    assert noted.metrics["accuracy"] > 0.5
    assert call("export", "local", "--mlflow", "wards")[0] == 2
