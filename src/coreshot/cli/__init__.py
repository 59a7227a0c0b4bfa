"""The command line: thin commands over the other packages."""

from coreshot.cli.commands import main as main
