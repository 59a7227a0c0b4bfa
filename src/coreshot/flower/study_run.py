"""A study with real sites: their coresets over Flower, then the folder that `coreshot fit` would have made of the same files."""

from __future__ import annotations

from pathlib import Path

import jax

from coreshot.config import decode_named
from coreshot.fitted.folder import write_model
from coreshot.flower.nodes import Nodes
from coreshot.flower.runs import Order
from coreshot.inference.registry import INFERENCES
from coreshot.runtime.replies import reply_store
from coreshot.runtime.simulate import simulate
from coreshot.storage import write_bytes, write_json
from coreshot.study.file import read_study_file
from coreshot.wire.ledger import Ledger


def fit_study(order: Order, nodes: Nodes) -> None:
    """out/messages and out/ledger.jsonl as of a run, out/notes.json: who is missing and why, out/model."""
    out, notes, ledger = Path(order.out), list[str](), Ledger()
    write_bytes(out / "study.toml", order.study.encode())
    agreed = read_study_file(out / "study.toml")
    study = agreed.study
    inference = decode_named(INFERENCES, order.inference, "order, inference", "inference") if order.inference else None
    replies = reply_store(study, out)
    simulate(
        jax.random.key(order.seed),
        study,
        dict.fromkeys(order.clients),  # type: ignore[arg-type]  # their points are theirs
        ledger,
        replies=replies,
        executor=nodes,
        on_exchange=lambda seen: notes.extend(seen.notes),
    )
    write_bytes(out / "ledger.jsonl", ledger.to_json_lines().encode())
    write_json(out / "notes.json", notes)
    coresets = {client: reply.data for (_, client), reply in replies.items() if client in order.clients}
    write_model(out / "model", agreed, coresets, inference, "mass", order.seed)
