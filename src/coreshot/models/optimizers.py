"""An optimiser as settings: named in a preset, built by optax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import optax
from pydantic import Field

from coreshot.config import NonNegative, Positive, settings
from coreshot.errors import CoreshotError

Fraction = Annotated[float, Field(ge=0, lt=1)]


@settings
class Optimizer:
    """One of optax's, by name; a line in BUILDERS adds another."""

    name: Literal["adagrad", "adam", "adamw", "rmsprop", "sgd", "yogi"]
    step_size: Positive
    momentum: Fraction = 0.0  # of sgd and rmsprop
    b1: Fraction = 0.9  # of adam, adamw and yogi
    b2: Fraction = 0.999
    eps: NonNegative = 1e-8

    def __post_init__(self) -> None:
        if self.momentum and self.name not in ("rmsprop", "sgd"):
            raise CoreshotError(
                f"optimizer {self.name}: has no momentum setting (it is of sgd and rmsprop); remove momentum = {self.momentum}."
            )

    def build(self) -> optax.GradientTransformation:
        return BUILDERS[self.name](self)


BUILDERS: dict[str, Callable[[Optimizer], optax.GradientTransformation]] = {
    "adagrad": lambda own: optax.adagrad(own.step_size),
    "adam": lambda own: optax.adam(own.step_size, own.b1, own.b2, own.eps),
    "adamw": lambda own: optax.adamw(own.step_size, own.b1, own.b2, own.eps),
    "rmsprop": lambda own: optax.rmsprop(own.step_size, eps=own.eps, momentum=own.momentum or None),
    "sgd": lambda own: optax.sgd(own.step_size, own.momentum or None),
    "yogi": lambda own: optax.yogi(own.step_size, own.b1, own.b2, own.eps),
}
