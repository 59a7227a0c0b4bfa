"""A whole federation, from keys to results, by its commands.

Run as `python alone.py FOLDER PRESET`, in a network namespace that has only loopback.

Leaves FOLDER/said.json: what each command returned and said, and whether the outside could be reached.
"""

import fcntl
import json
import socket
import struct
import subprocess
import sys
from pathlib import Path

from attack import attack

NUM_SITES = 3


def raise_loopback() -> None:
    """What `ip link set lo up` does: in a new namespace it is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sh", b"lo", 0x1 | 0x40)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(probe, 0x8914, request)  # SIOCSIFFLAGS


def outside() -> str:
    """Why nothing outside can be reached; TEST-NET-1 belongs to nobody."""
    try:
        socket.create_connection(("192.0.2.1", 443), timeout=2).close()
    except OSError as error:
        return str(error)
    return "reached"


def call(folder: Path, arguments: list[str]) -> dict:
    """Output goes to files: what a command leaves running would keep a pipe open."""
    with (folder / "stdout").open("w") as stdout, (folder / "stderr").open("w") as stderr:
        code = subprocess.run(
            [sys.executable, "-m", "coreshot", *arguments],
            stdout=stdout,
            stderr=stderr,
            check=False,
            timeout=400,
        ).returncode
    return {"code": code, "stdout": (folder / "stdout").read_text(), "stderr": (folder / "stderr").read_text()}


def address_of(federation: Path, which: str) -> str:
    return json.loads((federation / "federation.json").read_text())[which]


def attacks(folder: Path, federation: Path, authority: Path) -> dict:
    """A foreign app, at the door that sites can reach, and at the coordinator's own."""
    (folder / "marks").mkdir()
    return {
        f"attack at {door}": attack(
            folder / f"attacker-{door}", address_of(federation, door), authority, folder / "marks", NUM_SITES
        )
        for door in ("address", "control")
    }


def main(folder: Path, preset: str) -> None:
    if "--namespace" in sys.argv:
        raise_loopback()
    federation, certs, strangers = folder / "federation", folder / "certs", folder / "strangers"
    names = ",".join(f"client-{index}" for index in range(NUM_SITES))
    commands = {
        "certs": ["certs", certs, "--sites", names],
        "strangers": ["certs", strangers, "--sites", "client-0"],
        "up": ["up", federation, "--preset", preset, "--certs", certs],
        "run": [
            "run",
            preset,
            "--federation",
            federation,
            "--out",
            folder / "run",
            "--quorum",
            NUM_SITES,
            "--join-seconds",
            "200",
            "--answer-seconds",
            "300",
        ],
        "status": ["status", federation, "--json"],
        # A node with the authority's certificate, and a key that nobody has registered.
        "stranger": [
            "site",
            federation / "sites" / "client-0" / "data.npz",
            "--client",
            "client-0",
            "--home",
            folder / "stranger",
        ],
        "down": ["down", federation],
        "status after": ["status", federation, "--json"],
    }
    said = {"outside": outside()}
    for name, arguments in commands.items():
        if name == "run":  # the attacks come first, so that the run shows what is left of the sites
            said |= attacks(folder, federation, certs / "ca.pem")
        if name == "stranger":
            arguments += [
                "--superlink",
                address_of(federation, "address"),
                "--ca",
                certs / "ca.pem",
                "--key",
                strangers / "sites" / "client-0.key",
            ]
        said[name] = call(folder, ["flower", *map(str, arguments)])
    (folder / "said.json").write_text(json.dumps(said, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
