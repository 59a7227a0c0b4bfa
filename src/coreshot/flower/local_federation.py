"""A federation on one machine, to try it out: a SuperLink, and a preset's clients as sites with files and processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coreshot.errors import CoreshotError
from coreshot.experiments.preset import Preset
from coreshot.flower.federation import CONNECTION, Federation, free_port, is_alive, site_command, superlink_command


def start_superlink(
    folder: Path, host: str, port: int | None, certs: Path | None, is_simulation: bool = False
) -> Federation:
    """Start a SuperLink, or start it again on its database, with its old port and certificates by default."""
    path = folder / "federation.json"
    federation = Federation.load(folder) if path.is_file() else Federation(folder, "")
    if any(process.role == "superlink" and is_alive(process) for process in federation.processes):
        raise CoreshotError(f"{folder}: its SuperLink is running; stop it with `coreshot flower down {folder}`.")
    federation.processes = [process for process in federation.processes if is_alive(process)]
    if federation.address:
        port = port or int(federation.address.rsplit(":", 1)[1])
        certs = certs or (Path(federation.certificate).parent if federation.certificate else None)
    port, reached = port or free_port(), "127.0.0.1" if host == "0.0.0.0" else host
    federation.address, federation.certificate = f"{reached}:{port}", str((certs / "ca.pem").resolve()) if certs else ""
    federation.write_operator_home()
    home = folder / "superlink"
    federation.start("superlink", superlink_command(home, host, port, certs, is_simulation), home)
    federation.await_superlink()
    if certs is not None:
        register_sites(federation, certs)
    return federation


def register_sites(federation: Federation, certs: Path) -> None:
    """Register every public key of the folder under its file's name, which is then the name of the client."""
    for key in sorted((certs / "sites").glob("*.pub")):
        if key.stem not in federation.registered.values():
            node = federation.flwr("supernode", "register", str(key), CONNECTION, "--name", key.stem)["node-id"]
            federation.registered[str(node)] = key.stem
            federation.save()


def write_sites(folder: Path, preset: Preset, seed: int, num_sites: int | None) -> list[str]:
    """Write the data of the task's first `num_sites` clients (None: all), each to the home of its site."""
    clients = dict(list(preset.task.make(seed).clients.items())[:num_sites])
    for name, points in clients.items():
        home = folder / "sites" / name
        home.mkdir(parents=True, exist_ok=True)
        np.savez(home / "data.npz", x=np.asarray(points.x), y=np.asarray(points.y))
    return list(clients)


def start_site(federation: Federation, name: str) -> None:
    home, authority = federation.folder / "sites" / name, federation.certificate
    key = str(Path(authority).parent / "sites" / f"{name}.key") if authority else ""
    config: dict[str, str | float] = {"client-id": name, "data-path": str((home / "data.npz").resolve())}
    federation.start(name, site_command(federation.address, config, authority, key), home)
