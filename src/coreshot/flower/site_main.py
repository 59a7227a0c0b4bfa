"""A site's process: Flower's SuperNode, and beside it the installed app, which alone answers.

A SuperNode on its own runs the app that comes with a run. Here it is started with `--isolation process`, in which it
starts no program and leaves its tasks to somebody else: to the thread below, which gives each message to the app of the
installed coreshot. The bundle of a run is neither unpacked nor executed, whatever it holds. Of a run that brings more
than coreshot's own runs do, nothing is answered.

Run as `python -P -m coreshot.flower.site_main OPTIONS`, with the options of flower-supernode.
"""

from __future__ import annotations

import io
import logging
import os
import secrets
import sys
import threading
import time
import zipfile
from collections.abc import Sequence
from typing import Protocol

import httpx
from flwr.app import Context, Error, Message
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from coreshot.flower.client_app import CRASHED, app, log_failure
from coreshot.flower.messages import EXPLAINED

SECONDS_BETWEEN_LOOKS = 0.3
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
# What the bundle of a run of coreshot holds: names of modules, no code.
BUNDLE = {"pyproject.toml", ".info/CONTENT"}
FOREIGN = "it runs no app but the installed coreshot, and this run brings another"
FAILED = "the message could not be taken or answered"

log = logging.getLogger("flwr")  # the logger that a SuperNode prints


class Answering(Protocol):
    def __call__(self, message: Message, context: Context) -> Message: ...


def main(options: Sequence[str]) -> None:
    from flwr.supernode.cli import flower_supernode

    os.umask(0o077)  # what Flower keeps at a site is for the site alone
    secret, (reader, writer) = secrets.token_bytes(32), os.pipe()
    os.write(writer, secret)
    os.close(writer)
    # Only who has the secret gets tasks: not another program or user of this machine.
    guarded = ["--isolation", "process", "--superexec-auth-secret-file", f"/dev/fd/{reader}", "--host", "127.0.0.1"]
    address = f"127.0.0.1:{options[options.index('--port') + 1]}"
    threading.Thread(target=answer_tasks, args=(address, secret), daemon=True).start()
    sys.argv = ["flower-supernode", *options, *guarded]
    flower_supernode()


def answer_tasks(address: str, secret: bytes) -> None:
    """Take the SuperNode's tasks, one after the other, for ever."""
    guard = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods={ACQUIRE})
    node = _connection(address, guard)
    # Of every kind: a SuperNode waits for an answer to each before it looks for the next.
    request = AcquireTaskRequest(supported_task_types=[str(kind) for kind in TaskType])
    while True:
        try:
            taken = node.AcquireTask(request)
            if taken.HasField("task") and taken.token:
                _answer_task(_connection(address, RuntimeTokenHttpInterceptor(taken.token)), taken.task.type)
                continue
        except httpx.TransportError:
            pass  # the SuperNode is starting or stopping
        except Exception:
            log_failure("a task of the SuperNode was not carried out")
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _connection(address: str, *interceptors: ProtobufClientInterceptor) -> RuntimeHttpClient:
    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,  # within this process, over loopback
        root_certificates=None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), *interceptors],
        retry_invoker=make_simple_http_retry_invoker(),
    )


def _answer_task(node: RuntimeHttpClient, kind: str) -> None:
    context, status = None, SubStatus.FAILED
    heartbeat = HeartbeatSender(lambda: _beat(node))
    heartbeat.start()
    try:
        message, context, _, fab = pull_task_input(node)
        push_message(node, answer_message(message, context, fab, kind), context)
        status = SubStatus.COMPLETED
    finally:
        push_task_output(node, context, status, "" if status == SubStatus.COMPLETED else FAILED)
        heartbeat.stop()
        node.close()


def _beat(node: RuntimeHttpClient) -> bool:
    """Flower's own function interrupts its process when a task is no longer wanted; here that would end the site."""
    try:
        node.SendTaskHeartbeat(SendTaskHeartbeatRequest())
    except httpx.HTTPError:
        return False
    return True


def answer_message(message: Message, context: Context, fab: Fab, kind: str, answering: Answering = app) -> Message:
    if kind != TaskType.CLIENT_APP or not is_without_code(fab.content):
        log.error("coreshot: run %s brings an app of its own; it was not executed, and got no answer", context.run_id)
        return Message(Error(EXPLAINED, FOREIGN), reply_to=message)
    try:
        return answering(message=message, context=context)
    except Exception as error:  # a message of a kind that the app does not know
        log_failure("no answer")
        return Message(Error(EXPLAINED, CRASHED.format(type(error).__name__)), reply_to=message)


def is_without_code(bundle: bytes) -> bool:
    """Whether a bundle holds no more than the files of coreshot's own runs; it is listed, not unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
            return set(archive.namelist()) <= BUNDLE
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


if __name__ == "__main__":
    main(sys.argv[1:])
