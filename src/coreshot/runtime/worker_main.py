"""The program of a worker process: `python -m coreshot.runtime.worker_main` computes one client's reply at a time.

It answers jobs from its standard input until that ends. A job and its answer are a line of JSON and the bytes that it
announces: points and messages as safetensors. Nothing is written to disk. At a site, a job names the file that holds
the records instead, so that no other process has them.
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
from coreshot.runtime.compilation import keep_compiled
from coreshot.runtime.replies import compute_replies
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
    study, client, is_at_site = Study.from_dict(head["study"]), head["client"], "data" in head
    if refusal := _refusal(study, head, is_at_site):
        write_frame(answers, refusal)
        return
    try:
        points = _site_points(study, head) if is_at_site else _points(parts[-1])
    except CoreshotError as error:
        write_frame(answers, {"kind": "unfit", "error": str(error)})
        return
    inbox = [decode_message(data, study_hash=study.hash) for data in (parts if is_at_site else parts[:-1])]
    key = jax.random.wrap_key_data(jax.numpy.asarray(head["key"], jax.numpy.uint32))
    try:
        [(_, reply)] = compute_replies(
            key, study, {client: points}, inbox, lambda _: write_frame(answers, {"kind": "chunk"})
        )
        if is_at_site:  # a message that cannot be used does not leave the site
            study.read(client, decode_message(reply.data, study_hash=study.hash))
    except CoreshotError as error:
        write_frame(answers, {"kind": "error", "error": str(error)})
        return
    write_frame(answers, {"kind": "reply", "notes": reply.notes}, [reply.data])


def _site_points(study: Study, head: Mapping[str, Any]) -> Points:
    how = read_site_settings(Path(head["settings"])) if "settings" in head else DETECT
    limit, raise_it = 1e9 * head.get("max_memory", MAX_MEMORY), "raise it with --max-memory of `coreshot flower site`"
    refuse_large(study, 1, limit, raise_it)  # before the records are read
    points = read_points(study, Path(head["data"]), head["client"], how)
    refuse_large(study, points.num_points, limit, raise_it)
    return points


def _refusal(study: Study, head: Mapping[str, Any], is_at_site: bool) -> dict[str, str] | None:
    """Why a site does not work on this study, before its records are read; None: it does."""
    agreed = head.get("agreed", study.hash)
    if agreed != study.hash:
        return {"kind": "strange", "error": f"asked for study {study.hash}, but this site has agreed to {agreed}"}
    if is_at_site and isinstance(study.method, SecureSum) and study.method.num_sharers is not None:
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
