"""BPC-rKL: a pseudocoreset whose posterior is close to the data's in reverse KL, by a score-function estimator.

Kim et al., "On Divergence Measures for Bayesian Pseudocoresets", NeurIPS 2022 (section 3.1); Manousakas et al.,
"Bayesian Pseudocoresets", 2020. Symbols and settings are those of `bpc_fkl`.

The gradient of KL(q_C || p_D) in the points is -Cov_{q_C}[grad log p(C|theta), log p(D|theta) - log p(C|theta)]. It
uses samples around the ends of the coreset's own chains and a batch of records. The experts only give the chains their
starts.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from coreshot.config import settings
from coreshot.keys import named_key
from coreshot.learners.bpc_fkl import BpcFkl
from coreshot.learners.coreset_chains import flat_chain_ends, perturbed
from coreshot.models import Model
from coreshot.models.training import draw_batch
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.types import Params, Points, PRNGKey


@settings
class BpcRkl(BpcFkl):
    def releases(self, model: Model) -> tuple[Release, ...]:
        return *super().releases(model), Release(
            "likelihood", "how likely the records are, in batches, at every update"
        )

    def seen_data(self, records: Records) -> Points:
        return records.exact("likelihood")

    def gradient(
        self, key: PRNGKey, model: Model, points: Points, data: Points, networks: PyTree[Array], drawn: PyTree[Array]
    ) -> Points:
        (starts, _), (key_chain, key_noise, key_batch) = drawn, jax.random.split(key, 3)
        coreset_ends = flat_chain_ends(self, model, points, key_chain, starts)
        samples = perturbed(model, coreset_ends, key_noise, self.num_noise_samples, self.noise_scale)
        batch = model.augment(named_key(key, "augment data"), draw_batch(key_batch, data, self.batch_size))
        return self.scaled(reverse_kl_gradient(model, points, batch, samples))

    def gradient_passes(self, num_records: int) -> int:
        num_samples = self.num_trajectories * self.num_noise_samples
        return num_samples * (min(self.batch_size, num_records) + 2 * self.num_points)


def reverse_kl_gradient(model: Model, points: Points, data: Points, samples: Params) -> Points:
    """From weights drawn from q_C (leading axis: samples): the sample covariance, as centred weights times scores."""
    gap: Float[Array, " samples"] = model.each(
        lambda params: model.log_prob(params, data) - model.log_prob(params, points)
    )(samples)
    centred = jax.lax.stop_gradient(gap - jnp.mean(gap)) / (len(gap) - 1)

    def weighted_scores(points: Points) -> Float[Array, ""]:
        return -jnp.sum(centred * model.each(lambda params: model.log_prob(params, points))(samples))

    return jax.grad(weighted_scores)(points)
