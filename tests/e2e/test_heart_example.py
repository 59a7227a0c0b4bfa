"""The first example for data owners runs as it stands, on drawn hospitals: near the pooled model, in one small file."""

import json
import subprocess
import sys


def test_the_example_runs_on_drawn_hospitals(project, tmp_path):
    found = tmp_path / "found.json"
    command = [sys.executable, str(project / "examples" / "heart" / "run.py"), "--splits", "2", "--json", str(found)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "drawn hospitals, 2 splits" in done.stdout
    numbers = json.loads(found.read_text())
    ours, pooled, alone = (
        numbers["splits"][name]["mean"]
        for name in (
            "coreshot, one file a hospital",
            "pooled, logistic regression",
            "each hospital alone, logistic regression",
        )
    )
    assert numbers["largest_file"] <= 30_000
    assert ours["auc"] > pooled["auc"] - 0.03
    assert ours["accuracy"] > alone["accuracy"] - 0.03
    assert set(numbers["left_out"]["coreshot, one file a hospital"]) == {
        "cleveland",
        "hungarian",
        "switzerland",
        "va",
        "mean",
    }
