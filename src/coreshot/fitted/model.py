"""A fitted model: what the server has learned from the messages of a study, ready to predict, evaluate and forget."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coreshot.data.validate import check_points
from coreshot.errors import CoreshotError
from coreshot.fitted.metrics import Metrics, Sums, metrics, sums
from coreshot.inference.diagnostics import Diagnostics, diagnose
from coreshot.inference.protocol import Inference
from coreshot.keys import named_key
from coreshot.methods.glm import Glm
from coreshot.methods.one_shot import OneShotState, pool_coresets
from coreshot.methods.protocol import Claims, Content, Forgets, PointInference, State, Weighting
from coreshot.methods.spectral import Spectral
from coreshot.models.parallel import one_blas_thread
from coreshot.spectral.many_clients import compare_rows
from coreshot.spectral.outlier_clients import MANY_CLIENTS, Standing, leave_one_out
from coreshot.spectral.received import ReceivedRows
from coreshot.study import Study
from coreshot.types import Posterior, Predictive
from coreshot.wire.messages import decode_message, hash_arrays, read_header, unpack

Contents = Mapping[str, Content]  # by client: what its message says


@dataclass(frozen=True, repr=False)
class FittedModel:
    """What the server has learned from the messages of a study.

    Attributes
    ----------
    study : Study
        The agreement that it was fitted under.
    posterior : Posterior
        Over the weights of a network, or over a linear head.
    diagnostics : Diagnostics
        Whether the sampling can be trusted; empty where nothing was sampled.

    Examples
    --------
    >>> model = coreshot.fit(study, messages)  # doctest: +SKIP
    >>> model.predict(x).mean, model.evaluate(x, y).accuracy  # doctest: +SKIP
    >>> without = model.forget(messages[0])  # doctest: +SKIP
    """

    study: Study
    posterior: Posterior
    diagnostics: Diagnostics = field(default_factory=Diagnostics.empty)
    state: State = None  # of the method, to which messages can be added; None: read from a file

    def __repr__(self) -> str:
        terms = self.study.agreement
        shape = " x ".join(map(str, terms.input_shape))
        return (
            f"FittedModel({terms.task!r}, {terms.kind}, inputs {shape}, {terms.num_outputs} outputs, "
            f"{type(self.study.method).__name__}, {type(self.posterior).__name__})"
        )

    def predict(self, x: Any) -> Predictive:
        """What the model says about new inputs, and how sure it is.

        Parameters
        ----------
        x : array of shape (points, *input_shape)
            Inputs, scaled as the study says.

        Returns
        -------
        Predictive
            Arrays of shape (points, num_outputs): `mean`, class probabilities or the mean of the function;
            `epistemic`, its deviation under the posterior; `aleatoric`, what remains if the weights were known.
        """
        return self.posterior.predict(self._inputs(x))

    def novelty(self, x: Any) -> np.ndarray:
        """How far each input is from all that the clients saw; of a glm or a spectral study.

        Parameters
        ----------
        x : array of shape (points, *input_shape)
            Inputs, as in `predict`.

        Returns
        -------
        array of shape (points,)
            In units of the noise: large values are unlike the records that the model was fitted to.
        """
        return self.posterior.novelty(self._inputs(x))

    def _inputs(self, x: Any) -> np.ndarray:
        x = np.asarray(x, np.float32)
        wanted = self.study.agreement.input_shape
        if x.shape[1:] != wanted:
            raise CoreshotError(
                f"predict: inputs have shape {x.shape}, the study wants (points, *{wanted}); reshape them."
            )
        return x

    def sums(self, x: Any, y: Any) -> Sums:
        """What metrics are made of; those of several files add up.

        Parameters
        ----------
        x, y
            As in `distill`.

        Returns
        -------
        Sums
        """
        terms = self.study.agreement
        test = check_points(
            x, y, kind=terms.kind, input_shape=terms.input_shape, num_outputs=terms.num_outputs, client="test data"
        )
        return sums(self.study.model, self.posterior, test)

    def evaluate(self, x: Any, y: Any) -> Metrics:
        """How good the model is on records with known answers.

        Parameters
        ----------
        x, y
            As in `distill`.

        Returns
        -------
        Metrics
            `accuracy`, `nll`, `brier` and `ece` of classes; `nll` and `rmse` of quantities; else None.
        """
        return metrics(self.study.model, self.sums(x, y))

    def forget(self, data: bytes) -> FittedModel:
        """The model as if the client of this message, one of those it was fitted to, had never taken part.

        Parameters
        ----------
        data : bytes
            The message that the client had sent.

        Returns
        -------
        FittedModel
        """
        method = self.study.method
        if not isinstance(method, Forgets):
            raise CoreshotError(
                "forget: only a study whose server keeps sums can take a client out of them; "
                "fit again without its message."
            )
        [(client, content)] = read_messages(self.study, [data]).items()
        if client not in self.state.clients:
            raise CoreshotError(
                f"forget: client {client} is not in this model; there are {', '.join(sorted(self.state.clients))}."
            )
        state = method.forget(self.study.model, self.state, client, content)
        return _infer(self.study, state, jax.random.key(0), None)


@one_blas_thread()
def read_messages(study: Study, messages: Iterable[bytes]) -> dict[str, Content]:
    """What each client's message says, decoded and checked once; the order is that of the messages."""
    contents: dict[str, Content] = {}
    terms, releases = study.hash, study.releases
    for data in messages:
        client = read_header(data)["client"]
        if client in contents:
            raise CoreshotError(f"client {client}: sent two messages; keep one of them.")
        message = decode_message(data, study_hash=terms, releases=releases)
        contents[client] = study.read(client, message)
    return contents


def digest(arrays: Mapping[str, Any]) -> bytes:
    """The same for messages with the same arrays, whoever sent them."""
    return hashlib.sha256(str(hash_arrays(arrays)).encode()).digest()


def refuse_copies(messages: Iterable[bytes]) -> None:
    """A CoreshotError if two clients sent the same arrays: the records behind them would count twice."""
    owners: dict[bytes, str] = {}
    for data in messages:
        header, arrays = unpack(data)
        client = owners.setdefault(digest(arrays), header["client"])
        if client != header["client"]:
            raise CoreshotError(
                f"client {header['client']}: its file holds the same numbers as that of client {client}; "
                "ask both whose they are, and leave the other file away."
            )


def fit(
    study: Study,
    messages: Iterable[bytes],
    inference: Inference | None = None,
    *,
    weighting: Weighting = "mass",
    seed: int = 0,
) -> FittedModel:
    """The server's side: messages of this study, in any order, to a posterior. It sees no data.

    Parameters
    ----------
    study : Study
        The agreement under which the messages were made; another one is an error.
    messages : iterable of bytes
        One from each client.
    inference : Inference, optional
        How weights are inferred from points: `Hmc`, `Nuts`, `MapEstimate`. A study with a learner needs one; glm and
        spectral studies have their posterior without.
    weighting : {"mass", "paper", "size", "none"}
        The weight of each received point, for a study with a learner.
    seed : int
        Of the inference.

    Returns
    -------
    FittedModel

    Examples
    --------
    >>> model = coreshot.fit(study, messages)  # doctest: +SKIP
    >>> model.predict(x).mean  # doctest: +SKIP
    """
    if study.learner is not None and inference is None:
        raise CoreshotError("fit: a study with a learner needs an inference, such as MapEstimate or Hmc; give one.")
    messages = list(messages)
    refuse_copies(messages)
    return fit_contents(study, read_messages(study, messages), inference, weighting, seed)


@one_blas_thread()
def fit_contents(
    study: Study, contents: Contents, inference: Inference | None, weighting: Weighting, seed: int
) -> FittedModel:
    """As `fit`, from messages that are already decoded."""
    if not contents:
        raise CoreshotError("fit: no messages arrived; give at least one.")
    method, model, key = study.one_round, study.model, jax.random.key(seed)
    state = method.receive(key, model, method.init(key, model, study.shared_key), contents)
    return _infer(study, state, key, None if inference is None else PointInference(inference, weighting))


@one_blas_thread()
def _infer(study: Study, state: State, key: jax.Array, inference: PointInference | None) -> FittedModel:
    posterior, info = study.method.posterior(named_key(key, "inference"), study.model, state, inference)
    probes = jnp.zeros((0, *study.agreement.input_shape))
    if isinstance(state, OneShotState):
        probes = pool_coresets(state.coresets, "none").x
    return FittedModel(study, posterior, diagnose(study.model, posterior, info, probes), state)


def record_shares(study: Study, contents: Contents) -> dict[str, float]:
    """Each client's share of all records, by what the clients say; empty where all count alike, or nobody says."""
    if not isinstance(study.method, Claims):
        return {}
    claims = {client: study.method.claim(content) for client, content in contents.items()}
    counts = {client: one.num_records for client, one in claims.items() if one.num_records and one.is_exact}
    total = sum(counts.values())
    return {client: count / total for client, count in counts.items()} if len(counts) == len(contents) else {}


@one_blas_thread()
def compare_clients(study: Study, contents: Contents) -> dict[str, Standing]:
    """How each client's message agrees with those of all others, by name: is one of them broken, or hostile?"""
    clients, method = sorted(contents), study.method
    if isinstance(method, Spectral):
        rows = dict[str, ReceivedRows](contents)
        if len(rows) > MANY_CLIENTS and all(len(one.sent) < one.dimension // 3 for one in rows.values()):
            return compare_rows(study.model.kind, rows)
        return leave_one_out(study.model.kind, clients, lambda client: contents[client].moments)
    if isinstance(method, Glm):
        return leave_one_out(study.model.kind, clients, lambda client: contents[client].linear)
    why = (
        "its points would need an inference for each client" if study.learner else "moments with noise are not compared"
    )
    return {
        client: Standing("cannot be told", f"this study cannot be looked at client by client: {why}")
        for client in clients
    }
