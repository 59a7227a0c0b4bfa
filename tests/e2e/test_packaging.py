"""What `pip install coreshot` brings is enough for a site: its five commands run where other packages are missing."""

import json
import os
import subprocess
import sys
import tomllib

import pytest

from coreshot.cli.options import RESEARCH
from coreshot.demo.hospitals import HOSPITALS

# A name that is None in sys.modules cannot be imported: as in an environment without these packages.
PROGRAM = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from coreshot.cli import commands

for line in {lines}:
    sys.argv = ["coreshot", *line.split()]
    try:
        commands.main()
    except SystemExit as end:
        if end.code:
            raise
"""


def run(lines, folder):
    program = PROGRAM.format(missing=set(RESEARCH), lines=lines)
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "CORESHOT_LEDGER": str(folder / "ledger")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_five_commands_of_the_example_need_no_package_of_researchers(call, tmp_path):
    """As the example prints them, and as its README has them."""
    _, said, _ = call("example", "heart", "--to", tmp_path / "heart", "--json")
    commands = [line.removeprefix("coreshot ") for line in json.loads(said)["commands"]]
    assert [line.split()[0] for line in commands] == ["study", "distill", "inspect", "fit", "evaluate"]
    readme = (tmp_path / "heart" / "README.md").read_text()
    assert all(line in readme for line in commands)
    others = [f"distill study.toml {name}.csv --out {name}.coreset" for name in HOSPITALS[1:]]
    coresets = " ".join(f"{name}.coreset" for name in HOSPITALS)
    lines = ["demo --plan", *others, *(line.replace("*.coreset", coresets) for line in commands)]
    done = run(lines, tmp_path / "heart")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "heart" / "model.html").exists()


def test_what_needs_them_says_so_in_a_sentence(tmp_path):
    done = run(["run moons_quick"], tmp_path)
    assert done.returncode == 2
    assert "pip install 'coreshot[research]'" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_the_extra_has_just_these(project):
    settings = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    extra = [line.partition(">")[0] for line in settings["optional-dependencies"]["research"]]
    assert sorted(extra) == sorted(RESEARCH)
    assert not set(RESEARCH) & {line.partition(">")[0] for line in settings["dependencies"]}


@pytest.mark.parametrize(
    "name", ["presets/moons.toml", "templates/page.html.j2", "examples/heart/study.toml", "py.typed"]
)
def test_files_that_are_no_python_lie_inside_the_package(project, name):
    assert (project / "src" / "coreshot" / name).is_file()


def test_the_citation_names_the_version(project):
    from importlib.metadata import version

    assert f"version: {version('coreshot')}" in (project / "CITATION.cff").read_text()
