"""`coreshot new-preset`: an experiment for a data set of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coreshot.cli.output import Json, print_result
from coreshot.errors import CoreshotError


def new_preset(
    name: Annotated[str, typer.Argument(help="A name from `coreshot data list`.")],
    out: Annotated[Path, typer.Option("--out", help="The TOML file to write, such as own.toml.")],
    as_json: Json = False,
) -> None:
    """Write a preset for a data set of the store, with sizes that suit it; `coreshot run` takes it as it is.

    Example: coreshot new-preset trees --out trees.toml
    """
    import tomllib

    from coreshot.experiments.new_preset import write_preset
    from coreshot.experiments.preset import build_preset
    from coreshot.storage import write_bytes

    if out.suffix != ".toml":
        raise CoreshotError(f"--out {out}: a preset is a TOML file; let its name end with .toml.")
    if out.exists():
        raise CoreshotError(f"--out {out}: is already there, and nothing is overwritten; use another name.")
    text = write_preset(name, str(out), out.stem)
    preset = build_preset(out.stem, tomllib.loads(text))  # it loads, or nothing is written
    write_bytes(out, text.encode())
    arms = [arm.label for arm in preset.arms]
    lines = [
        f"{out}: {preset.title}",
        f"arms: {', '.join(arms)}",
        f"next: `coreshot run {out} --plan` says what it costs; `coreshot run {out}` runs it",
    ]
    print_result({"preset": str(out), "title": preset.title, "arms": arms}, as_json, lines)
