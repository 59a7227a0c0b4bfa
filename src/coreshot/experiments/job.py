"""A job: one arm of a preset with one seed. It becomes one row of results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import jax

from coreshot.data import FederatedData
from coreshot.errors import CoreshotError
from coreshot.experiments.preset import Arm, Preset
from coreshot.methods.protocol import PointInference
from coreshot.models import Model
from coreshot.study import Study


@dataclass(frozen=True)
class Job:
    preset: Preset
    arm: Arm
    seed: int

    @property
    def folder(self) -> Path:
        return Path("arms") / self.preset.name / self.arm.slug / f"seed-{self.seed}"

    @property
    def study(self) -> Study:
        """Of the one-shot part."""
        return self.preset.study(str(self.arm.learner), self.seed)

    @property
    def point_inference(self) -> PointInference:
        """How the server infers in the one-shot part."""
        return PointInference(self.preset.inferences[str(self.arm.inference)], self.arm.weighting or "mass")

    @property
    def method_study(self) -> Study:
        """Of the arm's own method, which in a jump start comes after the one shot."""
        return self.preset.method_study(str(self.arm.method), self.seed)

    @property
    def model(self) -> Model:
        return self.preset.model

    @property
    def key(self) -> jax.Array:
        return jax.random.key(self.seed)

    def data(self) -> FederatedData:
        """The task's, with the clients that take part in this arm."""
        data: FederatedData = self.preset.task.make(self.seed)
        limit = self.arm.num_clients
        if limit is not None and limit > len(data.clients):
            raise CoreshotError(
                f"preset {self.preset.name}, arm {self.arm.label!r}: num_clients is {limit}, "
                f"but the task has {len(data.clients)} clients; lower it."
            )
        return replace(data, clients=dict(list(data.clients.items())[:limit]))


def make_jobs(presets: Sequence[Preset], seeds: Sequence[int] | None) -> list[Job]:
    return [Job(preset, arm, seed) for preset in presets for seed in (seeds or preset.seeds) for arm in preset.arms]
