"""Each number in the README's tables comes from a committed results file: the tables are those files, printed."""

import json

import pytest

from coreshot.preset import preset_names
from coreshot.report import markdown_table


def committed(project):
    return sorted((project / "results").glob("*.json"))


def missing_tables(readme, files):
    return [path.stem for path in files if markdown_table(json.loads(path.read_text())).strip() not in readme]


def test_the_tables_are_the_committed_results(project):
    files = committed(project)
    assert {path.stem for path in files} <= set(preset_names())
    assert {"moons", "regression"} <= {path.stem for path in files}
    assert missing_tables((project / "README.md").read_text() + (project / "docs" / "reproduction.md").read_text(), files) == []


def test_a_changed_number_is_noticed(project, tmp_path):
    rows = json.loads((project / "results" / "moons.json").read_text())
    rows[0]["nll"] += 0.1
    changed = tmp_path / "moons.json"
    changed.write_text(json.dumps(rows))
    assert missing_tables((project / "README.md").read_text(), [changed]) == ["moons"]


@pytest.mark.parametrize(("task", "worst"), [("regression", 1.5), ("moons", 0.97)])
def test_the_promised_ratio_is_stated_as_it_is(project, task, worst):
    """The README says of each promise whether it holds; this computes it from the committed rows."""
    rows = json.loads((project / "results" / f"{task}.json").read_text())
    name = "rmse" if task == "regression" else "accuracy"

    def mean(arm):
        values = [row[name] for row in rows if row["arm"] == arm]
        return sum(values) / len(values)

    ratio = mean("BPC-FL + HMC") / mean("pooled + HMC")
    assert f"{ratio:.2f} of the pooled" in (project / "README.md").read_text()
