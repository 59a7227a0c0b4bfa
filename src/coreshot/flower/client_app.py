"""The app of a site. What leaves it is the method's message, or one of the few sentences below, which say nothing about the records.

Records are read, checked and used in a process of their own (`coreshot.runtime.worker_main`), which is stopped when its time is over: a node that hangs would
hang in later runs as well. This process, which speaks with the network, never has them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from coreshot.flower.messages import bytes_of, records_of
from coreshot.flower.work import CLIENT, PARTITION, UNABLE, Work
from coreshot.runtime.worker_process import Worker, write_frame
from coreshot.wire.messages import read_header

INBOX = "coreshot-inbox"
REASONS = {  # by the kind of the worker's answer
    "unfit": "its data do not fit the study (its own log says why)",
    "error": "its work failed (its own log says why)",
    "strange": "it has agreed to another study than this",
    "unmasked": "it takes part in no secure sum over a network; leave num_sharers out of the study",
}
CRASHED = "its app raised {} (its own log says why)"

app = ClientApp()
log = logging.getLogger("flwr")  # the one that a SuperNode shows


class UnableError(Exception):
    """Why there is no answer, in a sentence that may leave the site."""


@app.query()
def introduce(message: Message, context: Context) -> Message:
    config = context.node_config
    fields = {CLIENT: str(config["client-id"])} if "client-id" in config else {PARTITION: int(config["partition-id"])}
    return Message(RecordDict({CLIENT: ConfigRecord(dict(fields))}), reply_to=message)


@app.train()
def answer(message: Message, context: Context) -> Message:
    try:
        return Message(records_of(_answer(message.content, context)), reply_to=message)
    except UnableError as error:
        reason = str(error)
    except Exception as error:  # not left to Flower, which would send its text, in which there may be anything
        log.exception("coreshot: no answer")
        reason = CRASHED.format(type(error).__name__)
    return Message(Error(UNABLE, reason), reply_to=message)


def _answer(content: RecordDict, context: Context) -> bytes:
    work = Work.of(content)
    inbox = _inbox(bytes_of(content), context)
    if "client-id" in context.node_config:
        return _at_site(work, inbox, context.node_config)
    from coreshot.flower.simulated import answer_simulated

    return answer_simulated(work, inbox)


def _inbox(data: bytes, context: Context) -> list[bytes]:
    """With what the server has sent before in this round: some methods speak twice, and each time this is a new process."""
    kept: Any = context.state.config_records[INBOX]["messages"] if INBOX in context.state.config_records else []
    messages = [*_before(kept, read_header(data)), data]
    context.state[INBOX] = ConfigRecord({"messages": messages})
    return messages


def _before(kept: Sequence[bytes], new: Mapping[str, Any]) -> Iterator[bytes]:
    """Of the same round of the same study; the same kind again is a new beginning."""
    for data in kept:
        old = read_header(data)
        if (old["study"], old["round"]) != (new["study"], new["round"]) or old["kind"] == new["kind"]:
            return
        yield data


def _at_site(work: Work, inbox: Sequence[bytes], config: Any) -> bytes:
    head = {
        "study": work.study_values,
        "client": str(config["client-id"]),
        "data": str(config["data-path"]),
        "key": work.key,
    }
    head |= {"agreed": str(config["study-hash"])} if "study-hash" in config else {}
    worker = Worker()
    try:
        frame = worker.ask(
            lambda pipe: write_frame(pipe, head, inbox),
            min(work.seconds, float(config.get("seconds-limit", work.seconds))),
        )
    finally:
        worker.stop()
    if isinstance(frame, str):
        raise UnableError(frame)
    if (kind := frame[0]["kind"]) != "reply":
        log.error("coreshot: %s", frame[0]["error"])
        raise UnableError(REASONS[kind])
    for note in frame[0]["notes"]:
        log.warning("coreshot: %s", note)
    return frame[1][0]
