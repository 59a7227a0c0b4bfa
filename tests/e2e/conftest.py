"""What the end-to-end tests share."""

import sys

import pytest

from coreshot import cli


@pytest.fixture
def call(monkeypatch, capsys):
    """`coreshot ...` in this process: exit code, stdout, stderr."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["coreshot", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_of:
            cli.main()
        return exit_of.value.code or 0, *capsys.readouterr()

    return run
