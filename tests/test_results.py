"""Each number in the tables of README and docs comes from a committed results file: the tables are those files,
printed.
"""

import json
import shutil

import pytest

from coreshot.experiments.preset import preset_names
from coreshot.report.comparison import comparison_grid
from coreshot.report.frontier import frontier_grid
from coreshot.report.tables import grid_markdown, markdown_table


def committed(project):
    return sorted((project / "results").glob("*.json"))


def documents(project):
    return "".join(path.read_text() for path in [project / "README.md", *sorted((project / "docs").glob("*.md"))])


def missing_tables(readme, files):
    """With the table of communication, which comes from a file of its own."""
    found = []
    for path in files:
        communication = json.loads((path.parent / "communication" / path.name).read_text())
        if markdown_table(json.loads(path.read_text()), communication).strip() not in readme:
            found.append(path.stem)
    return found


def test_the_tables_are_the_committed_results(project):
    files = committed(project)
    assert {path.stem for path in files} <= set(preset_names())
    assert {"moons", "regression"} <= {path.stem for path in files}
    assert missing_tables(documents(project), files) == []


@pytest.mark.parametrize(("folder", "grid"), [("frontier", frontier_grid), ("compare", comparison_grid)])
def test_other_tables_are_the_committed_results_too(project, folder, grid):
    for path in sorted((project / "results" / folder).glob("*.json")):
        assert grid_markdown(grid(json.loads(path.read_text()))).strip() in documents(project), path.name


@pytest.mark.parametrize(("name", "column"), [("moons.json", "nll"), ("communication/moons.json", "floats")])
def test_a_changed_number_is_noticed(project, tmp_path, name, column):
    shutil.copytree(project / "results", tmp_path, dirs_exist_ok=True)
    readme = (project / "docs" / "synthetic.md").read_text()
    assert missing_tables(readme, [tmp_path / "moons.json"]) == []
    rows = json.loads((tmp_path / name).read_text())
    row = next(row for row in rows if row[column] is not None)
    row[column] += 100_000
    (tmp_path / name).write_text(json.dumps(rows))
    assert missing_tables(readme, [tmp_path / "moons.json"]) == ["moons"]


@pytest.mark.parametrize(("task", "worst"), [("regression", 1.5), ("moons", 0.97)])
def test_the_promised_ratio_is_stated_as_it_is(project, task, worst):
    """The page says of each promise whether it holds; this computes it from the committed rows."""
    rows = json.loads((project / "results" / f"{task}.json").read_text())
    name = "rmse" if task == "regression" else "accuracy"

    def mean(arm):
        values = [row[name] for row in rows if row["arm"] == arm]
        return sum(values) / len(values)

    ratio = mean("BPC-FL + HMC") / mean("pooled + HMC")
    assert f"{ratio:.2f} of the pooled" in (project / "docs" / "synthetic.md").read_text()
