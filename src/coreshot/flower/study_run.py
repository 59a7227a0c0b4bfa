"""A study with real sites: collect their coresets over Flower, then write the folder that `coreshot fit` writes."""

from __future__ import annotations

from pathlib import Path

import jax

from coreshot.config import decode_named
from coreshot.errors import CoreshotError
from coreshot.fitted.folder import write_model
from coreshot.flower.forgetting import forgotten_notes
from coreshot.flower.nodes import Nodes
from coreshot.flower.runs import RunRequest
from coreshot.inference.registry import INFERENCES
from coreshot.runtime.replies import reply_store
from coreshot.runtime.simulate import simulate
from coreshot.storage import write_bytes, write_json
from coreshot.study.file import read_study_file
from coreshot.wire.ledger import Ledger


def fit_study(request: RunRequest, nodes: Nodes) -> None:
    """Write out/messages and out/ledger.jsonl as a run does, out/notes.json (who is missing and why), and out/model."""
    out, ledger = Path(request.out), Ledger()
    forgotten = request.forgotten or {}
    notes = forgotten_notes(request.clients, forgotten)
    clients = [client for client in request.clients if client not in forgotten]
    if not clients:
        raise CoreshotError("every site of this run was forgotten; ask one again with --unforget, or name others.")
    write_bytes(out / "study.toml", request.study.encode())
    agreed = read_study_file(out / "study.toml")
    study = agreed.study
    inference = (
        decode_named(INFERENCES, request.inference, "request, inference", "inference") if request.inference else None
    )
    replies = reply_store(study, out)
    simulate(
        jax.random.key(request.seed),
        study,
        dict.fromkeys(clients),  # type: ignore[arg-type]  # the sites keep their points
        ledger,
        replies=replies,
        executor=nodes,
        on_exchange=lambda seen: notes.extend(seen.notes),
    )
    write_bytes(out / "ledger.jsonl", ledger.to_json_lines().encode())
    write_json(out / "notes.json", notes)
    coresets = {client: reply.data for (_, client), reply in replies.items() if client in clients}
    write_model(out / "model", agreed, coresets, inference, "mass", request.seed)
