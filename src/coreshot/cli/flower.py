"""`coreshot flower up | run | status | down | site | certs`: a study or a preset between machines, over Flower."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from coreshot.cli.options import Overrides
from coreshot.cli.output import Json, console, print_json, say, teller
from coreshot.errors import CoreshotError

flower_app = typer.Typer(
    no_args_is_help=True, help="Real sites over a network: Flower's SuperLink and SuperNodes. Needs coreshot\\[flower]."
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The federation's folder.")]
Certs = Annotated[
    Path | None,
    typer.Option("--certs", help="A folder that `coreshot flower certs` has written; without it nothing is encrypted."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the preset's data and of all random numbers.")]


@flower_app.command()
def up(
    folder: Folder,
    preset: Annotated[
        str | None, typer.Option("--preset", help="Also start its task's clients as sites on this machine.")
    ] = None,
    overrides: Overrides = None,
    seed: Seed = 0,
    sites: Annotated[int | None, typer.Option("--sites", min=1, help="Only the first so many of them.")] = None,
    host: Annotated[
        str, typer.Option("--host", help="Where the SuperLink listens; 0.0.0.0: everywhere.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option("--port", help="The default is a free one, or the one that it had.")
    ] = None,
    certs: Certs = None,
    as_json: Json = False,
) -> None:
    """Start a SuperLink, or start it again on its database; with --preset a whole federation for trying it out.

    Example: coreshot flower up federation --preset moons_quick
    """
    _need_flower()
    from coreshot.experiments.preset import load_preset
    from coreshot.flower.trial import bring_up, start_site, write_sites

    loaded = load_preset(preset, overrides or ()) if preset else None
    federation = bring_up(folder, host, port, certs)
    running = {process.role for process in federation.processes}
    for name in write_sites(folder, loaded, seed, sites) if loaded else []:
        if name not in running:
            start_site(federation, name)
    roles = [process.role for process in federation.processes]
    if as_json:
        print_json({"superlink": federation.address, "processes": roles})
        return
    say(f"SuperLink {federation.address}; processes: {', '.join(roles)}")
    say(f"stop them with `coreshot flower down {folder}`")


@flower_app.command()
def run(
    what: Annotated[
        str, typer.Argument(metavar="PRESET|STUDY", help="A preset's name or TOML file, or a study's TOML file.")
    ],
    federation: Annotated[Path, typer.Option("--federation", help="The federation's folder.")] = Path("federation"),
    out: Annotated[Path | None, typer.Option("--out", help="Where results go; the default is runs/NAME.")] = None,
    overrides: Overrides = None,
    seed: Seed = 0,
    clients: Annotated[
        str | None, typer.Option("--clients", help="Of a study: the sites' names, with commas between.")
    ] = None,
    inference: Annotated[
        str, typer.Option("--inference", help="Of a study with a learner: hmc, map_estimate, or a TOML file.")
    ] = "hmc",
    quorum: Annotated[int, typer.Option("--quorum", min=1, help="Fewer usable answers than this are an error.")] = 1,
    join_seconds: Annotated[
        float, typer.Option("--join-seconds", min=1.0, help="How long to wait for sites to join, once.")
    ] = 60.0,
    answer_seconds: Annotated[
        float, typer.Option("--answer-seconds", min=2.0, help="How long to wait for answers, in each round.")
    ] = 3600.0,
    work_seconds: Annotated[
        float | None,
        typer.Option(
            "--work-seconds", min=1.0, help="After which a site stops its own work; by default nine tenths of that."
        ),
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="On Flower's Ray engine, without sites. Needs coreshot\\[flower-sim].")
    ] = False,
    num_cpus: Annotated[
        int | None, typer.Option("--num-cpus", min=1, help="Of the Ray engine; the default is all.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a preset, or fit a study's model, with sites in the clients' places. What has arrived is kept: the same command goes on where it stopped.

    Example: coreshot flower run study.toml --clients site-1,site-2,site-3 --quorum 2 --federation federation
    """
    _need_flower()
    from coreshot.flower.nodes import Patience
    from coreshot.flower.runs import Order
    from coreshot.runtime.compilation import keep_compiled

    patience = Patience(
        join_seconds=join_seconds,
        answer_seconds=answer_seconds,
        work_seconds=work_seconds or 0.9 * answer_seconds,
        quorum=quorum,
    )
    folder = (out or Path("runs") / Path(what).stem).resolve()
    keep_compiled()
    if _is_study(what):
        chosen = _client_names(clients)
        order = Order(
            out=str(folder),
            patience=patience,
            seed=seed,
            study=Path(what).read_text(),
            clients=chosen,
            inference=_inference(what, inference),
        )
        traffic = _submit(federation, order, as_json)
        notes = json.loads((folder / "notes.json").read_text())
        if as_json:
            print_json({"model": str(folder / "model"), "notes": notes, "flower": traffic})
            return
        say(f"model: {folder / 'model'}")
        for note in notes:
            say(f"note: {note}")
        return
    from coreshot.experiments.preset import load_preset

    loaded = load_preset(what, overrides or ())
    order = Order(
        out=str(folder), patience=patience, seed=seed, preset=loaded.name, values=loaded.resolved, is_simulated=simulate
    )
    if simulate:
        traffic = _simulate(order, num_cpus or os.cpu_count() or 1, len(loaded.task.make(seed).clients), as_json)
    else:
        traffic = _submit(federation, order, as_json)
    _print_results(folder, traffic, as_json)


def _submit(folder: Path, order: Any, as_json: bool) -> dict[str, Any]:
    from coreshot.flower.federation import Federation
    from coreshot.flower.submit import submit

    return _told(submit(Federation.load(folder), order, teller(as_json)), as_json)


def _simulate(order: Any, num_cpus: int, num_clients: int, as_json: bool) -> dict[str, Any]:
    from coreshot.flower.engine import simulate_on_ray

    return _told(simulate_on_ray(order, num_clients, num_cpus, teller(as_json)), as_json)


def _told(facts: dict[str, Any], as_json: bool) -> dict[str, Any]:
    sent, received = facts["bytes_from_server"], facts["bytes_to_server"]
    teller(as_json)(
        f"Flower: run {facts['run']}, {facts['status']}, {sent:,} bytes from the server and {received:,} to it"
    )
    return facts


def _print_results(folder: Path, traffic: dict[str, Any], as_json: bool) -> None:
    from coreshot.report.run_report import write_report
    from coreshot.report.tables import read_rows, summary_table

    rows, report = read_rows(folder), write_report(folder)
    if as_json:
        print_json({"results": str(folder / "results.json"), "report": str(report), "rows": rows, "flower": traffic})
        return
    for table in summary_table(rows):
        console.print(table)
    say(f"results: {folder / 'results.json'}")
    say(f"report:  {report}")


@flower_app.command()
def status(folder: Folder, as_json: Json = False) -> None:
    """Which processes live, which nodes are there, and what became of the runs; exit code 1 if the SuperLink is not running.

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
    if as_json:
        print_json(facts)
    else:
        for key, value in facts.items():
            say(f"{key}: {value}")
    raise typer.Exit(0 if facts["is_running"] else 1)


@flower_app.command()
def down(folder: Folder, as_json: Json = False) -> None:
    """Stop everything that `up` has started, and whatever that has started.

    Example: coreshot flower down federation
    """
    from coreshot.flower.federation import Federation

    stopped = Federation.load(folder).stop()
    if as_json:
        print_json({"stopped": list(stopped)})
        return
    say(f"stopped: {', '.join(stopped) or 'nothing was running'}")


@flower_app.command()
def site(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="CSV, parquet, npz, or a folder of images; it stays here.")
    ],
    superlink: Annotated[str, typer.Option("--superlink", help="HOST:PORT of the coordinator.")],
    client: Annotated[str, typer.Option("--client", help="The name of this site, as agreed.")],
    ca: Annotated[Path | None, typer.Option("--ca", help="The authority's certificate, ca.pem; with --key.")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="This site's private key.")] = None,
    study: Annotated[Path | None, typer.Option("--study", help="Answer to this study only.")] = None,
    minutes: Annotated[float, typer.Option("--minutes", min=0.01, help="Stop any work after so long.")] = 60.0,
    home: Annotated[Path, typer.Option("--home", help="Where Flower keeps its files.")] = Path("site"),
    insecure: Annotated[bool, typer.Option("--insecure", help="Without TLS and keys: for trying it out.")] = False,
    as_json: Json = False,
) -> None:
    """Take part: what a data owner starts, and leaves running. Only coresets leave it.

    Example: coreshot flower site patients.csv --superlink coordinator:8000 --client site-1 --ca ca.pem --key site-1.key --study study.toml
    """
    _need_flower()
    from coreshot.fitted.folder import check_client_name
    from coreshot.flower.federation import environment, site_command

    if (ca is None or key is None) != insecure:
        raise CoreshotError("site: give --ca and --key, or --insecure to do without; not both.")
    for path in (data, *(path for path in (ca, key) if path)):
        if not path.exists():
            raise CoreshotError(f"{path}: there is no such file; check the path.")
    config: dict[str, str | float] = {
        "client-id": check_client_name(client),
        "data-path": str(data.resolve()),
        "seconds-limit": 60 * minutes,
    }
    if study is not None:
        from coreshot.study.file import read_study

        config["study-hash"] = read_study(study).hash
    home.mkdir(parents=True, exist_ok=True)
    command = site_command(superlink, config, str(ca.resolve()) if ca else "", str(key.resolve()) if key else "")
    if as_json:
        print_json({"client": client, "superlink": superlink, "home": str(home)})
    sys.stdout.flush()
    os.execve(command[0], command, environment(home))


@flower_app.command()
def certs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where they go; it must be empty or new.")],
    sites: Annotated[str, typer.Option("--sites", help="The sites' names, with commas between.")],
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
    if as_json:
        print_json({"certificates": str(folder), "sites": list(names)})
        return
    say(f"certificates: {folder}; send ca.pem and sites/NAME.key to each site over a way you trust, and keep the rest")


def _need_flower() -> None:
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        raise CoreshotError("coreshot flower: Flower is not installed; install coreshot[flower].")


def _client_names(text: str | None) -> tuple[str, ...]:
    from coreshot.fitted.folder import check_client_name

    names = tuple(check_client_name(part.strip()) for part in (text or "").split(",") if part.strip())
    if not names or len(set(names)) < len(names):
        raise CoreshotError(f"sites {text!r}: give their names, each once, with commas between, such as site-1,site-2.")
    return names


def _is_study(what: str) -> bool:
    """A study's file says which format it is of; a preset has none."""
    import tomllib

    try:
        return what.endswith(".toml") and "format" in tomllib.loads(Path(what).read_text())
    except (OSError, ValueError):
        return False  # the reader of presets says what is wrong


def _inference(study: str, text: str) -> dict[str, Any] | None:
    from coreshot.cli.model import inference_of
    from coreshot.config import encode_named
    from coreshot.inference.registry import INFERENCES
    from coreshot.study.file import read_study

    return dict(encode_named(INFERENCES, inference_of(text))) if read_study(Path(study)).learner else None
