"""A posterior as a safetensors file: samples of the weights, or a head's numbers. The study says what they mean."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jax.flatten_util import ravel_pytree

from coreshot.errors import CoreshotError
from coreshot.spectral.posterior import HeadPosterior, head_of
from coreshot.study import Study
from coreshot.types import Posterior


def posterior_bytes(posterior: Posterior | HeadPosterior) -> bytes:
    if isinstance(posterior, HeadPosterior):
        # Solvers give arrays whose columns lie together, and safetensors writes memory as it lies.
        return safetensors.numpy.save(
            {name: np.asarray(array, order="C") for name, array in posterior.arrays().items()}
        )
    flat = jax.vmap(lambda params: ravel_pytree(params)[0])(posterior.params)
    return safetensors.numpy.save({"params": np.asarray(flat)})


def posterior_of(study: Study, data: bytes, where: str) -> Posterior | HeadPosterior:
    try:
        arrays = safetensors.numpy.load(data)
        if "params" in arrays:
            unravel = ravel_pytree(study.model.init(jax.random.key(0)))[1]
            return Posterior(jax.vmap(unravel)(jnp.asarray(arrays["params"])))
        method: Any = study.method
        return head_of(method.map_of(study.model, study.shared_key), arrays)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CoreshotError(f"{where}: the posterior cannot be read ({error}); fit the model again.") from None
