"""`coreshot distill`: the one file that leaves a site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coreshot.cli.options import DataPath, MaxMemory, SiteSettingsPath, StudyPath
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
    from coreshot.data.files import EncodedRecords
    from coreshot.study import Study
    from coreshot.wire.signatures import Key

RAISE = "ask the coordinator for a smaller study, or raise it with --max-memory"


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
    key: Annotated[
        Path | None, typer.Option("--key", help="Sign the coreset with this private key, of `coreshot key new`.")
    ] = None,
    max_memory: MaxMemory = None,
    site_settings: SiteSettingsPath = None,
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

    A slow learner shows how much time is left; Ctrl-C stops it, and the same command continues where it stopped.

    Example: coreshot distill study.toml patients.csv --out site.coreset
    """
    from coreshot.data.site_settings import read_site_settings
    from coreshot.privacy.promise import promise
    from coreshot.storage import check_client_name
    from coreshot.study.file import read_study
    from coreshot.study.overview import MAX_MEMORY, refuse_large
    from coreshot.study.site_records import read_study_records
    from coreshot.wire.signatures import read_key

    signer = read_key(key) if key else None
    agreed, name = read_study(study), check_client_name(client or out.stem)
    refuse_existing(out)
    written = {"delimiter": delimiter, "decimal": decimal, "thousands": thousands, "encoding": encoding, "sheet": sheet}
    how = read_site_settings(site_settings, **written, allow=allow or ())
    limit = 1e9 * (MAX_MEMORY if max_memory is None else max_memory)
    refuse_large(agreed, 1, limit, RAISE)  # before the records are read
    records = read_study_records(agreed, data, how=how, show_values=show_values)
    refuse_large(agreed, len(records.x), limit, RAISE)
    report_records(data, records, how, show_values, as_json)
    message = _distilled(agreed, records, name, seed, out, signer)
    values = {
        "coreset": str(out),
        "client": name,
        "bytes": len(message),
        "records": len(records.x),
        "promise": promise(agreed.releases),
    }
    parts = list(value_lines(values))
    values["read_as"] = records.read_as  # people have read it above
    if len(records.x) == 1 and any(release.is_exact for release in agreed.releases):
        parts.append("warning: this file is computed from one record, without noise, and may reveal that record.")
    print_result(values, as_json, parts)


def _distilled(study: Study, records: EncodedRecords, client: str, seed: int, out: Path, signer: Key | None) -> bytes:
    """The message, which is also written to `out`. A run that is stopped keeps its state in a file beside `out`."""
    import threading
    from contextlib import nullcontext

    from coreshot.api import distill as make_coreset
    from coreshot.runtime.compilation import keep_compiled
    from coreshot.runtime.resumable import StoppedError, stop_on_interrupt
    from coreshot.wire.signatures import sign_message

    keep, stop = out.with_name(f"{out.name}.unfinished"), threading.Event()
    # Only a learner with several chunks can stop between them; Ctrl-C ends everything else at once.
    is_slow = study.learner is not None and study.learner.num_chunks > 1
    if is_slow:
        keep_compiled()
    try:
        with working(as_json=True) as progress, stop_on_interrupt(stop) if is_slow else nullcontext():
            message = make_coreset(
                study, records.x, records.y, client=client, seed=seed, progress=progress, keep=keep, stop=stop
            )
    except StoppedError:
        if keep.exists():
            kept = f"{keep} has its state, and the same command goes on there"
        else:
            kept = "this study's work cannot be cut, and will begin anew"
        print_now(f"coreshot: stopped; {kept}.", as_json=True)
        raise typer.Exit(1) from None
    if signer is not None:
        message = sign_message(message, signer)
    write_new(out, message)
    keep.unlink(missing_ok=True)
    return message
