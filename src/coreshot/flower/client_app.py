"""Flower's ClientApp, at a site. Only the method's message leaves it, or one of the fixed sentences below, which say
nothing about the records.

Records are read, checked and used in another process (`coreshot.runtime.worker_main`), which is stopped when its time
is over: a node that hangs would hang in later runs as well. This process, which talks to the network, never holds them.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from coreshot.errors import visible
from coreshot.flower.messages import CLIENT, EXPLAINED, PARTITION, WorkRequest, decode_records, encode_records
from coreshot.runtime.worker_process import Worker, write_frame
from coreshot.wire.messages import read_header

INBOX = "coreshot-inbox"
REASONS = {  # by the kind of the worker's answer
    "unfit": "its data do not fit the study (its own log says why)",
    "error": "its work failed (its own log says why)",
    "spent": "its privacy budget allows no further answer (its own log says why)",
    "strange": "it has agreed to another study than this",
    "unmasked": "it takes part in no secure sum over a network; leave num_sharers out of the study",
}
CRASHED = "its app raised {} (its own log says why)"

app = ClientApp()
log = logging.getLogger("flwr")  # the logger that a SuperNode prints


def log_failure(what: str) -> None:
    """The present error, line by line: its text may come from the network, and must not steer the site's terminal."""
    for line in (what, *traceback.format_exc().splitlines()):
        log.error("coreshot: %s", visible(line))


class UnableError(Exception):
    """The reason why there is no answer, in a sentence that may leave the site."""


@app.query()
def introduce(message: Message, context: Context) -> Message:
    config = context.node_config
    fields = {CLIENT: str(config["client-id"])} if "client-id" in config else {PARTITION: int(config["partition-id"])}
    return Message(RecordDict({CLIENT: ConfigRecord(dict(fields))}), reply_to=message)


@app.train()
def answer(message: Message, context: Context) -> Message:
    try:
        return Message(encode_records(_answer(message.content, context)), reply_to=message)
    except UnableError as error:
        reason = str(error)
    except Exception as error:  # Flower would send the error's text, which may quote a record
        log_failure("no answer")
        reason = CRASHED.format(type(error).__name__)
    return Message(Error(EXPLAINED, reason), reply_to=message)


def _answer(content: RecordDict, context: Context) -> bytes:
    request = WorkRequest.read(content)
    inbox = _inbox(decode_records(content), context)
    if "client-id" in context.node_config:
        return _answer_at_site(request, inbox, context.node_config)
    from coreshot.flower.ray import answer_simulated

    return answer_simulated(request, inbox)


def _inbox(data: bytes, context: Context) -> list[bytes]:
    """The server's messages of this round, this one last.

    Some methods send two messages in a round, and each is answered by a new process, so Flower keeps the first.
    """
    kept: Any = context.state.config_records[INBOX]["messages"] if INBOX in context.state.config_records else []
    messages = [*_same_round(kept, read_header(data)), data]
    context.state[INBOX] = ConfigRecord({"messages": messages})
    return messages


def _same_round(kept: Sequence[bytes], new: Mapping[str, Any]) -> Iterator[bytes]:
    """The kept messages of the same round of the same study; the same kind again starts the round again."""
    for data in kept:
        old = read_header(data)
        if (old["study"], old["round"]) != (new["study"], new["round"]) or old["kind"] == new["kind"]:
            return
        yield data


def _answer_at_site(request: WorkRequest, inbox: Sequence[bytes], config: Any) -> bytes:
    head: dict[str, Any] = {
        "study": request.study_values,
        "client": str(config["client-id"]),
        "data": str(config["data-path"]),
        "key": request.key,
    }
    head |= {"agreed": str(config["study-hash"])} if "study-hash" in config else {}
    head |= {"max_memory": float(config["max-memory"])} if "max-memory" in config else {}
    head |= {"ledger": str(config["ledger"])} if "ledger" in config else {}
    head |= {"settings": str(config["site-settings"])} if "site-settings" in config else {}
    worker = Worker()
    try:
        frame = worker.ask(
            lambda pipe: write_frame(pipe, head, inbox),
            min(request.seconds, float(config.get("seconds-limit", request.seconds))),
        )
    finally:
        worker.stop()
    if isinstance(frame, str):
        raise UnableError(frame)
    if (kind := frame[0]["kind"]) != "reply":
        log.error("coreshot: %s", visible(frame[0]["error"]))
        raise UnableError(REASONS[kind])
    for note in frame[0]["notes"]:
        log.warning("coreshot: %s", visible(note))
    return frame[1][0]
