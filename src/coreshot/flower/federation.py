"""The processes of a federation: Flower's commands with their options, a home folder for each, a file that lists them.

FOLDER/federation.json      addresses, the authority's certificate, names of nodes, and processes that `up` has started
FOLDER/superlink/           home of the SuperLink: database, log
FOLDER/operator/            home of the coordinator, who starts runs: connection, app, requests and their outcomes
FOLDER/sites/NAME/          home of a site that `up` has made: data, log
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import tomli_w

from coreshot.errors import CoreshotError
from coreshot.storage import read_json, write_bytes, write_json

# Without these Flower reports its use, looks for updates, and installs packages for every run; and, if the last two are
# 1 in the environment, a SuperLink serves its interfaces on further ports, beside the doors of link_main.
SWITCHES = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_INTERNAL_GRPC_CONTROL_API": "0",
    "FLWR_INTERNAL_GRPC_FLEET_API": "0",
}
CONNECTION = "coreshot"
# An app without code: both sides have coreshot installed, and the app only names its modules.
APP = """[project]
name = "coreshot-app"
version = "0.1.0"

[tool.flwr.app]
publisher = "coreshot"

[tool.flwr.app.components]
serverapp = "coreshot.flower.server_app:app"
clientapp = "coreshot.flower.client_app:app"

[tool.flwr.app.config]
request = ""
"""


@dataclass(frozen=True)
class Process:
    role: str
    pid: int
    created: float


@dataclass
class Federation:
    folder: Path
    address: str  # for sites: Flower's Fleet API, and nothing else
    control: str = ""  # for the coordinator, on loopback: runs are started and nodes registered there
    host: str = "127.0.0.1"  # where the SuperLink listens for sites
    certificate: str = ""  # of the authority that has signed the SuperLink's certificate; empty: no TLS
    processes: list[Process] = field(default_factory=list)
    registered: dict[str, str] = field(default_factory=dict)  # sites by node; Flower's own list leaves the names out

    def save(self) -> None:
        values = asdict(self)
        del values["folder"]
        write_json(self.folder / "federation.json", values)

    @classmethod
    def load(cls, folder: Path) -> Federation:
        path = folder / "federation.json"
        if not path.is_file():
            raise CoreshotError(
                f"{folder}: holds no federation (there is no federation.json); "
                f"start one with `coreshot flower up {folder}`."
            )
        values = read_json(path)
        values["processes"] = [Process(**process) for process in values["processes"]]
        return cls(folder, **values)

    @property
    def operator(self) -> Path:
        return self.folder / "operator"

    def start(self, role: str, command: Sequence[str], home: Path) -> Process:
        home.mkdir(parents=True, exist_ok=True)
        with (home / "log").open("ab") as log:
            started = subprocess.Popen(
                command,
                env=environment(home),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process = Process(role, started.pid, psutil.Process(started.pid).create_time())
        self.processes.append(process)
        self.save()
        return process

    def stop(self, role: str | None = None) -> list[str]:
        """Stop all processes, or those of a role, with their child processes; return their roles."""
        chosen = [process for process in self.processes if role in (None, process.role)]
        stop_processes(chosen)
        self.processes = [process for process in self.processes if process not in chosen]
        self.save()
        return [process.role for process in chosen]

    def flwr(self, *arguments: str) -> Any:
        """Run a command of Flower and return its JSON output."""
        if not self.control:
            raise CoreshotError(
                f"{self.folder}: an older coreshot has started its SuperLink, to which any site could give orders; "
                f"`coreshot flower down {self.folder}`, then `up` again."
            )
        found = subprocess.run(
            [program("flwr"), *arguments, "--format", "json"],
            env=environment(self.operator),
            capture_output=True,
            text=True,
            check=False,
        )
        answer = _last_json(found.stdout)
        if found.returncode or answer is None or answer.get("success") is False:
            output = (found.stderr or found.stdout).strip().splitlines() or ["nothing"]
            reason = " ".join(str((answer or {}).get("error-message") or output[-1]).split())
            raise CoreshotError(
                f"SuperLink {self.address}: `flwr {arguments[0]}` failed ({reason}); is it running? See {self.folder}."
            )
        return answer

    def write_operator_home(self) -> None:
        security = {"root-certificates": self.certificate} if self.certificate else {"insecure": True}
        values = {"superlink": {"default": CONNECTION, CONNECTION: {"address": self.control, **security}}}
        write_bytes(self.operator / "config.toml", tomli_w.dumps(values).encode())
        write_bytes(self.operator / "app" / "pyproject.toml", APP.encode())

    def await_superlink(self, process: Process, seconds: float = 180.0) -> None:
        """Until both of its ports are open; on a busy machine that has taken more than a minute."""
        log, until = self.folder / "superlink" / "log", time.monotonic() + seconds
        while time.monotonic() < until:
            if not is_alive(process):
                raise CoreshotError(
                    f"SuperLink {self.address}: ended at once (is the port taken, or {self.host} no address "
                    f"of this machine?); see {log}."
                )
            if is_open(self.control) and is_open(self.address):
                return
            time.sleep(0.2)
        raise CoreshotError(f"SuperLink {self.address}: does not answer after {seconds:g} s; see {log}.")


def is_open(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _last_json(text: str) -> Any:
    """The JSON object at the end of the text: Flower may print other lines first."""
    start = text.find("{")
    try:
        return json.loads(text[start:]) if start >= 0 else None
    except ValueError:
        return None


def environment(home: Path) -> dict[str, str]:
    scripts = str(Path(sys.executable).parent)  # Flower starts its programs by name
    return {
        **os.environ,
        **SWITCHES,
        "FLWR_HOME": str(home.resolve()),
        "PATH": os.pathsep.join([scripts, os.environ.get("PATH", "")]),
    }


def program(name: str) -> str:
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise CoreshotError(f"{name}: is not installed beside {sys.executable}; install coreshot[flower].")
    return str(path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def superlink_command(federation: Federation, is_simulation: bool = False) -> list[str]:
    """A SuperLink with a door for sites and one for the coordinator; a simulation has no sites."""
    sites = ["127.0.0.1", "0"] if is_simulation else [federation.host, federation.address.rsplit(":", 1)[1]]
    host, port = federation.control.rsplit(":", 1)
    database = str(federation.folder.resolve() / "superlink" / "link.db")
    command = [*module("link_main"), *sites, "--host", host, "--port", port, "--database", database]
    command += ["--simulation"] if is_simulation else []
    if not federation.certificate:
        return [*command, "--insecure"]
    certs = Path(federation.certificate).parent
    files = {"--ssl-ca-certfile": "ca.pem", "--ssl-certfile": "superlink.pem", "--ssl-keyfile": "superlink.key"}
    return [
        *command,
        *(part for option, name in files.items() for part in (option, str(certs / name))),
        "--enable-supernode-auth",
    ]


def site_command(superlink: str, config: dict[str, str | float], certificate: str = "", key: str = "") -> list[str]:
    """The command that a site runs; without the authority's certificate, no encryption and no authentication."""
    command = [*module("site_main"), "--superlink", superlink, "--port", str(free_port())]
    command += (
        ["--root-certificates", certificate, "--auth-supernode-private-key", key] if certificate else ["--insecure"]
    )
    for name, value in config.items():
        if '"' in str(value) or "\n" in str(value):
            raise CoreshotError(f"{name} {value!r}: Flower cannot take a quotation mark or a line end here; rename it.")
    pairs = [f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}" for name, value in config.items()]
    return [*command, "--node-config", " ".join(pairs)]


def module(name: str) -> list[str]:
    """A program of this package; -P: without the modules of the folder where it is started."""
    return [sys.executable, "-P", "-m", f"coreshot.flower.{name}"]


def is_alive(process: Process) -> bool:
    found = _found(process)
    return found is not None and found.status() != psutil.STATUS_ZOMBIE


def _found(process: Process) -> psutil.Process | None:
    """The running process, unless its number now belongs to another one."""
    try:
        found = psutil.Process(process.pid)
        return found if found.create_time() == process.created else None
    except psutil.NoSuchProcess:
        return None


def stop_processes(processes: Sequence[Process], seconds: float = 5.0) -> None:
    """Stop processes with their child processes: the apps of a SuperNode and their workers would survive it."""
    found = [one for process in processes if (one := _found(process)) is not None]
    family = [*found, *(child for one in found for child in one.children(recursive=True))]
    for one in found:
        with suppress(psutil.NoSuchProcess):
            one.terminate()
    psutil.wait_procs(found, timeout=seconds)
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    psutil.wait_procs(family, timeout=seconds)
