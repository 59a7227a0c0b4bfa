"""The private spectral coreset: each client sends, once, its second moments with Gaussian noise, and nothing else.

Dwork et al., "Analyze Gauss: Optimal Bounds for Privacy-Preserving Principal Component Analysis", STOC 2014, for a
Bayesian linear head on the study's features (docs/spectral.md).

| paper            | here                                                            |
|------------------|-----------------------------------------------------------------|
| A^T A            | the Gram matrix; and the cross moments with the classes         |
| E                | `coreshot.privacy.gaussian_moments`, the one release            |
| post-processing  | `coreshot.spectral.private_posterior`                           |

The noise has full rank, so the whole matrix is sent and not a few rows of it. Rounded below the noise and coded, it
takes about six bits per number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from coreshot.config import settings
from coreshot.errors import CoreshotError
from coreshot.inference.protocol import Info
from coreshot.methods.noisy_sum import NoisySumMethod, NoisySumState, Part
from coreshot.methods.protocol import MethodCost, PointInference
from coreshot.models import Model
from coreshot.models.parallel import one_blas_thread
from coreshot.privacy.gaussian_moments import CROSS_UNIT, UNIT, deviations, noisy_moments, symmetric
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.releases import Release
from coreshot.spectral.features import AnyFeatures, UnitMap, unit_map
from coreshot.spectral.posterior import LinearPosterior
from coreshot.spectral.private_posterior import fit_private_posterior
from coreshot.types import Points, PRNGKey

STATISTICS = "statistics"
# Share of the privacy budget that the cross moments get. Chosen as the constants of `spectral.private_posterior` are.
CROSS_SHARE = 0.8
NOISE_OPERATIONS = 200  # for one number of noise, about: 128 random bits and the inverse normal distribution function


@dataclass(frozen=True)
class PrivateState(NoisySumState):
    """Sums of noisy moments, in units of the records."""

    @property
    def map(self) -> UnitMap:
        unit_map: UnitMap = self.public
        return unit_map

    @property
    def gram(self) -> Float[np.ndarray, "d d"]:
        return symmetric(self.totals[0][0], self.map.dimension)

    @property
    def cross(self) -> Float[np.ndarray, "d outputs"]:
        return self.totals[1].reshape(self.map.dimension, -1)


@settings
class PrivateSpectral(NoisySumMethod):
    kind: ClassVar[str] = "private_spectral"
    features: AnyFeatures

    def releases(self, model: Model) -> tuple[Release, ...]:
        content = "second moments of the records' features (of norm one) and classes, with Gaussian noise"
        return (
            Release(
                STATISTICS,
                content,
                "gaussian",
                1.0,
                self.noise_multiplier,
                delta=self.privacy.delta,
                num_sharers=self.num_sharers or 1,
            ),
        )

    def cost(self, model: Model, clients: Sequence[int]) -> MethodCost:
        """The server's eigenvectors take about ten of the Gram matrix's cubes."""
        size = self.features.dimension + 1
        record = self.features.operations(model.input_shape) + 2 * size * (size + model.num_outputs)
        return MethodCost(
            f"features and noisy second moments of {max(clients):,} records",
            [self.example_exchange(model, len(clients))] * len(clients),
            1.0,
            operations=sum(clients) * record + NOISE_OPERATIONS * len(clients) * size**2,
            server_operations=10 * size**3,
            num_bytes=8 * size * (max(clients) + size),
            kept_in="features and moments",
        )

    def draw_public(self, model: Model, shared_key: PRNGKey) -> UnitMap:
        return unit_map(self.features, shared_key, model.input_shape)

    def init(self, key: PRNGKey, model: Model, shared_key: PRNGKey) -> PrivateState:
        if model.kind != "classification":
            raise CoreshotError(
                "private_spectral: its label rows are one-hot classes, and regression has none; "
                "use a classification study."
            )
        return PrivateState(self.draw_public(model, shared_key), self.begin_sums(model))

    def parts(self, model: Model) -> tuple[Part, ...]:
        size = self.features.dimension + 1
        noise = deviations(self.noise_multiplier, CROSS_SHARE, self.noise_share)
        return (
            Part("gram", (1, size * (size + 1) // 2), UNIT**2, noise.off_diagonal),
            Part("cross", (1, size * model.num_outputs), CROSS_UNIT, noise.cross),
        )

    def noisy_statistics(self, model: Model, public: UnitMap, records: Records) -> tuple[Int[np.ndarray, "1 _"], ...]:
        noisy = noisy_moments(records, STATISTICS, lambda points: moment_rows(public, points), CROSS_SHARE)
        return noisy.gram.reshape(1, -1), noisy.cross.reshape(1, -1)

    @one_blas_thread()
    def posterior(
        self, key: PRNGKey, model: Model, state: PrivateState, inference: PointInference | None = None
    ) -> tuple[LinearPosterior, Info]:
        noise = deviations(self.noise_multiplier, CROSS_SHARE, len(state.clients) * self.noise_share)
        return fit_private_posterior(state.map, state.gram, state.cross, noise), {}

    def adapt(
        self, model: Model, state: PrivateState, posterior: LinearPosterior, points: Points
    ) -> tuple[LinearPosterior, float]:
        """Without noise: what comes out stays at the site."""
        return posterior.adapted_to(points)

    def load_posterior(self, model: Model, shared_key: PRNGKey, arrays: Mapping[str, np.ndarray]) -> LinearPosterior:
        return LinearPosterior.from_arrays(self.draw_public(model, shared_key), arrays)


def moment_rows(unit_map: UnitMap, points: Points) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n outputs"]]:
    """Feature rows and label rows of the records, without padding."""
    present = np.asarray(points.weight) > 0
    return unit_map(np.asarray(points.x)[present]), np.asarray(points.y)[present]
