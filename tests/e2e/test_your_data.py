"""docs/your-data.md runs as it stands: the file, the commands, and the arms that it says to add."""

import json
import re
import shlex

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")
BLOCK = re.compile(r"^```(python|console|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Of what `new-preset` writes, to be done in seconds; the other arms are run by test_newcomers_data.py.
SMALL = {
    "inference.adam.num_steps": 30,
    "method.fed_avg.num_rounds": 2,
    "method.fed_avg.local_steps": 2,
    "method.head.num_rounds": 4,
}
ARM = re.compile(r'^\[\[arm\]\]\nlabel = "(BPC-FL|random subset|class mean|noise)"\n(?:.+\n)*', re.MULTILINE)


def test_ten_minutes_from_a_file_to_a_table(call, project, tmp_path, monkeypatch):
    monkeypatch.setenv("CORESHOT_DATA", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((project / "docs" / "your-data.md").read_text())
    assert [kind for kind, _ in blocks] == ["python", "console", "toml", "console"]
    changes = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, "docs/your-data.md", "exec"), {})
        elif kind == "toml":
            written = (tmp_path / "own.toml").read_text()
            kept = ARM.sub("", written).replace('match = "BPC-FL"', 'match = "spectral"')
            assert len(ARM.findall(written)) == 4
            (tmp_path / "own.toml").write_text(kept + "\n" + text)
        else:
            for command in text.splitlines():
                words = shlex.split(command)[1:]
                code, _, errors = call(*words, *(changes if words[0] == "run" else ()))
                assert code == 0, (command, errors)
    rows = {row["arm"]: row for row in json.loads((tmp_path / "runs" / "own" / "results.json").read_text())}
    assert {"spectral", "FedAvg", "AFL / Fed3R", "FedNCM", "FedAvg of the head", "pooled"} <= rows.keys()
    assert rows["spectral"]["accuracy"] > 0.9
    assert rows["AFL / Fed3R"]["accuracy"] > 0.9
    page = (tmp_path / "runs" / "own" / "report.html").read_text()
    assert all(arm in page for arm in ("FedNCM", "FedAvg of the head"))
