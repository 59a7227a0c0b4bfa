"""The notebooks run, and hold the outputs of a run; the paper's with settings that take seconds."""

import json

import pytest


@pytest.fixture(scope="module")
def run_notebook(project):
    import importlib.util

    spec = importlib.util.spec_from_file_location("notebooks", project / "benchmarks" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run_notebook


def read(project, name):
    return json.loads((project / "docs" / "notebooks" / f"{name}.ipynb").read_text())


def printed(notebook):
    return ["".join(output.get("text", "")) for cell in notebook["cells"] for output in cell.get("outputs", ())]


@pytest.mark.parametrize(("name", "most"), [("first-study", 20_000), ("paper", 500_000)])
def test_outputs_are_there_and_small(project, name, most):
    notebook = read(project, name)
    assert len(json.dumps(notebook)) < most
    shown = [cell for cell in notebook["cells"] if cell.get("outputs")]
    assert len(shown) >= 2
    assert not any(output["output_type"] == "error" for cell in shown for output in cell["outputs"])


def test_the_owners_notebook_prints_what_it_holds(project, run_notebook):
    """All but digits: another processor may round differently."""
    notebook = read(project, "first-study")
    done = run_notebook(notebook, "first-study")
    assert [len(text.splitlines()) for text in printed(done)] == [len(text.splitlines()) for text in printed(notebook)]
    assert printed(done)[-1] == printed(notebook)[-1] == "the same model as if it had never sent a file: True\n"


def test_the_papers_notebook_runs(project, run_notebook, monkeypatch):
    from coreshot.demo import paper

    whole = paper.load_preset
    quick = {
        "demo_moons": [
            "task.num_clients=2",
            "learner.bpc={name='noise', num_points=4, init_scale=0.5}",
            "inference.hmc={name='map_estimate', optimizer='adam', step_size=0.02, num_steps=3}",
        ],
        "demo_regression": [
            "task.num_clients=2",
            "learner.bpc={name='noise', num_points=6, init_scale=0.5}",
            "inference.converged={name='map_estimate', optimizer='adam', step_size=0.02, num_steps=3}",
        ],
    }
    monkeypatch.setattr(paper, "load_preset", lambda name: whole(name, quick[name]))
    done = run_notebook(read(project, "paper"), "paper")
    pictures = [one for cell in done["cells"] for one in cell.get("outputs", ()) if "image/png" in one.get("data", {})]
    assert len(pictures) == 2


def test_a_cell_that_fails_is_noticed(run_notebook):
    cell = {"cell_type": "code", "source": ["1 / 0"], "metadata": {}}
    with pytest.raises(ZeroDivisionError):
        run_notebook({"cells": [cell]}, "broken")
