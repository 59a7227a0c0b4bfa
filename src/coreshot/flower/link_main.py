"""A SuperLink with two doors: one for the sites, one for the coordinator.

Flower serves three interfaces on one address: Fleet, for nodes; Control, by which anyone may start a run and register
nodes; and Runtime, for the programs that the SuperLink starts. Control and Runtime ask for no password. Here sites
reach Fleet and nothing else, and the rest is served on the loopback address of the coordinator's machine.

Run as `python -P -m coreshot.flower.link_main SITES_HOST SITES_PORT OPTIONS`, with the options of flower-superlink,
whose --host and --port are the coordinator's door. Without sites (a simulation), SITES_PORT is 0.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence

import uvicorn
from flwr.supercore.http_logging import get_uvicorn_log_config
from flwr.supercore.logger import console_handler
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan, _parse_superlink_lifespan_config
from flwr.superlink.main import create_app
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from coreshot.flower.federation import is_loopback

FLEET = "/v1/fleet/"
CLOSED = "Sites reach the Fleet API only; runs are started on the coordinator's own machine."


class SitesDoor:
    """Passes the Fleet API only, except on the coordinator's own address and port."""

    def __init__(self, inner: ASGIApp, control_port: int) -> None:
        self.inner, self.control_port = inner, control_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_control(scope) or _is_fleet(scope):
            await self.inner(scope, receive, send)
        elif scope["type"] == "http":
            await PlainTextResponse(CLOSED, status_code=403)(scope, receive, send)
        # A websocket is left without an answer: no interface of a SuperLink has one.

    def _is_control(self, scope: Scope) -> bool:
        """By the address of the socket that has taken the connection, which no header can change."""
        host, port = scope.get("server") or ("", None)
        return port == self.control_port and is_loopback(host)


def _is_fleet(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["method"] == "POST" and scope["path"].startswith(FLEET)


def main(sites_host: str, sites_port: int, options: Sequence[str]) -> None:
    os.umask(0o077)  # the database holds what sites have sent
    sys.argv = ["flower-superlink", *options]
    config = _parse_superlink_lifespan_config()
    server = uvicorn.Server(
        uvicorn.Config(
            SitesDoor(create_app(config, SuperLinkLifespan), config.port),
            host=config.host,
            port=config.port,
            access_log=True,
            log_config=get_uvicorn_log_config(console_handler.level),
            ssl_keyfile=config.ssl_keyfile,
            ssl_certfile=config.ssl_certfile,
            proxy_headers=False,
        )
    )
    doors = [(config.host, config.port), (sites_host, sites_port)] if sites_port else [(config.host, config.port)]
    server.run(sockets=[_listen(host, port) for host, port in doors])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    door = socket.socket(family)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind((host, port))
    return door


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
