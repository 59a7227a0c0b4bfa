"""The README: its first Python example runs as it stands, it is short, and its links lead somewhere."""

import os
import re
import subprocess
import sys

import pytest


def first_example(text):
    found = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else None


def test_the_first_example_runs(project, tmp_path):
    example = first_example((project / "README.md").read_text())
    if example is None:
        pytest.fail("README.md has no ```python block; its first one is what this test runs")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert list(tmp_path.iterdir()) == []  # it leaves nothing behind


def test_the_example_is_found_where_there_is_one():
    assert first_example("# a\n\n```python\nx = 1\n```\n\n```python\ny\n```\n") == "x = 1\n"
    assert first_example("# a\n\n    x = 1\n") is None


MOST_WORDS, LONGEST_LINE = 600, 120


def test_it_is_short_and_says_how_to_start_first(project):
    text = (project / "README.md").read_text()
    assert len(text.split()) <= MOST_WORDS
    assert max(map(len, text.splitlines())) <= LONGEST_LINE
    first_screen = "\n".join(text.splitlines()[:12])
    assert "make demo" in first_screen
    assert "make test" in first_screen


def dead_links(text, folder):
    """Relative links whose file is not there."""
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    return [target for target in targets if not (folder / target).exists()], len(targets)


def test_its_links_lead_somewhere(project):
    dead, num_links = dead_links((project / "README.md").read_text(), project)
    assert dead == []
    assert num_links > 5
    assert dead_links("[a](docs/nowhere.md) [b](README.md)", project) == (["docs/nowhere.md"], 2)


def test_the_commands_are_commands(project):
    """Each `coreshot X` in the README is a command of the program."""
    from typer.main import get_command

    from coreshot.cli.commands import app

    text = (project / "README.md").read_text()
    named = set(re.findall(r"(?:^    |`)coreshot ([a-z]+)", text, re.MULTILINE))
    assert named
    assert named <= set(get_command(app).commands)
