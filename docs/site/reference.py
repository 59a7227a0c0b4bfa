"""Pages of the reference, made from the program: its commands, its public names, the settings of a study file."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import click
from typer.main import get_command

import coreshot
from coreshot.cli import commands
from coreshot.inference.registry import INFERENCES
from coreshot.learners import LEARNERS
from coreshot.methods import METHODS
from coreshot.models import NETWORKS
from coreshot.study.study import Agreement

PUBLIC = sorted(coreshot._HOMES)  # every name that `import coreshot` offers
OPENING = inspect.getdoc(commands) or ""


def commands_page() -> str:
    parts = ["# Commands", OPENING.partition("\n\n")[2].replace("\n", " ")]
    parts.append("What each exit code means for a script: [exit codes](../for-sites.md#exit-codes).")
    for path, command in walk(get_command(commands.app), ()):
        parts += [f"## coreshot {' '.join(path)}", *_command(command)]
    return "\n\n".join(parts) + "\n"


def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from walk(command.commands[name], (*path, name))
    else:
        yield path, command


def _command(command: click.Command) -> Iterator[str]:
    said, _, example = (command.help or "").partition("Example:")
    yield _plain(said)
    yield "```\n" + " ".join(example.split()) + "\n```"
    lines = ["| argument or option | what it is | default |", "|---|---|---|"]
    for parameter in command.params:
        names = parameter.metavar if isinstance(parameter, click.Argument) else ", ".join(parameter.opts)
        default = parameter.default
        shown = "required" if parameter.required else "" if default in (None, False, ()) else f"`{default}`"
        lines.append(f"| `{names}` | {_cell(getattr(parameter, 'help', None) or '')} | {shown} |")
    yield "\n".join(lines)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _plain(text.replace("\\[", "[")).replace("|", "\\|")


def api_page() -> str:
    parts = ["# Python", "Everything that `import coreshot` offers."]
    parts += [f"::: coreshot.{coreshot._HOMES[name]}.{name}" for name in PUBLIC]
    return "\n\n".join(parts) + "\n"


def settings_page() -> str:
    parts = [
        "# Settings of a study file and of presets",
        "How a study file is written is on the [coordinator's page](../study.md). These are the settings of each part, "
        "as the program knows them. A setting without a default must be given.",
        "## The agreement",
        _fields(Agreement),
    ]
    groups: dict[str, Mapping[str, Any]] = {
        "Methods": METHODS,
        "Learners": LEARNERS,
        "Networks": NETWORKS,
        "Inferences": INFERENCES,
    }
    for title, registry in groups.items():
        parts.append(f"## {title}")
        for name in sorted(registry):
            said = _plain((inspect.getdoc(registry[name]) or "").partition("\n\n")[0])
            parts += [f"### {name}", "" if said.startswith(f"{registry[name].__name__}(") else said]
            parts.append(_fields(registry[name]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _fields(settings: Any) -> str:
    lines = ["| setting | kind | default |", "|---|---|---|"]
    for field in dataclasses.fields(settings):
        kind = re.sub(r"Annotated\[(.*?), .*\]", r"\1", str(field.type))
        lines.append(f"| `{field.name}` | `{_cell(kind)}` | {_default(field)} |")
    return "\n".join(lines) if len(lines) > 2 else "No settings."


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{_cell(repr(field.default))}`"
    return "must be given" if field.default_factory is dataclasses.MISSING else "see the source"


def wire_page() -> str:
    return "# The wire: what a message is, byte by byte\n\n::: coreshot.wire.messages\n"
