"""From arrays to a fitted posterior in a few lines: distill at each site, fit at the server, predict."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import jax

from coreshot.data.validate import check_points
from coreshot.keys import named_key
from coreshot.methods.one_shot import OneShot
from coreshot.privacy.guarded_records import guard_records
from coreshot.progress import Progress, Silent
from coreshot.runtime.resumable import Resumable, hash_work
from coreshot.study import Study
from coreshot.wire.messages import Message, encode_message


def distill(
    study: Study,
    x: Any,
    y: Any,
    *,
    client: str,
    seed: int = 0,
    progress: Progress | None = None,
    keep: Path | None = None,
    stop: threading.Event | None = None,
) -> bytes:
    """A client's side: its data in, the one message that leaves out. x is [points, ...]; y is classes, or targets.

    A learner that takes long continues from the state in the file `keep`, if that is of the same work, and saves its
    own there; after `stop` is set it ends with a StoppedError. A private study draws new noise at each call: the site's
    ledger, which keeps that to one draw, is that of the command `coreshot distill`.
    """
    terms = study.agreement
    points = check_points(
        x, y, kind=terms.kind, input_shape=terms.input_shape, num_outputs=terms.num_outputs, client=client
    )
    sender, num_skipped = study.one_round, 0
    study.check_records(points, client)
    if isinstance(sender, OneShot) and keep is not None:
        work = hash_work(study, points, client, seed)
        learner = Resumable(sender.learner, keep, work, stop or threading.Event())
        sender, num_skipped = OneShot(learner=learner), learner.num_skipped
    num_chunks = sender.num_chunks
    shown: Progress = progress if progress is not None and num_chunks > 1 else Silent()
    from_chunk = f", from {num_skipped} of {num_chunks} chunks on" if num_skipped else ""
    shown.begin(f"{client} learns{from_chunk}", num_chunks - num_skipped)
    chunks = iter(range(num_chunks))

    def on_chunk(num_clients: int) -> None:
        if next(chunks) >= num_skipped:
            shown.advance()

    key, inbox = named_key(jax.random.key(seed), "clients"), [Message("invitation", 0, {})]
    records = guard_records({client: points}, study.releases)
    answers = sender.reply(key, study.model, records, inbox, study.shared_key, on_chunk)
    shown.end()
    return encode_message(answers[client][0], study_hash=study.hash, client=client, releases=study.releases)
