"""From arrays to a fitted posterior in a few lines: distill at each site, fit at the server, predict."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from coreshot.data.validate import check_points
from coreshot.fitted.model import FittedModel
from coreshot.fitted.model import _one_shot
from coreshot.fitted.model import compare_clients
from coreshot.fitted.model import fit
from coreshot.keys import named_key
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

    A learner that takes long goes on from the state in the file `keep`, if that is of the same work, and keeps its own there; after `stop` is set
    it ends with a StoppedError.
    """
    terms = study.agreement
    points = check_points(
        x, y, kind=terms.kind, input_shape=terms.input_shape, num_outputs=terms.num_outputs, client=client
    )
    sender, num_skipped = _one_shot(study, inference=None), 0
    study.check_fits(points, client)
    if study.learner and keep is not None:
        learner = Resumable(study.learner, keep, hash_work(study, points, client, seed), stop or threading.Event())
        sender, num_skipped = replace(sender, learner=learner), learner.num_skipped
    inbox = [Message("invitation", 0, {})]
    key = named_key(jax.random.key(seed), "clients")
    num_chunks = (study.learner or sender).num_chunks
    shown: Progress = progress if progress is not None and num_chunks > 1 else Silent()
    shown.begin(
        f"{client} learns" + (f", from {num_skipped} of {num_chunks} chunks on" if num_skipped else ""),
        num_chunks - num_skipped,
    )
    chunks = iter(range(num_chunks))

    def on_chunk(num_clients: int) -> None:
        if next(chunks) >= num_skipped:
            shown.advance()

    answers = sender.reply(
        key, study.model, guard_records({client: points}, study.releases), inbox, study.shared_key, on_chunk
    )
    shown.end()
    return encode_message(answers[client][0], study_hash=study.hash, client=client, releases=study.releases)
