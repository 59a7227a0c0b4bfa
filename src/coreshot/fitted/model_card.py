"""A model's card, in Markdown, from what its folder says: who, from how many records, with which promise, its limits.

After Mitchell et al., "Model Cards for Model Reporting", 2019. The folder of a model says nothing of what was in it
before, so that a client that was forgotten leaves no trace; what changed is told from an earlier card, if one was kept.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Any

from coreshot.data.schema import Table
from coreshot.errors import CoreshotError
from coreshot.fitted.folder import ModelFolder
from coreshot.fitted.model import read_messages
from coreshot.methods.protocol import Claims
from coreshot.privacy.promise import promise
from coreshot.study import Study
from coreshot.wire.messages import read_header

CLIENT_ROW = re.compile(r"^\| (?P<client>(?:[^|\\]|\\.)+) \| (?P<records>[\d,]*) \|")
HEADING = "| client | records, as it says | agreement with the others | what it released |"
POSTERIOR, STUDY = "- Numbers: ", "- Study: "


def model_card(
    folder: ModelFolder, measures: dict[str, str] | None = None, source: str = "", earlier: str | None = None
) -> str:
    """`measures` are those of `coreshot evaluate` on records of `source`; `earlier`: a card of the model as it was."""
    text = "\n".join(_lines(folder, measures, source)) + "\n"
    return text if earlier is None else text + "\n".join(_changes(earlier, text)) + "\n"


def _clients_of(card: str) -> dict[str, str]:
    """Each with the records that it says, by its name as it stands in the card."""
    _, found, table = card.partition(HEADING)
    if not found:
        raise CoreshotError(
            "export --since: is no card of a model; give one that `coreshot export --card` has written."
        )
    rows = (CLIENT_ROW.match(line) for line in table.partition("\n\n")[0].splitlines()[2:])
    return {row["client"]: row["records"] for row in rows if row is not None}


def _changes(earlier: str, now: str) -> Iterator[str]:
    before, after = _clients_of(earlier), _clients_of(now)
    yield from ("", "## What changed since the earlier card", "")
    said = [
        *(
            f"{client} was added, with {after[client] or 'no number of'} records"
            for client in sorted(set(after) - set(before))
        ),
        *(f"{client} is no longer in it" for client in sorted(set(before) - set(after))),
        *(
            f"{client} has another file: {before[client]} records before, {after[client]} now"
            for client in sorted(set(before) & set(after))
            if before[client] != after[client]
        ),
    ]
    for mark, what in ((STUDY, "the study is another one"), (POSTERIOR, "the numbers of the model are others")):
        lines = [next((line for line in card.splitlines() if line.startswith(mark)), "") for card in (earlier, now)]
        if lines[0] != lines[1]:
            said.append(
                f"{what}: {lines[0].removeprefix(mark) or 'not said'} before, {lines[1].removeprefix(mark)} now"
            )
    yield from (f"- {line}." for line in said or ["Nothing: the same clients, and the same numbers"])


def _lines(folder: ModelFolder, measures: dict[str, str] | None, source: str) -> Iterator[str]:
    study = folder.study_file.study
    terms = study.agreement
    yield f"# Model of the study {_plain(terms.task)}"
    yield ""
    yield f"{STUDY}`{study.hash}`"
    file = folder.path / "model.toml"
    written = datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.UTC).date()
    yield f"{POSTERIOR}`{folder.posterior}`"
    yield f"- Written: {written} (the date of model.toml)"
    yield f"- Predicts: {_target(study)}"
    yield f"- From: {_inputs(study)}"
    yield f"- Method: {type(study.method).__name__}, one file from each client"
    if folder.inference is not None:
        yield f"- Inference: {folder.inference.get('name')}, seed {folder.seed}"
    yield f"- Senders: {'checked against a roster of public keys' if folder.roster else 'not checked by signatures'}"
    yield from _local(folder)
    yield from ("", "## Clients", "")
    yield from _clients(folder, study)
    yield from ("", "## Privacy", "", promise(study.releases))
    yield from ("", "## Quality", "")
    if measures:
        yield f"On {_plain(source)}:"
        yield ""
        yield from (f"- {_plain(name)}: {_plain(value)}" for name, value in measures.items())
    else:
        yield "Not measured here; `coreshot evaluate MODEL DATA` does, and `coreshot export --evaluate DATA` adds it."
    yield from ("", "## Limits", "")
    yield from _limits(folder, study)


def _plain(text: Any) -> str:
    """A name is a name, and no markup of a table or a page."""
    return "".join(f"\\{one}" if one in "\\`*_[]<>|#" else " " if one in "\r\n" else one for one in str(text))


def _target(study: Study) -> str:
    classes = getattr(study.target, "classes", None)
    if classes:
        return f"{_plain(getattr(study.target, 'name', ''))}: {', '.join(map(_plain, classes))}"
    if study.target is None:
        return f"{study.agreement.num_outputs} outputs ({study.agreement.kind})"
    low, high = getattr(study.target, "range", ("?", "?"))
    return f"{_plain(study.target.name)}, a number from {low:g} to {high:g}"


def _inputs(study: Study) -> str:
    if isinstance(study.inputs, Table):
        return f"{len(study.inputs.columns)} columns: {', '.join(_plain(one.name) for one in study.inputs.columns)}"
    return f"inputs of shape {' x '.join(map(str, study.agreement.input_shape))}"


def _local(folder: ModelFolder) -> Iterator[str]:
    if folder.local is None:
        return
    said = "; ".join(map(str, folder.local.get("words", [])))
    yield f"- Adapted at one place: {_plain(said)}"
    yield "- It is made of that place's own records, without noise: it stays there"


def _clients(folder: ModelFolder, study: Study) -> Iterator[str]:
    coresets = {} if folder.local is not None else folder.coresets()
    counts: dict[str, float] = {}
    if isinstance(study.method, Claims) and coresets:
        for client, content in read_messages(study, coresets.values()).items():
            claim = study.method.claim(content)
            if claim.num_records:
                counts[client] = claim.num_records
    yield HEADING
    yield "|---|---:|---|---|"
    for client in folder.clients:
        releases = read_header(coresets[client])["releases"] if client in coresets else None
        names = [one["name"] for one in releases] if releases else [one.name for one in study.releases]
        said = f"{counts[client]:,.0f}" if client in counts else ""
        standing = folder.standings.get(client, {})
        words = f"{standing.get('verdict', '')}: {standing.get('words', '')}"
        yield f"| {_plain(client)} | {said} | {_plain(words)} | {_plain(', '.join(map(str, names)))} |"


def _limits(folder: ModelFolder, study: Study) -> Iterator[str]:
    yield "- It was fitted to the clients above; elsewhere look first with `coreshot check MODEL DATA`."
    yield "- Base rates differ between places: `coreshot adapt` fits it to one."
    suspects = [name for name, one in folder.standings.items() if one.get("verdict") == "suspect"]
    if suspects:
        yield f"- May be broken or hostile: {', '.join(map(_plain, suspects))}."
    if any(release.is_exact for release in study.releases):
        yield "- What the clients sent is computed from their records without noise."
    if folder.local is None:
        yield "- To forget a client: `coreshot forget MODEL --client NAME`; then it is as if it had never taken part."
    else:
        yield "- To forget a client: forget it in the federation's model, and adapt again."
