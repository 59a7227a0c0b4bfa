"""`coreshot` without arguments: three groups, and only commands that exist."""

import re

from typer.main import get_command

from coreshot.cli.commands import app
from coreshot.cli.welcome import FIRST, WHO


def test_without_arguments_it_says_who_types_what(call):
    code, said, errors = call()
    assert (code, errors) == (0, "")
    assert [who for who in WHO if who in said] == list(WHO)
    assert len(WHO) == 3
    assert "distill study.toml DATA" in said


def test_every_command_that_it_names_exists():
    known = get_command(app).commands
    for command, _ in [*FIRST, *(line for lines in WHO.values() for line in lines)]:
        name = command.split()[1]
        assert name in known or name == "COMMAND" or name.startswith("--"), command
        for option in re.findall(r" (--[a-z-]+)", command):
            group = known.get(name)
            inner = getattr(group, "commands", {}).get(command.split()[2], group) if group else None
            if inner is not None and option != "--help":
                assert any(option in parameter.opts for parameter in inner.params), command


def test_completion_can_be_shown(call):
    code, said, _ = call("--help")
    assert code == 0
    assert "--install-completion" in said
