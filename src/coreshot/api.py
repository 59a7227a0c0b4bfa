"""From arrays to a fitted posterior in a few lines: distill at each site, fit at the server, predict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from coreshot.data.validate import check_fits_learner, check_points
from coreshot.errors import CoreshotError
from coreshot.evaluate import Metrics, Predictive, metrics, predict, sums
from coreshot.inference import Inference
from coreshot.inference.diagnostics import Diagnostics, diagnose
from coreshot.keys import named_key
from coreshot.learners import Learner
from coreshot.methods.one_shot import OneShot, Weighting
from coreshot.study import Study
from coreshot.types import Message, Points, Posterior
from coreshot.wire import decode_message, encode_message, read_header


def distill(study: Study, x: Any, y: Any, *, client: str, seed: int = 0) -> bytes:
    """A client's side: its data in, the one message that leaves out. x is [points, ...]; y is classes, or targets."""
    terms = study.agreement
    points = check_points(x, y, kind=terms.kind, input_shape=terms.input_shape, num_outputs=terms.num_outputs, client=client)
    learner = _learner(study)
    check_fits_learner(points, kind=terms.kind, num_points=learner.num_points, client=client)
    sender = OneShot(learner, inference=None)  # type: ignore[arg-type]  # a client never infers
    inbox = [Message("invitation", 0, {})]
    key = named_key(jax.random.key(seed), "clients")
    answers = sender.reply(key, study.model, {client: points}, inbox, study.shared_key, on_chunk=lambda clients: None)
    return encode_message(answers[client][0], study_hash=study.hash, client=client)


def _learner(study: Study) -> Learner:
    if study.learner is None:
        raise CoreshotError("study: has a multi-round method and no learner, so there is no one message to make or to fit; use a one-shot study.")
    return study.learner


@dataclass(frozen=True)
class FittedModel:
    """What the server has learned; `diagnostics` says whether the sampling can be trusted."""

    study: Study
    posterior: Posterior
    diagnostics: Diagnostics
    points: Points = field(repr=False)  # the pooled, weighted coresets it was inferred from

    def predict(self, x: Any) -> Predictive:
        """Class probabilities or function mean, with epistemic and aleatoric deviation."""
        x = jnp.asarray(x, jnp.float32)
        if x.shape[1:] != self.study.agreement.input_shape:
            raise CoreshotError(f"predict: inputs have shape {x.shape}, the study wants (points, *{self.study.agreement.input_shape}); reshape them.")
        return predict(self.study.model, self.posterior, x)

    def evaluate(self, x: Any, y: Any) -> Metrics:
        terms = self.study.agreement
        test = check_points(x, y, kind=terms.kind, input_shape=terms.input_shape, num_outputs=terms.num_outputs, client="test data")
        return metrics(self.study.model, sums(self.study.model, self.posterior, test))


def fit(study: Study, messages: Iterable[bytes], inference: Inference, *, weighting: Weighting = "mass", seed: int = 0) -> FittedModel:
    """The server's side: messages of this study, in any order, to a posterior. The data are nowhere in sight."""
    arrived = {}
    for data in messages:
        client = read_header(data)["client"]
        if client in arrived:
            raise CoreshotError(f"client {client}: sent two messages; keep one of them.")
        arrived[client] = decode_message(data, study_hash=study.hash)
    if not arrived:
        raise CoreshotError("fit: no messages arrived; give at least one.")
    method, model, key = OneShot(_learner(study), inference, weighting), study.model, jax.random.key(seed)
    state = method.receive(key, model, method.init(key, model, study.shared_key), arrived)
    posterior, info = method.posterior(named_key(key, "inference"), model, state)
    points = method.log_density(model, state).points
    return FittedModel(study, posterior, diagnose(model, posterior, info, points.x), points)
