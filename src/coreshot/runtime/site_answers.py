"""A site's answers, through its ledger: what leaves is written down first, and the same is sent when asked again.

`distill` and the worker behind a Flower site go through this, and the Python function `distill` where it is given a
ledger. Simulations and experiments do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from coreshot.methods.protocol import OnChunk, OneRound
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.release_ledger import EVERYTHING, ReleaseLedger, Share, Steps
from coreshot.study import Study
from coreshot.types import Points, PRNGKey
from coreshot.wire.messages import decode_message, encode_message, pack, unpack


class SiteAnswers:
    """The answers of one site's records to one study."""

    def __init__(self, ledger: ReleaseLedger, study: Study, data: Path | None, points: Points) -> None:
        """Without a file, the records themselves are the data set."""
        self.ledger, self._study, self._own_points = ledger, study, points
        records = ledger.hash_records(points)
        name = records if data is None else ledger.hash_file(data)
        self.share = Share(name, records, study.hash, study.agreement.task, study.releases)

    @property
    def study(self) -> Study:
        return self._study

    @property
    def num_records(self) -> int:
        return self._own_points.num_points

    @property
    def warnings(self) -> list[str]:
        """Where the site has totals, and none of them is for these records."""
        totals = self.ledger.totals()
        if not totals or EVERYTHING in totals or self.share.data in totals:
            return []
        return [
            "this site has totals for other files and none for this one, which may be a changed copy of one of them; "
            "set one with `coreshot budget set`, without --data for all files together."
        ]

    def send_once(self, client: str, compute: Callable[[], bytes]) -> tuple[bytes, bool]:
        """The one message of a one-round study, and whether it is that of an earlier time."""

        def whole(taken: Steps) -> tuple[bytes, Steps]:
            return compute(), {release.name: release.num_steps for release in self.share.releases}

        message, is_kept = self.ledger.answer(self.share, "", whole)
        return _in_name_of(client, message), is_kept

    def reply(self, key: PRNGKey, client: str, inbox: Sequence[bytes], on_chunk: OnChunk) -> tuple[bytes, list[str]]:
        """The answer to a server's messages, and notes on how it was made.

        A private method of one round has one answer, whatever the server sends: neither its messages nor its key can
        ask for another. A method of many rounds has one answer to the same messages.
        """
        study, notes = self._study, self.warnings

        def compute(taken: Steps) -> tuple[bytes, Steps]:
            records = Records(self._own_points, study.releases, taken)
            messages = [decode_message(data, study_hash=study.hash) for data in inbox]
            replies = study.method.reply(key, study.model, {client: records}, messages, study.shared_key, on_chunk)
            message, found = replies[client]
            notes.extend(found)
            data = encode_message(message, study_hash=study.hash, client=client, releases=study.releases)
            # A message that cannot be used does not leave the site.
            study.read(client, decode_message(data, study_hash=study.hash))
            # A mechanism that does not count its steps on these records has taken all of them.
            every = {release.name: release.num_steps for release in study.releases}
            return data, records.steps_taken or every

        request = "" if _has_one_answer(study) else hashlib.sha256(b"".join(map(_framed, inbox))).hexdigest()
        message, _ = self.ledger.answer(self.share, request, compute)
        return _in_name_of(client, message), notes


def _has_one_answer(study: Study) -> bool:
    return study.method.num_rounds == 1 and isinstance(study.method, OneRound)


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data


def _in_name_of(client: str, data: bytes) -> bytes:
    """The same numbers under the site's present name; a name is no part of what is released of records."""
    header, arrays = unpack(data)
    return data if header["client"] == client else pack({**header, "client": client}, arrays)
