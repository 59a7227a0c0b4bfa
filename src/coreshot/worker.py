"""One client's work in a process of its own: `python -m coreshot.worker` answers jobs from its standard input until that ends.

A job and its answer are a line of JSON and the bytes that it announces: points and messages as safetensors. Nothing is written to disk.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

import jax
import numpy as np
import safetensors.numpy

from coreshot.compilation import keep_compiled
from coreshot.errors import CoreshotError
from coreshot.methods import OneShot
from coreshot.privacy.records import behind_doors
from coreshot.study import Study
from coreshot.types import Message, Points, PRNGKey, points_of
from coreshot.wire import decode_message, encode_message


def write_frame(file: IO[bytes], head: Mapping[str, Any], parts: Sequence[bytes] = ()) -> None:
    file.write(json.dumps({**head, "sizes": [len(part) for part in parts]}).encode() + b"\n")
    for part in parts:
        file.write(part)
    file.flush()


def read_frame(file: IO[bytes]) -> tuple[dict[str, Any], list[bytes]] | None:
    """None where the other side has ended."""
    line = file.readline()
    if not line.endswith(b"\n"):
        return None
    head = json.loads(line)
    return head, [file.read(size) for size in head["sizes"]]


def write_job(file: IO[bytes], key: PRNGKey, study: Study, client: str, points: Points, inbox: Sequence[Message]) -> None:
    arrays = {name: np.ascontiguousarray(getattr(points, name)) for name in ("x", "y", "weight")}
    messages = [encode_message(message, study_hash=study.hash, client=client) for message in inbox]
    head = {"study": study.to_dict(), "client": client, "key": np.asarray(jax.random.key_data(key)).tolist()}
    write_frame(file, head, [safetensors.numpy.save(arrays), *messages])


def answer_job(head: Mapping[str, Any], parts: Sequence[bytes], answers: IO[bytes]) -> None:
    study, client = Study.from_dict(head["study"]), head["client"]
    arrays = safetensors.numpy.load(parts[0])
    points = points_of(arrays["x"], arrays["y"]).reweighted(jax.numpy.asarray(arrays["weight"]))
    inbox = [decode_message(data, study_hash=study.hash) for data in parts[1:]]
    method: Any = study.method or OneShot(study.learner, None)  # type: ignore[arg-type]  # a client infers nothing
    key = jax.random.wrap_key_data(jax.numpy.asarray(head["key"], jax.numpy.uint32))
    try:
        replies = method.reply(
            key,
            study.model,
            behind_doors({client: points}, study.releases),
            inbox,
            study.shared_key,
            lambda _: write_frame(answers, {"kind": "chunk"}),
        )
    except CoreshotError as error:
        write_frame(answers, {"kind": "error", "error": str(error)})
        return
    message, notes = replies[client]
    data = encode_message(message, study_hash=study.hash, client=client, releases=study.releases)
    write_frame(answers, {"kind": "reply", "notes": notes}, [data])


def main() -> None:
    # What a library prints must not come between the frames.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        keep_compiled()
        while (frame := read_frame(sys.stdin.buffer)) is not None:
            answer_job(*frame, answers)


if __name__ == "__main__":
    main()
