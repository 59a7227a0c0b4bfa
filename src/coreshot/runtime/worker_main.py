"""The program of a worker process: `python -m coreshot.runtime.worker_main` computes one client's reply at a time.

It answers jobs from its standard input until that ends. A job and its answer are a line of JSON and the bytes that it
announces: points and messages as safetensors. Nothing is written to disk. At a site, a job names the file that holds
the records instead, so that no other process has them, and its answer goes through the site's ledger.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np
import safetensors.numpy

from coreshot.data.site_settings import DETECT, read_site_settings
from coreshot.errors import CoreshotError
from coreshot.methods.protocol import SecureSum
from coreshot.privacy.release_ledger import BudgetError, ReleaseLedger
from coreshot.runtime.compilation import keep_compiled
from coreshot.runtime.replies import compute_replies
from coreshot.runtime.site_answers import SiteAnswers
from coreshot.runtime.worker_process import read_frame, write_frame
from coreshot.study import Study
from coreshot.study.overview import MAX_MEMORY, refuse_large
from coreshot.study.site_records import read_points
from coreshot.types import Points, PRNGKey, make_points
from coreshot.wire.messages import Message, decode_message, encode_message


def write_job(
    file: IO[bytes], key: PRNGKey, study: Study, client: str, points: Points, inbox: Sequence[Message]
) -> None:
    arrays = {name: np.ascontiguousarray(getattr(points, name)) for name in ("x", "y", "weight")}
    messages = [encode_message(message, study_hash=study.hash, client=client) for message in inbox]
    head = {"study": study.to_dict(), "client": client, "key": key_words(key)}
    write_frame(file, head, [*messages, safetensors.numpy.save(arrays)])


def key_words(key: PRNGKey) -> list[int]:
    return list(np.asarray(jax.random.key_data(key)).tolist())


def answer_job(head: Mapping[str, Any], parts: Sequence[bytes], answers: IO[bytes]) -> None:
    study = Study.from_dict(head["study"])
    key = jax.random.wrap_key_data(jax.numpy.asarray(head["key"], jax.numpy.uint32))
    if "data" in head:
        _answer_at_site(key, study, head, parts, answers)
        return
    inbox = [decode_message(data, study_hash=study.hash) for data in parts[:-1]]
    try:
        [(_, reply)] = compute_replies(
            key, study, {head["client"]: _points(parts[-1])}, inbox, lambda _: write_frame(answers, {"kind": "chunk"})
        )
    except CoreshotError as error:
        write_frame(answers, {"kind": "error", "error": str(error)})
        return
    write_frame(answers, {"kind": "reply", "notes": reply.notes}, [reply.data])


def _answer_at_site(
    key: PRNGKey, study: Study, head: Mapping[str, Any], inbox: Sequence[bytes], answers: IO[bytes]
) -> None:
    if refusal := _refusal(study, head):
        write_frame(answers, refusal)
        return
    try:
        points = _site_points(study, head)
    except CoreshotError as error:
        write_frame(answers, {"kind": "unfit", "error": str(error)})
        return
    try:
        ledger = ReleaseLedger(Path(head["ledger"]) if "ledger" in head else None)
        site = SiteAnswers(ledger, study, Path(head["data"]), points)
        data, notes = site.reply(key, head["client"], inbox, lambda _: write_frame(answers, {"kind": "chunk"}))
    except BudgetError as error:
        write_frame(answers, {"kind": "spent", "error": str(error)})
    except CoreshotError as error:
        write_frame(answers, {"kind": "error", "error": str(error)})
    else:
        write_frame(answers, {"kind": "reply", "notes": notes}, [data])


def _site_points(study: Study, head: Mapping[str, Any]) -> Points:
    how = read_site_settings(Path(head["settings"])) if "settings" in head else DETECT
    limit, raise_it = 1e9 * head.get("max_memory", MAX_MEMORY), "raise it with --max-memory of `coreshot flower site`"
    refuse_large(study, 1, limit, raise_it)  # before the records are read
    points = read_points(study, Path(head["data"]), head["client"], how)
    refuse_large(study, points.num_points, limit, raise_it)
    return points


def _refusal(study: Study, head: Mapping[str, Any]) -> dict[str, str] | None:
    """Why a site does not work on this study, before its records are read; None: it does."""
    agreed = head.get("agreed", study.hash)
    if agreed != study.hash:
        return {"kind": "strange", "error": f"asked for study {study.hash}, but this site has agreed to {agreed}"}
    if isinstance(study.method, SecureSum) and study.method.num_sharers is not None:
        # Here the masks come from the server's key, so over a network the server could remove them. What remains is a
        # share of the noise, which protects nothing.
        why = "asked for a part of a secure sum, which coreshot only simulates; leave num_sharers out"
        return {"kind": "unmasked", "error": why}
    return None


def _points(data: bytes) -> Points:
    arrays = safetensors.numpy.load(data)
    return make_points(arrays["x"], arrays["y"]).reweighted(jax.numpy.asarray(arrays["weight"]))


def main() -> None:
    # What a library prints must not come between the frames.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        keep_compiled()
        while (frame := read_frame(sys.stdin.buffer)) is not None:
            answer_job(*frame, answers)


if __name__ == "__main__":
    main()
