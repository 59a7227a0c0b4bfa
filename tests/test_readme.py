"""The first Python example of the README runs as it stands, from an empty directory."""

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
