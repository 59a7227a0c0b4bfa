"""`coreshot key new`: the key with which a site signs what it sends."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from coreshot.cli.output import Json, print_result, refuse_existing, write_new
from coreshot.errors import CoreshotError

key_app = typer.Typer(no_args_is_help=True, help="A site's key, with which it signs the coresets that it sends.")


@key_app.command("new")
def new(
    out: Annotated[Path, typer.Argument(metavar="KEYFILE", help="The file to write; it must not exist yet.")],
    client: Annotated[
        str | None, typer.Option("--client", help="The name of this site; the default is the name of KEYFILE.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a private key, which stays at the site, and beside it KEYFILE.pub, the line for the coordinator's roster.

    Example: coreshot key new my-site.key
    """
    from coreshot.wire.signatures import make_key, roster_line

    name, key, public = client or out.stem, make_key(), out.with_name(f"{out.name}.pub")
    line = roster_line(name, key)
    for path in (out, public):
        refuse_existing(path)
    _write_secret(out, key.to_pem())
    write_new(public, line.encode())
    values = {"key": str(out), "public_file": str(public), "client": name, "public_key": key.public}
    parts = [
        f"private key: {out}; it stays here, and whoever has it can send in the name of {name}",
        f"public key:  {public}; give this file, or its line, to the coordinator by a way that both of you trust:",
        line.rstrip("\n"),
        f"Then sign what you send: coreshot distill ... --client {quote(name)} --key {quote(str(out))}",
    ]
    print_result(values, as_json, parts)


def _write_secret(path: Path, data: bytes) -> None:
    """Readable for its owner alone from the first moment on."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise CoreshotError(f"{path}: cannot be written ({error.strerror}); choose another place.") from None
