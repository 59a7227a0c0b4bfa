"""A model as a place sees it that is none of its clients: it does not know how it differs from them, only how much they
differ from one another."""

from __future__ import annotations

from dataclasses import replace

from coreshot.errors import CoreshotError
from coreshot.fitted.model import FittedModel
from coreshot.glm.posterior import as_glm


def at_new_place(model: FittedModel) -> FittedModel:
    posterior = as_glm(model.posterior)
    if posterior is None:
        raise CoreshotError("--new-site: only a study of the method glm says how its clients differ; leave it away.")
    return replace(model, posterior=posterior.at_new_site())
