"""A fitted model: what the server has learned from the messages of a study, ready to predict, evaluate and forget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coreshot.data.validate import check_points
from coreshot.errors import CoreshotError
from coreshot.fitted.metrics import Metrics, Sums, metrics, predict, sums
from coreshot.inference import Inference
from coreshot.inference.diagnostics import Diagnostics, diagnose
from coreshot.keys import named_key
from coreshot.methods.one_shot import OneShot, Weighting
from coreshot.methods.spectral import Spectral
from coreshot.spectral.outlier_clients import Standing, leave_one_out
from coreshot.spectral.posterior import HeadPosterior
from coreshot.study import Study
from coreshot.types import Points, Posterior, Predictive
from coreshot.wire.messages import decode_message, read_header


def _one_shot(study: Study, inference: Inference | None, weighting: Weighting = "mass") -> Any:
    """The method of a study with one exchange: its own, or its learner with an inference, which a client does without."""
    if study.learner:
        return OneShot(study.learner, inference, weighting)  # type: ignore[arg-type]
    if study.method is None or study.method.num_rounds != 1:
        raise CoreshotError(
            "study: its method has many rounds, so there is no one message to make or to fit; use a one-shot study."
        )
    return study.method


@dataclass(frozen=True)
class FittedModel:
    """What the server has learned; `diagnostics` says whether the sampling can be trusted."""

    study: Study
    posterior: Posterior | HeadPosterior
    diagnostics: Diagnostics
    points: Points | None = field(
        repr=False, default=None
    )  # the pooled, weighted coresets it was inferred from; None: of a study of sums
    state: Any = field(repr=False, default=None)  # the sums of such a study, to which messages can be added

    def predict(self, x: Any) -> Predictive:
        """Class probabilities or function mean, with epistemic and aleatoric deviation."""
        return predict(self.study.model, self.posterior, self._inputs(x))

    def novelty(self, x: Any) -> np.ndarray:
        """How far each input is from all that the clients saw, in units of the noise; of a spectral study."""
        if not isinstance(self.posterior, HeadPosterior):
            raise CoreshotError("novelty: only a spectral study has it; look at predict(x).epistemic.")
        return self.posterior.novelty(self._inputs(x))

    def _inputs(self, x: Any) -> np.ndarray:
        x = np.asarray(x, np.float32)
        if x.shape[1:] != self.study.agreement.input_shape:
            raise CoreshotError(
                f"predict: inputs have shape {x.shape}, the study wants (points, *{self.study.agreement.input_shape}); reshape them."
            )
        return x

    def sums(self, x: Any, y: Any) -> Sums:
        """What metrics are made of; those of several files add up."""
        terms = self.study.agreement
        test = check_points(
            x, y, kind=terms.kind, input_shape=terms.input_shape, num_outputs=terms.num_outputs, client="test data"
        )
        return sums(self.study.model, self.posterior, test)

    def evaluate(self, x: Any, y: Any) -> Metrics:
        return metrics(self.study.model, self.sums(x, y))

    def forget(self, data: bytes) -> FittedModel:
        """The model as if the client of this message, which is one of those it was fitted to, had never taken part; of a study of sums."""
        method: Any = self.study.method
        if not hasattr(method, "forget"):
            raise CoreshotError(
                "forget: only a study whose server keeps sums can take a client out of them; fit again without its message."
            )
        client, message = (
            read_header(data)["client"],
            decode_message(data, study_hash=self.study.hash, releases=self.study.releases),
        )
        if client not in self.state.clients:
            raise CoreshotError(
                f"forget: client {client} is not in this model; there are {', '.join(sorted(self.state.clients))}."
            )
        return _fitted(
            self.study, method, method.forget(self.study.model, self.state, client, message), jax.random.key(0)
        )


def fit(
    study: Study,
    messages: Iterable[bytes],
    inference: Inference | None = None,
    *,
    weighting: Weighting = "mass",
    seed: int = 0,
) -> FittedModel:
    """The server's side: messages of this study, in any order, to a posterior. The data are nowhere in sight.

    A spectral study has its posterior in closed form; one with a learner wants an inference.
    """
    method, model, key = _one_shot(study, inference, weighting), study.model, jax.random.key(seed)
    if study.learner and inference is None:
        raise CoreshotError("fit: a study with a learner needs an inference, such as MapEstimate or Hmc; give one.")
    arrived = {}
    for data in messages:
        client = read_header(data)["client"]
        if client in arrived:
            raise CoreshotError(f"client {client}: sent two messages; keep one of them.")
        arrived[client] = decode_message(data, study_hash=study.hash, releases=study.releases)
    if not arrived:
        raise CoreshotError("fit: no messages arrived; give at least one.")
    return _fitted(study, method, method.receive(key, model, method.init(key, model, study.shared_key), arrived), key)


def _fitted(study: Study, method: Any, state: Any, key: jax.Array) -> FittedModel:
    posterior, info = method.posterior(named_key(key, "inference"), study.model, state)
    if not study.learner:
        return FittedModel(
            study,
            posterior,
            diagnose(study.model, posterior, info, jnp.zeros((0, *study.agreement.input_shape))),
            state=state,
        )
    points = method.log_density(study.model, state).points
    return FittedModel(study, posterior, diagnose(study.model, posterior, info, points.x), points)


def compare_clients(study: Study, messages: Mapping[str, bytes]) -> dict[str, Standing]:
    """How each client's message stands to those of all others: is one of them broken, or hostile? In the order of their names."""
    clients, method, model = sorted(messages), study.method, study.model
    if not isinstance(method, Spectral):
        why = (
            "its points would need an inference for each client"
            if study.learner
            else "moments with noise are not compared"
        )
        return {
            client: Standing("cannot be told", f"this study cannot be looked at client by client: {why}")
            for client in clients
        }
    arrived = {
        client: decode_message(messages[client], study_hash=study.hash, releases=study.releases) for client in clients
    }
    return leave_one_out(model.kind, clients, lambda client: method.moments_of(model, client, arrived[client]))
