"""A posterior as a safetensors file. The study's method says what its arrays mean."""

from __future__ import annotations

import numpy as np
import safetensors
import safetensors.numpy

from coreshot.errors import CoreshotError
from coreshot.fitted.base_rate_posterior import ARRAY, BaseRatePosterior
from coreshot.study import Study
from coreshot.types import Posterior


def posterior_bytes(posterior: Posterior) -> bytes:
    # Solvers give arrays whose columns lie together, and safetensors writes memory as it lies.
    return safetensors.numpy.save({name: np.asarray(array, order="C") for name, array in posterior.arrays().items()})


def read_posterior(study: Study, data: bytes, where: str) -> Posterior:
    try:
        arrays = safetensors.numpy.load(data)
        log_ratios = arrays.pop(ARRAY, None)
        inner = study.method.load_posterior(study.model, study.shared_key, arrays)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CoreshotError(f"{where}: the posterior cannot be read ({error}); fit the model again.") from None
    return inner if log_ratios is None else BaseRatePosterior(inner, log_ratios)
