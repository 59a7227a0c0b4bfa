"""Which doors a SuperLink has, and what a site does with the bundle of a run. The attack itself, with real processes:
test_secure_federation.py.
"""

import asyncio
import warnings
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from attack import FOREIGN, attack
from flwr.app import Context, Message, RecordDict
from flwr.app.message_type import MessageType
from flwr.cli.build import build_fab_from_disk

from coreshot.flower.certs import make_certificates
from coreshot.flower.federation import Federation, free_port, program
from coreshot.flower.link_main import SitesDoor
from coreshot.flower.local_federation import register_sites
from coreshot.flower.messages import EXPLAINED
from coreshot.flower.site_main import FOREIGN as REFUSAL
from coreshot.flower.site_main import answer_message, is_without_code

CONTROL = 9000
OWN, OUTSIDE = ("127.0.0.1", CONTROL), ("192.0.2.7", 8000)
FLEET, START = "/v1/fleet/pull-messages", "/v1/control/start-run"


def knock(server, path, method="POST", kind="http", headers=()):
    """The status that the door gives, 200 if it lets the request pass."""
    sent = []

    async def inside(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(event):
        sent.append(event)

    scope = {"type": kind, "method": method, "path": path, "server": server, "headers": list(headers)}
    asyncio.run(SitesDoor(inside, CONTROL)(scope, None, send))
    return next((event["status"] for event in sent if event["type"] == "http.response.start"), None)


@pytest.mark.parametrize("path", [FLEET, START, "/v1/runtime/acquire-task", "/docs"])
def test_the_coordinators_door_has_all_interfaces(path):
    assert knock(OWN, path) == 200


@pytest.mark.parametrize("server", [OUTSIDE, ("127.0.0.1", 8000), ("192.0.2.7", CONTROL), None])
@pytest.mark.parametrize("path", [START, "/v1/runtime/acquire-task", "/docs", "/openapi.json", "/", "/v1/fleetx"])
def test_the_sites_door_has_one(server, path):
    assert knock(server, path) == 403
    assert knock(server, path, headers=[(b"host", b"127.0.0.1:9000"), (b"x-forwarded-for", b"127.0.0.1")]) == 403
    assert knock(server, path, kind="websocket") is None
    assert knock(server, FLEET) == 200
    assert knock(server, FLEET, method="GET") == 403


@pytest.fixture(scope="module")
def own_bundle(tmp_path_factory):
    federation = Federation(tmp_path_factory.mktemp("federation"), "127.0.0.1:1", "127.0.0.1:2")
    federation.write_operator_home()
    return bundle_of(federation.operator / "app")


def bundle_of(folder: Path) -> bytes:
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of a package that Flower uses
        return build_fab_from_disk(folder)


def test_coreshots_own_runs_bring_no_code_and_others_do(own_bundle):
    assert is_without_code(own_bundle)
    assert not is_without_code(bundle_of(FOREIGN))
    assert not is_without_code(b"neither")
    assert not is_without_code(own_bundle[:-30])


@pytest.mark.usefixtures("as_task")
@pytest.mark.parametrize(
    ("is_own", "kind", "is_answered"),
    [(True, "flwr-clientapp", True), (False, "flwr-clientapp", False), (True, "flwr-agentapp", False)],
)
def test_the_installed_app_answers_or_nobody(own_bundle, is_own, kind, is_answered):
    asked, fab = [], SimpleNamespace(content=own_bundle if is_own else bundle_of(FOREIGN))

    def installed(message, context):
        asked.append(message)
        raise ValueError("record 42 says 1234")

    message = Message(RecordDict(), 2, MessageType.TRAIN)
    message.metadata.__dict__["_message_id"] = "asked"
    context = Context(run_id=1, node_id=2, node_config={}, state=RecordDict(), run_config={})
    reply = answer_message(message, context, fab, kind, installed)
    crashed = "its app raised ValueError (its own log says why)"
    assert (reply.error.code, reply.error.reason) == (EXPLAINED, crashed if is_answered else REFUSAL)
    assert len(asked) == is_answered


def test_without_certificates_it_listens_on_loopback_only_and_says_why(call, tmp_path, monkeypatch):
    monkeypatch.setattr(Federation, "start", lambda self, role, command, home: commands.append(command))
    monkeypatch.setattr(Federation, "await_superlink", lambda self, process: None)
    monkeypatch.setattr("coreshot.flower.local_federation.register_sites", lambda federation, certs: None)
    commands: list[list[str]] = []
    code, output, _ = call("flower", "up", tmp_path / "open", "--host", "0.0.0.0", "--port", 8000)
    assert code == 0
    assert "it listens on 127.0.0.1 and not on 0.0.0.0: without --certs" in " ".join(output.split())
    assert commands[0][4:6] == ["127.0.0.1", "8000"]
    call("flower", "certs", tmp_path / "certs", "--sites", "a")
    code, output, _ = call("flower", "up", tmp_path / "closed", "--host", "0.0.0.0", "--certs", tmp_path / "certs")
    assert code == 0
    assert "note" not in output
    assert commands[1][4] == "0.0.0.0"
    assert commands[1][commands[1].index("--host") + 1] == "127.0.0.1"  # of the coordinator's door


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # of those that it stops itself
def test_negative_control_flowers_own_commands_give_the_records_away(tmp_path, request):
    """As coreshot started them before: one address for all, and a SuperNode that executes what comes."""
    if not request.config.getoption("--old-federation"):
        pytest.skip("an attack that succeeds; run it with --old-federation")
    make_certificates(tmp_path / "certs", ["localhost"], ["site-1"])
    (tmp_path / "marks").mkdir()
    records = np.random.default_rng(0).normal(size=(3, 2))
    np.savez(tmp_path / "data.npz", x=records)
    federation = Federation(tmp_path / "federation", f"127.0.0.1:{free_port()}")
    federation.control, federation.certificate = federation.address, str(tmp_path / "certs" / "ca.pem")
    with ExitStack() as stack:
        stack.callback(federation.stop)
        link = federation.start("superlink", old_superlink(federation, tmp_path / "certs"), tmp_path / "link")
        federation.await_superlink(link)
        federation.write_operator_home()
        register_sites(federation, tmp_path / "certs")
        federation.start("site-1", old_site(federation, tmp_path), tmp_path / "site")
        said = attack(tmp_path / "attacker", federation.address, tmp_path / "certs" / "ca.pem", tmp_path / "marks", 1)
    assert said["marks"] == 1
    assert f"LOOT {records.ravel().tolist()}" in said["stdout"]


def old_superlink(federation: Federation, certs: Path) -> list[str]:
    host, port = federation.address.split(":")
    files = {"--ssl-ca-certfile": "ca.pem", "--ssl-certfile": "superlink.pem", "--ssl-keyfile": "superlink.key"}
    secure = [part for option, name in files.items() for part in (option, str(certs / name))]
    return [program("flower-superlink"), "--host", host, "--port", port, *secure, "--enable-supernode-auth"]


def old_site(federation: Federation, folder: Path) -> list[str]:
    keys = ["--root-certificates", federation.certificate]
    keys += ["--auth-supernode-private-key", str(folder / "certs" / "sites" / "site-1.key")]
    settings = f'client-id="site-1" data-path="{folder / "data.npz"}"'
    command = [program("flower-supernode"), "--superlink", federation.address, "--port", str(free_port())]
    return [*command, *keys, "--node-config", settings]
