"""A posterior of samples of the weights; a MAP estimate is a posterior with one sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from coreshot.errors import CoreshotError
from coreshot.models import Model
from coreshot.models.onnx_graph import Graph, Outputs
from coreshot.models.onnx_networks import add_networks
from coreshot.types import Params, Points, Predictive


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SamplePosterior:
    """Samples of the model's weights along a leading axis."""

    model: Model = field(metadata={"static": True})
    params: Params

    @classmethod
    def single(cls, model: Model, params: Params) -> SamplePosterior:
        """A point estimate: one sample."""
        return cls(model, jax.tree.map(lambda leaf: leaf[None], params))

    @classmethod
    def from_arrays(cls, model: Model, arrays: Mapping[str, np.ndarray]) -> SamplePosterior:
        """The inverse of `arrays`."""
        unravel = ravel_pytree(model.init(jax.random.key(0)))[1]
        return cls(model, jax.vmap(unravel)(jnp.asarray(arrays["params"])))

    @property
    def num_samples(self) -> int:
        return jax.tree.leaves(self.params)[0].shape[0]

    @property
    def is_point_estimate(self) -> bool:
        return self.num_samples == 1

    def predict(self, x: Float[Array | np.ndarray, "n ..."]) -> Predictive:
        """The average over the samples, and their spread."""
        return _average(self.model, self.params, jnp.asarray(x))

    def add_to_graph(self, graph: Graph, x: str) -> Outputs:
        """The average over samples, of networks of dense layers."""
        outputs = add_networks(graph, self.model, self.params, x)  # samples, records, outputs
        if self.model.kind == "classification":
            return {
                "probabilities": graph.add("ReduceMean", graph.add("Softmax", outputs, axis=2), axes=[0], keepdims=0)
            }
        mean = graph.add("ReduceMean", outputs, axes=[0], keepdims=0)
        moved = graph.add("Sub", outputs, mean)
        spread = graph.add("ReduceMean", graph.add("Mul", moved, moved), axes=[0], keepdims=0)
        noise = graph.constant(self.model.noise_scale**2)
        return {"mean": mean, "deviation": graph.add("Sqrt", graph.add("Add", spread, noise))}

    def log_predictive(self, points: Points) -> Float[Array, " n"]:
        return _log_average(self.model, self.params, self.num_samples, points)

    def sample_outputs(self, x: Float[Array | np.ndarray, "n ..."]) -> Float[Array, "samples n outputs"]:
        inputs = jnp.asarray(x)
        return self.model.each(lambda params: self.model.apply(params, inputs))(self.params)

    def novelty(self, x: Float[Array | np.ndarray, "n ..."]) -> Float[np.ndarray, " n"]:
        raise CoreshotError("novelty: only a spectral study has it; look at predict(x).epistemic.")

    def usual_novelty(self) -> None:
        """None: samples of weights do not say where the clients' records are."""

    def arrays(self) -> dict[str, np.ndarray]:
        flat = jax.vmap(lambda params: ravel_pytree(params)[0])(self.params)
        return {"params": np.asarray(flat)}


@partial(jax.jit, static_argnums=0)
def _average(model: Model, params: Params, x: Float[Array, "n ..."]) -> Predictive:
    outputs = model.each(lambda params: model.apply(params, x))(params)
    if model.kind == "regression":
        return Predictive(outputs.mean(0), outputs.std(0), jnp.full_like(outputs[0], model.noise_scale))
    probabilities = jax.nn.softmax(outputs)
    within = jnp.mean(probabilities * (1 - probabilities), axis=0)
    return Predictive(probabilities.mean(0), probabilities.std(0), jnp.sqrt(within))


@partial(jax.jit, static_argnums=(0, 2))
def _log_average(model: Model, params: Params, num_samples: int, points: Points) -> Float[Array, " n"]:
    each = model.each(lambda params: model.log_prob_each(model.apply(params, points.x), points.y))(params)
    return jax.scipy.special.logsumexp(each, axis=0) - jnp.log(num_samples)
