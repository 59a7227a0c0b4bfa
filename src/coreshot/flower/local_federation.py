"""A federation on one machine, to try it out: a SuperLink, and a preset's clients as sites with files and processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coreshot.errors import CoreshotError
from coreshot.experiments.preset import Preset
from coreshot.flower.federation import (
    CONNECTION,
    Federation,
    free_port,
    is_alive,
    is_loopback,
    site_command,
    superlink_command,
)


def start_superlink(
    folder: Path, host: str | None, port: int | None, certs: Path | None, is_simulation: bool = False
) -> Federation:
    """Start a SuperLink, or start it again on its database, with its old address and certificates by default.

    Without certificates it listens on loopback only, whatever `host` says.
    """
    path = folder / "federation.json"
    federation = Federation.load(folder) if path.is_file() else Federation(folder, "")
    if any(process.role == "superlink" and is_alive(process) for process in federation.processes):
        raise CoreshotError(f"{folder}: its SuperLink is running; stop it with `coreshot flower down {folder}`.")
    federation.processes = [process for process in federation.processes if is_alive(process)]
    if certs is not None:
        federation.certificate = str(_authority(certs))
    host = host or federation.host
    federation.host = host if federation.certificate or is_loopback(host) else "127.0.0.1"
    _choose_addresses(federation, port, is_simulation)
    federation.write_operator_home()
    process = federation.start("superlink", superlink_command(federation, is_simulation), folder / "superlink")
    federation.await_superlink(process)
    if federation.certificate:
        register_sites(federation, Path(federation.certificate).parent)
    return federation


def _authority(certs: Path) -> Path:
    for name in ("ca.pem", "superlink.pem", "superlink.key"):
        if not (certs / name).is_file():
            raise CoreshotError(f"{certs}: has no {name}; give a folder that `coreshot flower certs` has written.")
    return (certs / "ca.pem").resolve()


def _choose_addresses(federation: Federation, port: int | None, is_simulation: bool) -> None:
    """The ports that it had before, or free ones; the coordinator's door is on loopback, whatever the sites' is."""
    before = int(federation.address.rsplit(":", 1)[1]) if federation.address else None
    port = port or before or free_port()
    control = int(federation.control.rsplit(":", 1)[1]) if federation.control else free_port()
    while control == port:
        control = free_port()
    federation.control = f"127.0.0.1:{control}"
    reached = "127.0.0.1" if federation.host in ("0.0.0.0", "::") else federation.host
    sites = f"[{reached}]:{port}" if ":" in reached else f"{reached}:{port}"
    federation.address = federation.control if is_simulation else sites


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
    config: dict[str, str | float] = {
        "client-id": name,
        "data-path": str((home / "data.npz").resolve()),
        "ledger": str((home / "ledger.sqlite").resolve()),  # its data are a benchmark's: not the user's own ledger
    }
    federation.start(name, site_command(federation.address, config, authority, key), home)
