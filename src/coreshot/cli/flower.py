"""`coreshot flower up | run | status | down | site | certs`: run a study or a preset between machines, over Flower."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.flower_status import status_lines
from coreshot.cli.options import DataPath, LedgerPath, MaxMemory, Overrides, SiteSettingsPath
from coreshot.cli.output import Json, print_now, print_result, print_run
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.flower.runs import RunRequest, WaitPolicy

flower_app = typer.Typer(
    no_args_is_help=True,
    help="Real sites over a network, with Flower's SuperLink and SuperNodes. Needs coreshot\\[flower].",
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The federation's folder.")]
Certs = Annotated[
    Path | None,
    typer.Option("--certs", help="A folder of `coreshot flower certs`; without it nothing is encrypted."),
]
WorkSeconds = Annotated[
    float | None,
    typer.Option(
        "--work-seconds",
        min=1.0,
        help="After this time a site stops its own work; the default is nine tenths of --answer-seconds.",
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", "--seeds", min=0, help="The seed of the preset's data and of all random numbers.")
]


@flower_app.command()
def up(
    folder: Folder,
    preset: Annotated[
        str | None,
        typer.Option("--preset", help="Also start the clients of this preset's task as sites on this machine."),
    ] = None,
    overrides: Overrides = None,
    seed: Seed = 0,
    sites: Annotated[int | None, typer.Option("--sites", min=1, help="Start only this number of sites.")] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            help="The address where the SuperLink listens for sites; 0.0.0.0: all addresses. With --certs only: "
            "without, it listens on 127.0.0.1.",
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="The port; the default is a free one, or the one it had before.")
    ] = None,
    certs: Certs = None,
    as_json: Json = False,
) -> None:
    """Start a SuperLink, or start it again on its database; with --preset also sites on this machine, to try it out.

    Example: coreshot flower up federation --preset flower_try
    """
    _need_flower()
    from coreshot.experiments.preset import load_preset
    from coreshot.flower.local_federation import start_site, start_superlink, write_sites

    loaded = load_preset(preset, overrides or ()) if preset else None
    federation = start_superlink(folder, host, port, certs)
    running = {process.role for process in federation.processes}
    for name in write_sites(folder, loaded, seed, sites) if loaded else []:
        if name not in running:
            start_site(federation, name)
    roles = [process.role for process in federation.processes]
    facts = {"superlink": federation.address, "control": federation.control, "processes": roles}
    lines = [
        f"SuperLink for sites: {federation.address}; for you, on this machine only: {federation.control}",
        f"processes: {', '.join(roles)}",
        f"stop them with `coreshot flower down {folder}`",
    ]
    if host is not None and federation.host != host:
        facts["note"] = (
            f"it listens on {federation.host} and not on {host}: without --certs, anyone who reaches it could answer "
            "in the name of any site; make certificates with `coreshot flower certs`"
        )
        lines.append(f"note: {facts['note']}")
    print_result(facts, as_json, lines)


@flower_app.command()
def run(
    what: Annotated[
        str, typer.Argument(metavar="PRESET|STUDY", help="A preset's name or TOML file, or a study's TOML file.")
    ],
    federation: Annotated[Path, typer.Option("--federation", help="The federation's folder.")] = Path("federation"),
    out: Annotated[Path | None, typer.Option("--out", help="The folder for results; the default is runs/NAME.")] = None,
    overrides: Overrides = None,
    seed: Seed = 0,
    clients: Annotated[
        str | None, typer.Option("--clients", help="For a study: the names of its sites, with commas between.")
    ] = None,
    inference: Annotated[
        str, typer.Option("--inference", help="For a study with a learner: hmc, map_estimate, or a TOML file.")
    ] = "hmc",
    quorum: Annotated[
        int, typer.Option("--quorum", min=1, help="The number of usable answers below which the run fails.")
    ] = 1,
    join_seconds: Annotated[
        float, typer.Option("--join-seconds", min=1.0, help="How long to wait for sites to join, once.")
    ] = 60.0,
    answer_seconds: Annotated[
        float, typer.Option("--answer-seconds", min=2.0, help="How long to wait for answers, in each round.")
    ] = 3600.0,
    work_seconds: WorkSeconds = None,
    unforget: Annotated[
        str | None,
        typer.Option("--unforget", help="For a study: ask these sites again, which were forgotten; with commas."),
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Use Flower's Ray engine, without sites. Needs coreshot\\[flower-sim].")
    ] = False,
    num_cpus: Annotated[
        int | None, typer.Option("--num-cpus", min=1, help="The number of CPUs of the Ray engine; the default is all.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a preset, or fit the model of a study, with sites in place of local clients.

    What has arrived is kept: the same command continues where it stopped.

    Example: coreshot flower run study.toml --clients site-1,site-2,site-3 --quorum 2 --federation federation
    """
    _need_flower()
    from coreshot.flower.runs import WaitPolicy
    from coreshot.runtime.compilation import keep_compiled

    limits = {"join_seconds": join_seconds, "answer_seconds": answer_seconds}
    wait = WaitPolicy(**limits, work_seconds=work_seconds or 0.9 * answer_seconds, quorum=quorum)
    folder = (out or Path("runs") / Path(what).stem).resolve()
    keep_compiled()
    if _is_study(what):
        request = _study_request(what, folder, wait, seed, clients, inference)
        _run_study(federation, _without_forgotten(request, federation, Path(what), unforget), as_json)
    elif unforget:
        raise CoreshotError("--unforget: only clients of a study can be forgotten; leave it away for a preset.")
    else:
        cpus = (num_cpus or os.cpu_count() or 1) if simulate else None
        _run_preset(federation, what, overrides or [], folder, wait, seed, cpus, as_json)


def _study_request(
    study: str, out: Path, wait: WaitPolicy, seed: int, clients: str | None, inference: str
) -> RunRequest:
    from coreshot.flower.runs import RunRequest
    from coreshot.study.site_records import read_open_study

    names = _client_names(clients)
    read_open_study(Path(study))
    settings = _inference_settings(study, inference)
    text = Path(study).read_text()
    return RunRequest(out=str(out), wait=wait, seed=seed, study=text, clients=names, inference=settings)


def _without_forgotten(request: RunRequest, federation: Path, study: Path, unforgotten: str | None) -> RunRequest:
    """The request with those who stay forgotten."""
    from dataclasses import replace

    from coreshot.flower.forgetting import forgotten_clients, unforget
    from coreshot.study.file import read_study

    folders, study_hash = (Path(request.out), federation), read_study(study).hash
    if unforgotten:
        unforget(folders, study_hash, _client_names(unforgotten))
    return replace(request, forgotten=forgotten_clients(folders, study_hash))


def _run_study(federation: Path, request: RunRequest, as_json: bool) -> None:
    traffic = _submit(federation, request, as_json)
    notes = json.loads((Path(request.out) / "notes.json").read_text())
    model = str(Path(request.out) / "model")
    lines = [f"model: {model}", *(f"note: {note}" for note in notes)]
    print_result({"model": model, "notes": notes, "flower": traffic}, as_json, lines)


def _run_preset(
    federation: Path,
    preset: str,
    overrides: list[str],
    folder: Path,
    wait: WaitPolicy,
    seed: int,
    num_cpus: int | None,
    as_json: bool,
) -> None:
    """With sites, or, if `num_cpus` is given, on the Ray engine."""
    from coreshot.experiments.preset import load_preset
    from coreshot.flower.runs import RunRequest
    from coreshot.report.tables import read_rows

    loaded = load_preset(preset, overrides)
    request = RunRequest(
        out=str(folder),
        wait=wait,
        seed=seed,
        preset=loaded.name,
        values=loaded.resolved,
        is_simulated=num_cpus is not None,
    )
    if num_cpus is None:
        traffic = _submit(federation, request, as_json)
    else:
        from coreshot.flower.ray import simulate_on_ray

        num_clients = len(loaded.task.make(seed).clients)
        traffic = simulate_on_ray(request, num_clients, num_cpus, partial(print_now, as_json=as_json))
        _print_traffic(traffic, as_json)
    print_run(folder, read_rows(folder), as_json, flower=traffic)


def _submit(folder: Path, request: RunRequest, as_json: bool) -> dict[str, Any]:
    from coreshot.flower.federation import Federation
    from coreshot.flower.runs import submit

    traffic = submit(Federation.load(folder), request, partial(print_now, as_json=as_json))
    _print_traffic(traffic, as_json)
    return traffic


def _print_traffic(traffic: dict[str, Any], as_json: bool) -> None:
    sent, received = traffic["bytes_from_server"], traffic["bytes_to_server"]
    print_now(
        f"Flower: run {traffic['run']}, {traffic['status']}, {sent:,} bytes from the server and {received:,} to it",
        as_json,
    )


@flower_app.command()
def status(folder: Folder, as_json: Json = False) -> None:
    """List the processes, nodes and runs of a federation; the exit code is 1 if the SuperLink is not running.

    Example: coreshot flower status federation
    """
    _need_flower()
    from coreshot.flower.federation import CONNECTION, Federation, is_alive

    federation = Federation.load(folder)
    alive = {process.role: is_alive(process) for process in federation.processes}
    facts: dict[str, Any] = {
        "superlink": federation.address,
        "is_running": alive.get("superlink", False),
        "processes": alive,
    }
    if facts["is_running"]:
        nodes = federation.flwr("supernode", "list", CONNECTION)["nodes"]
        runs = federation.flwr("list", CONNECTION)["runs"]
        names = federation.registered
        facts |= {
            "nodes": [{"name": names.get(node["node-id"], node["node-id"]), "status": node["status"]} for node in nodes]
        }
        facts |= {"runs": [{"run": run["run-id"], "status": run["status"]} for run in runs]}
    print_result(facts, as_json, status_lines(facts))
    raise typer.Exit(0 if facts["is_running"] else 1)


@flower_app.command()
def down(folder: Folder, as_json: Json = False) -> None:
    """Stop all processes that `up` has started, and their child processes.

    Example: coreshot flower down federation
    """
    from coreshot.flower.federation import Federation

    stopped = Federation.load(folder).stop()
    print_result({"stopped": list(stopped)}, as_json, [f"stopped: {', '.join(stopped) or 'nothing was running'}"])


@flower_app.command()
def site(
    data: DataPath,
    superlink: Annotated[str, typer.Option("--superlink", help="HOST:PORT of the coordinator's SuperLink.")],
    client: Annotated[str, typer.Option("--client", help="The name of this site, as agreed with the coordinator.")],
    ca: Annotated[Path | None, typer.Option("--ca", help="The authority's certificate, ca.pem; with --key.")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="This site's private key.")] = None,
    study: Annotated[Path | None, typer.Option("--study", help="Answer to this study only: its TOML file.")] = None,
    site_settings: SiteSettingsPath = None,
    max_memory: MaxMemory = None,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.01, help="Stop the work on an answer after this time.")
    ] = 60.0,
    home: Annotated[Path, typer.Option("--home", help="The folder where Flower keeps its files.")] = Path("site"),
    ledger: LedgerPath = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Do without TLS and keys, to try it out.")] = False,
    as_json: Json = False,
) -> None:
    """Take part in a federation: a data owner starts this and leaves it running. Only coresets leave the site.

    Example: coreshot flower site patients.csv --superlink coordinator:8000 --client site-1 --ca ca.pem
    --key site-1.key --study study.toml
    """
    _need_flower()
    from coreshot.flower.federation import environment, site_command
    from coreshot.privacy.release_ledger import ReleaseLedger
    from coreshot.storage import check_client_name

    if (ca is None or key is None) != insecure:
        raise CoreshotError("site: give --ca and --key, or --insecure to do without; not both.")
    for path in (data, *(path for path in (ca, key) if path)):
        if not path.exists():
            raise CoreshotError(f"{path}: there is no such file; check the path.")
    config: dict[str, str | float] = {
        "client-id": check_client_name(client),
        "data-path": str(data.resolve()),
        "seconds-limit": 60 * minutes,
        "ledger": str(ReleaseLedger(ledger).path.resolve()),
    }
    if site_settings is not None:
        from coreshot.data.site_settings import read_site_settings

        read_site_settings(site_settings)
        config["site-settings"] = str(site_settings.resolve())
    if max_memory is not None:
        config["max-memory"] = max_memory
    if study is not None:
        from coreshot.study.site_records import read_open_study

        config["study-hash"] = read_open_study(study).hash
    home.mkdir(parents=True, exist_ok=True)
    command = site_command(superlink, config, str(ca.resolve()) if ca else "", str(key.resolve()) if key else "")
    print_result({"client": client, "superlink": superlink, "home": str(home)}, as_json, ())
    sys.stdout.flush()
    os.execve(command[0], command, environment(home))


@flower_app.command()
def certs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write; it must be empty or new.")],
    sites: Annotated[str, typer.Option("--sites", help="The names of the sites, with commas between.")],
    hosts: Annotated[
        str, typer.Option("--hosts", help="Names and addresses under which sites reach the SuperLink.")
    ] = "localhost,127.0.0.1",
    as_json: Json = False,
) -> None:
    """Make a certificate for the SuperLink and a key for each site of a small federation.

    Example: coreshot flower certs certs --hosts coordinator.example.org --sites site-1,site-2
    """
    _need_flower()
    from coreshot.flower.certs import make_certificates

    names = _client_names(sites)
    make_certificates(folder, [host.strip() for host in hosts.split(",")], names)
    line = (
        f"certificates: {folder}; send ca.pem and sites/NAME.key to each site over a way you trust, and keep the rest"
    )
    print_result({"certificates": str(folder), "sites": list(names)}, as_json, [line])


def _need_flower() -> None:
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        raise CoreshotError("coreshot flower: Flower is not installed; install coreshot[flower].")


def _client_names(text: str | None) -> tuple[str, ...]:
    from coreshot.storage import check_client_name

    names = tuple(check_client_name(part.strip()) for part in (text or "").split(",") if part.strip())
    if not names or len(set(names)) < len(names):
        raise CoreshotError(f"sites {text!r}: give their names, each once, with commas between, such as site-1,site-2.")
    return names


def _is_study(what: str) -> bool:
    """A study's file has a format number; a preset has none."""
    import tomllib

    try:
        return what.endswith(".toml") and "format" in tomllib.loads(Path(what).read_text())
    except (OSError, ValueError):
        return False  # loading it as a preset then gives the error


def _inference_settings(study: str, text: str) -> dict[str, Any] | None:
    """The settings of the inference; None for a study whose posterior has a closed form."""
    from coreshot.cli.model import read_inference
    from coreshot.config import encode_named
    from coreshot.inference.registry import INFERENCES
    from coreshot.study.file import read_study

    return dict(encode_named(INFERENCES, read_inference(text))) if read_study(Path(study)).learner else None
