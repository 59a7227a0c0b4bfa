"""`coreshot distill`: the one file that leaves a site."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coreshot.cli.options import DataPath, LedgerPath, MaxMemory, SiteSettingsPath, StudyPath
from coreshot.cli.output import (
    Json,
    print_now,
    print_result,
    refuse_existing,
    value_lines,
    working,
    write_new,
)
from coreshot.cli.records import (
    Allow,
    Decimal,
    Delimiter,
    Encoding,
    Sheet,
    ShowValues,
    Thousands,
    report_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coreshot.data.files import EncodedRecords
    from coreshot.data.site_settings import SiteSettings
    from coreshot.runtime.site_answers import SiteAnswers
    from coreshot.study import Study
    from coreshot.types import Points

RAISE = "ask the coordinator for a smaller study, or raise it with --max-memory"
KeyPath = Annotated[
    Path | None, typer.Option("--key", help="Sign the coreset with this private key, of `coreshot key new`.")
]


def distill(
    study: StudyPath,
    data: DataPath,
    out: Annotated[Path, typer.Option("--out", help="The file to write; it must not exist yet.")],
    client: Annotated[
        str | None, typer.Option("--client", help="The name of this site; the default is the name of the file --out.")
    ] = None,
    seed: Annotated[
        int,
        typer.Option("--seed", help="The seed of this site's random numbers; noise for privacy does not use it."),
    ] = 0,
    key: KeyPath = None,
    max_memory: MaxMemory = None,
    site_settings: SiteSettingsPath = None,
    ledger: LedgerPath = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
    allow: Allow = None,
    show_values: ShowValues = False,
    as_json: Json = False,
) -> None:
    """Compute this site's coreset, the one file that leaves the site. Nothing is sent.

    How the file is written is detected and shown. A column that cannot be what the study means stops the work.

    What leaves is noted in this site's ledger first. A private study that was answered before is not computed again:
    the same bytes are written. A total (`coreshot budget set`) that the study would pass stops the work.

    A slow learner shows how much time is left; Ctrl-C stops it, and the same command continues where it stopped.

    Example: coreshot distill study.toml patients.csv --out site.coreset
    """
    from coreshot.data.site_settings import read_site_settings
    from coreshot.privacy.release_ledger import ReleaseLedger
    from coreshot.runtime.site_answers import SiteAnswers
    from coreshot.storage import PRIVATE, check_client_name
    from coreshot.study.site_records import check_study_points, read_open_study
    from coreshot.wire.signatures import read_key, sign_message

    signer = read_key(key) if key else None
    agreed, name = read_open_study(study), check_client_name(client or out.stem)
    refuse_existing(out)
    releases = ReleaseLedger(ledger)
    written = {"delimiter": delimiter, "decimal": decimal, "thousands": thousands, "encoding": encoding, "sheet": sheet}
    how = read_site_settings(site_settings, **written, allow=allow or ())
    records = _read(agreed, data, how, show_values, max_memory)
    report_records(data, records, how, show_values, as_json)
    points = check_study_points(agreed, records.x, records.y, name)
    records = replace(records, x=records.x[:0].copy(), y=None)  # the points are another copy, and memory is not for two
    site = SiteAnswers(releases, agreed, data, points)
    unsigned, is_kept = site.send_once(name, lambda: _compute(agreed, points, name, seed, _unfinished(out)))
    message = sign_message(unsigned, signer) if signer is not None else unsigned
    write_new(out, message, PRIVATE)
    _unfinished(out).unlink(missing_ok=True)
    _tell(site, study, out, name, message, records, is_kept, as_json)


def _tell(
    site: SiteAnswers,
    agreement: Path,
    out: Path,
    client: str,
    message: bytes,
    records: EncodedRecords,
    is_kept: bool,
    as_json: bool,
) -> None:
    from coreshot.privacy.promise import promise

    study, num_records = site.study, site.num_records
    values = {"coreset": str(out), "client": client, "bytes": len(message), "records": num_records}
    if records.owner is not None:  # of a time to an event
        values |= {"people": len(set(records.owner.tolist()))}
    values |= {"promise": promise(study.releases)}
    remarks = _remarks(study, num_records, site, is_kept)
    page = out.with_suffix(".html")
    look = f"Nothing was sent. Look at it: `coreshot inspect {out} --study {agreement} --html {page}`"
    parts = [*value_lines(values), *remarks, *_rounding(study, client, message), look]
    print_result({**values, "read_as": records.read_as, "is_repeated": is_kept}, as_json, parts)


def _read(study: Study, data: Path, how: SiteSettings, show_values: bool, max_memory: float | None) -> EncodedRecords:
    """The records, unless the study needs more memory than this site gives it."""
    from coreshot.study.overview import MAX_MEMORY, refuse_large
    from coreshot.study.site_records import read_study_records

    limit = 1e9 * (MAX_MEMORY if max_memory is None else max_memory)
    refuse_large(study, 1, limit, RAISE)  # before the records are read
    records = read_study_records(study, data, how=how, show_values=show_values)
    refuse_large(study, len(records.x), limit, RAISE)
    return records


def _rounding(study: Study, client: str, message: bytes) -> Iterator[str]:
    """What rounding has changed in this site's own predictions, where the method measures it."""
    from coreshot.methods import Glm
    from coreshot.methods.glm import describe_loss
    from coreshot.wire.messages import decode_message

    if not isinstance(study.method, Glm):
        return
    loss = study.read(client, decode_message(message, study_hash=study.hash)).loss
    yield f"{describe_loss(study.agreement.kind, loss)}."
    if loss > study.method.tolerance:
        yield (
            f"warning: this is more than the study's tolerance of {study.method.tolerance:g}, because its max_bytes is "
            f"{study.method.max_bytes or 0:,}; ask the coordinator for a larger one."
        )


def _remarks(study: Study, num_records: int, site: SiteAnswers, is_kept: bool) -> Iterator[str]:
    from coreshot.privacy.release_ledger import EVERYTHING, private_epsilon

    if is_kept:
        yield (
            "repeated: this site has answered this study on these records before, and these are the same numbers; "
            "no new noise was drawn."
        )
    if not site.share.is_exact:
        shares, total = [entry.share for entry in site.ledger.entries()], site.ledger.totals().get(EVERYTHING)
        epsilon, at = private_epsilon(shares, total.delta if total else None)
        of_total = f" of this site's total of {total.epsilon:g}" if total else ""
        yield f"released so far: epsilon {epsilon:.4g}{of_total} at delta {at:.3g} (`coreshot budget show`)"
    yield from (f"warning: {warning}" for warning in site.warnings)
    delta = max((release.delta or 0.0 for release in study.releases), default=0.0)
    if delta * num_records > 1:
        yield (
            f"warning: delta is {delta:.3g}, above 1 / {num_records} records; a mechanism that shows one record in "
            f"{num_records} as it is would keep that promise. Ask for a study with a delta far below "
            f"{1 / num_records:.1g}."
        )
    if num_records == 1 and any(release.is_exact for release in study.releases):
        yield "warning: this file is computed from one record, without noise, and may reveal that record."


def _unfinished(out: Path) -> Path:
    """Where a run that is stopped keeps its state."""
    return out.with_name(f"{out.name}.unfinished")


def _compute(study: Study, points: Points, client: str, seed: int, keep: Path) -> bytes:
    """The message. A run that is stopped keeps its state in the file `keep`."""
    import threading
    from contextlib import nullcontext

    from coreshot.api import distill_points
    from coreshot.runtime.compilation import keep_compiled
    from coreshot.runtime.resumable import StoppedError, stop_on_interrupt

    stop = threading.Event()
    # Only a learner with several chunks can stop between them; Ctrl-C ends everything else at once.
    is_slow = study.learner is not None and study.learner.num_chunks > 1
    if is_slow:
        keep_compiled()
    try:
        with working(as_json=True) as progress, stop_on_interrupt(stop) if is_slow else nullcontext():
            return distill_points(study, points, client, seed, progress, keep, stop)
    except StoppedError:
        if keep.exists():
            kept = f"{keep} has its state, and the same command goes on there"
        else:
            kept = "this study's work cannot be cut, and will begin anew"
        print_now(f"coreshot: stopped; {kept}.", as_json=True)
        raise typer.Exit(1) from None
