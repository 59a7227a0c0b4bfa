"""From records to a message in a few lines: read a site's file, distill it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np

from coreshot.data.validate import check_points
from coreshot.keys import named_key
from coreshot.methods.one_shot import OneShot
from coreshot.privacy.guarded_records import guard_records
from coreshot.privacy.release_ledger import ReleaseLedger
from coreshot.progress import Progress, Silent
from coreshot.runtime.resumable import Resumable, hash_work
from coreshot.runtime.site_answers import SiteAnswers
from coreshot.study import Study
from coreshot.types import Points
from coreshot.wire.messages import Message, encode_message


def read_records(study: Study, path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """A site's file as the arrays that `distill`, `FittedModel.evaluate` and `predict` take.

    Columns are found by name, scaled by the study's ranges and encoded; missing cells are as the study says. A column
    that looks broken is an error, as with the command `coreshot distill`, which also reports what it found in each.

    Parameters
    ----------
    study : Study
        One that was read from a file, which names columns or the shape of images.
    path : str or Path
        CSV, Excel, parquet or npz, or a folder of images.

    Returns
    -------
    x : array of shape (records, *input_shape)
    y : array of shape (records,)
        Classes as whole numbers from 0, or the targets of a regression.

    Examples
    --------
    >>> x, y = coreshot.read_records(study, "north.csv")  # doctest: +SKIP
    >>> message = coreshot.distill(study, x, y, client="north")  # doctest: +SKIP
    """
    from coreshot.data.broken_columns import refuse_broken
    from coreshot.study.site_records import read_study_records

    records = read_study_records(study, Path(path))
    refuse_broken(records.findings, str(path), ())
    return records.x, records.y


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
    ledger: Path | None = None,
) -> bytes:
    """A client's side: its data in, the one message that leaves out.

    Parameters
    ----------
    study : Study
        The public agreement, the same at every site and at the server.
    x : array of shape (records, *input_shape)
        The inputs, scaled as the study says.
    y : array of shape (records,) or (records, num_outputs)
        Classes as whole numbers from 0, or targets of a regression.
    client : str
        The site's name; no two sites of a study have the same.
    seed : int
        Of a learner's random numbers. Noise of a private study comes from the operating system instead.
    progress : Progress, optional
        Is told how far a learner that takes long is.
    keep : Path, optional
        A file with the state of a learner that takes long: it continues from there, if that is of the same work, and
        saves its own there.
    stop : threading.Event, optional
        After it is set, a learner ends with a StoppedError.
    ledger : Path, optional
        The site's own file. What leaves is noted there first, a private study on the same records gets the same message
        again, and a total is not passed, as with the command `coreshot distill`. Without it nothing is noted, as
        simulations need it, and a private study draws new noise at each call: two such messages are two releases.

    Returns
    -------
    bytes
        The message: a safetensors file whose header lists everything that was computed from the records.

    Examples
    --------
    >>> message = coreshot.distill(study, x, y, client="north")  # doctest: +SKIP
    """
    terms = study.agreement
    points = check_points(
        x, y, kind=terms.kind, input_shape=terms.input_shape, num_outputs=terms.num_outputs, client=client
    )
    study.check_records(points, client)

    def compute() -> bytes:
        return distill_points(study, points, client, seed, progress, keep, stop)

    if ledger is None:
        return compute()
    return SiteAnswers(ReleaseLedger(ledger), study, None, points).send_once(client, compute)[0]


def distill_points(
    study: Study,
    points: Points,
    client: str,
    seed: int = 0,
    progress: Progress | None = None,
    keep: Path | None = None,
    stop: threading.Event | None = None,
) -> bytes:
    """As `distill`, of records that are checked; no ledger is asked."""
    sender, num_skipped = study.one_round, 0
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
