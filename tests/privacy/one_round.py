"""One round of a private method by hand, and an audit of it whose statistic is the record's own noise."""

import json
import math

import jax
import numpy as np
import pytest

from coreshot.audit.findings import make_findings
from coreshot.audit.run import read_trials, run_audit
from coreshot.audit.subject import make_subject
from coreshot.privacy.guarded_records import guard_records


def replies_of(study, clients, key=0, *, used):
    """What the clients send, who must use their records by the releases of these names and in no other way."""
    state = study.method.init(jax.random.key(0), study.model, study.shared_key)
    invitation = study.method.send(jax.random.key(0), study.model, state, tuple(clients))
    asked = guard_records(clients, study.releases)
    answers = study.method.reply(
        jax.random.key(key), study.model, asked, [invitation.message], study.shared_key, lambda clients: None
    )
    assert all(records.used == used for records in asked.values())
    return {name: message for name, (message, _) in answers.items()}


def received(study, replies, state=None):
    """The server's state once it has these."""
    return study.method.receive(
        jax.random.key(0),
        study.model,
        state or study.method.init(jax.random.key(0), study.model, study.shared_key),
        {name: study.method.read(study.model, name, reply) for name, reply in replies.items()},
    )


def audit_noise(study, data, folder, *, relative):
    """Findings of 2 x 150 trials. The statistic moves by one with the record; its deviation is the noise multiplier."""
    subject = make_subject(study, data)
    run_audit(subject, 150, folder)
    lines = [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
    statistics = {
        which: np.array([line["record"] for line in lines if line["which"] == which])[:, 0]
        for which in ("all", "without")
    }
    scale = study.releases[0].noise_multiplier
    moved = np.mean(statistics["all"]) - np.mean(statistics["without"])
    assert moved == pytest.approx(1, abs=4 * scale * math.sqrt(2 / 150))
    noise = np.concatenate([one - one.mean() for one in statistics.values()])
    assert np.std(noise) == pytest.approx(scale, rel=relative)
    return make_findings(subject, read_trials(folder), 0.999)
