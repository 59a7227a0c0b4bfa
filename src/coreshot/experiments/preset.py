"""A preset: one TOML file per table or figure. Task, model, learners, inferences, and the arms that combine them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from coreshot.config import (
    Count,
    NonNegative,
    NonNegativeInt,
    Positive,
    choose,
    decode,
    decode_named,
    encode,
    has_setting,
    parse_assignment,
    settings,
)
from coreshot.data import TASKS
from coreshot.errors import CoreshotError, check_text
from coreshot.inference.protocol import Inference
from coreshot.inference.registry import INFERENCES
from coreshot.learners import LEARNERS, Learner
from coreshot.methods import METHODS, OneShot
from coreshot.methods.protocol import Method, MultiRound, Weighting
from coreshot.models import Model
from coreshot.models.networks import NETWORKS, Network
from coreshot.privacy.accounting import Privacy, compute_epsilon
from coreshot.privacy.releases import Release
from coreshot.study import Agreement, Study


@settings
class Arm:
    """A learner with an inference and a weighting; or a method of its own; or both: a jump start."""

    label: str
    learner: str | None = None
    inference: str | None = None
    weighting: Weighting | None = None
    method: str | None = None
    num_clients: Count | None = None  # only the task's first so many take part; all by default

    @property
    def slug(self) -> str:
        """The name of its folder."""
        return re.sub(r"[^a-z0-9]+", "-", self.label.lower()).strip("-")


@settings
class Sweep:
    """A grid search: every combination of the values, for one arm, on seeds that no table reports."""

    arm: str
    seeds: Annotated[tuple[int, ...], Field(min_length=1)]
    metric: Literal["accuracy", "nll", "rmse"]
    grid: Annotated[
        dict[str, Annotated[tuple[int | float, ...], Field(min_length=1)]], Field(min_length=1)
    ]  # dotted paths, as for --set, and their values


@settings
class Outline:
    """The top level of a preset file."""

    title: str
    task: dict[str, Any]
    network: dict[str, Any]
    learner: dict[str, dict[str, Any]]
    inference: dict[str, dict[str, Any]]
    arm: tuple[Arm, ...]
    method: dict[str, dict[str, Any]] = Field(default_factory=dict)
    privacy: Privacy | None = None  # of all that a client sends in an arm; in a jump start, of both halves together
    sweep: Sweep | None = None
    match: str | None = None  # the arm whose quality others must reach; None: no table of communication
    # Arms that figures show first. A preset may inherit labels from its base that it has no arm for; they are skipped.
    highlight: tuple[str, ...] = ()
    evaluate_every: Count = 1  # rounds between two points of a convergence curve
    prior_precision: NonNegative
    noise_scale: Positive = 1.0  # of the Gaussian likelihood
    max_shift: NonNegativeInt = 0  # augmentation of every arm: random shifts of images in training, in pixels
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Preset:
    name: str
    title: str
    task: Any
    network: Network
    prior_precision: float
    noise_scale: float
    max_shift: int
    learners: dict[str, Learner]
    inferences: dict[str, Inference]
    methods: dict[str, Method]
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    sweep: Sweep | None
    match: str | None
    highlight: tuple[str, ...]
    evaluate_every: int
    resolved: dict[str, Any]  # the plain values it was made from, overrides included

    def study(
        self, learner: str, seed: int = 0, input_shape: tuple[int, ...] | None = None, num_outputs: int | None = None
    ) -> Study:
        """The agreement of one learner and one seed; shapes may be given for data other than the task's."""
        chosen = choose("learner", learner, self.learners, f"preset {self.name}")
        return Study(self.agreement(seed, input_shape, num_outputs), self.network, OneShot(learner=chosen))

    @property
    def model(self) -> Model:
        return self.agreement().model(self.network)

    def arm_releases(self, arm: Arm) -> tuple[Release, ...]:
        """All that a client releases in this arm: in a jump start, the one shot and then the rounds."""
        parts: list[Method] = [OneShot(learner=self.learners[arm.learner])] if arm.learner is not None else []
        parts += [self.methods[arm.method]] if arm.method is not None else []
        return tuple(release for part in parts for release in part.releases(self.model))

    def method_study(self, method: str, seed: int = 0) -> Study:
        return Study(
            self.agreement(seed), self.network, method=choose("method", method, self.methods, f"preset {self.name}")
        )

    def agreement(
        self, seed: int = 0, input_shape: tuple[int, ...] | None = None, num_outputs: int | None = None
    ) -> Agreement:
        return Agreement(
            task=self.name,
            kind=self.task.kind,
            input_shape=input_shape or self.task.input_shape,
            num_outputs=num_outputs or self.task.num_outputs,
            prior_precision=self.prior_precision,
            noise_scale=self.noise_scale,
            max_shift=self.max_shift,
            seed=seed,
        )


def preset_names() -> list[str]:
    return sorted(path.name.removesuffix(".toml") for path in _folder().iterdir() if path.name.endswith(".toml"))


def load_preset(name: str, overrides: Sequence[str] = ()) -> Preset:
    """A preset: a task, learners, methods and inferences, and the arms that combine them.

    Parameters
    ----------
    name : str
        A name from `coreshot list`, or the path of a TOML file.
    overrides : sequence of str
        Changes such as "learner.bpc.num_updates=50", in TOML's notation.

    Examples
    --------
    >>> [arm.label for arm in load_preset("demo_moons").arms]
    ['BPC-FL + HMC', 'pooled + HMC']
    """
    values = _read(name)
    for override in overrides:
        _override(values, override)
    return build_preset(Path(name).stem, values)


def _read(name: str) -> dict[str, Any]:
    """Read a preset; one that names a `base` is that preset with its own values merged over it, table by table.

    A preset that comes with coreshot has a base without a base, so two files tell everything about it. A user's own
    file may name any preset that comes with coreshot.
    """
    values = _read_file(name)
    base = values.pop("base", None)
    if base is None:
        return values
    if base not in preset_names() or base == name:
        raise CoreshotError(
            f"preset {name}: base {base!r} is not a preset that comes with coreshot; "
            f"use one of {', '.join(preset_names())}."
        )
    if not name.endswith(".toml") and "base" in (below := _read_file(base)):
        raise CoreshotError(
            f"preset {name}: its base {base!r} has a base itself, {below['base']!r}; "
            "a base is one step away, so name a preset without one."
        )
    below = _read(base)
    if "arm" in values and "match" not in values:  # arms of its own: the base's `match` may name none of them
        below = {key: value for key, value in below.items() if key != "match" or _has_arm(values, value)}
    return _laid_over(below, values)


def _has_arm(values: Mapping[str, Any], label: str) -> bool:
    return any(arm.get("label") == label for arm in values["arm"])


def _read_file(name: str) -> dict[str, Any]:
    """The values of one file, by the name of a preset or by path, without its base."""
    path: Any = Path(name)
    if path.suffix != ".toml":
        path = choose("preset", name, {known: _folder() / f"{known}.toml" for known in preset_names()}, "coreshot")
    elif not path.is_file():
        raise CoreshotError(
            f"preset {name}: there is no such file; "
            f"give the path of a TOML file, or one of {', '.join(preset_names())}."
        )
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CoreshotError(f"preset {name}: not valid TOML ({error}); mend that line.") from None


def _laid_over(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        # A table with another `name` (another task, another network) replaces the old one, whose keys it does not have.
        is_change = (
            isinstance(value, Mapping)
            and isinstance(old, dict)
            and value.get("name", old.get("name")) == old.get("name")
        )
        merged[key] = _laid_over(merged[key], value) if is_change else value
    return merged


def build_preset(name: str, values: Mapping[str, Any]) -> Preset:
    where = f"preset {name}"
    check_text(values, where)
    outline = decode(Outline, values, where)
    learners = {
        key: decode_named(
            LEARNERS, _private(LEARNERS, item, outline.privacy, where), f"{where}, learner.{key}", "learner"
        )
        for key, item in outline.learner.items()
    }
    inferences = {
        key: decode_named(INFERENCES, item, f"{where}, inference.{key}", "inference")
        for key, item in outline.inference.items()
    }
    methods = {
        key: decode_named(METHODS, _private(METHODS, item, outline.privacy, where), f"{where}, method.{key}", "method")
        for key, item in outline.method.items()
    }
    for arm in outline.arm:
        _check_arm(arm, learners, inferences, methods, f"{where}, arm {arm.label!r}")
        if outline.privacy is not None:
            _check_private(arm, learners, methods, f"{where}, arm {arm.label!r}")
    labels = [arm.label for arm in outline.arm]
    if outline.match is not None:
        choose("arm", outline.match, dict.fromkeys(labels), f"{where}, match")
    slugs = [arm.slug for arm in outline.arm]
    for arm in outline.arm:
        if slugs.count(arm.slug) > 1:
            raise CoreshotError(
                f"{where}: two arms are labelled {arm.label!r}, or differ from it in signs only; "
                "give each a label of its own."
            )
    if not outline.seeds or min(outline.seeds) < 0 or len(set(outline.seeds)) < len(outline.seeds):
        raise CoreshotError(
            f"{where}: seeds = {list(outline.seeds)}: seeds are different whole numbers of at least 0; change it."
        )
    preset = Preset(
        name=name,
        title=outline.title,
        task=decode_named(TASKS, outline.task, f"{where}, task", "task"),
        network=decode_named(NETWORKS, outline.network, f"{where}, network", "network"),
        prior_precision=outline.prior_precision,
        noise_scale=outline.noise_scale,
        max_shift=outline.max_shift,
        learners=learners,
        inferences=inferences,
        methods=methods,
        arms=outline.arm,
        seeds=outline.seeds,
        sweep=outline.sweep,
        match=outline.match,
        highlight=outline.highlight,
        evaluate_every=outline.evaluate_every,
        resolved=dict(values),
    )
    if outline.privacy is not None:
        _check_jump_starts(preset, outline.privacy)
    return preset


def _private(
    registry: Mapping[str, type[Any]], item: Mapping[str, Any], privacy: Privacy | None, where: str
) -> Mapping[str, Any]:
    """These settings with the preset's [privacy], where what they name has that setting. A part may promise more, as
    the halves of a jump start must, which share the promise."""
    if privacy is None or not has_setting(registry, item.get("name"), "privacy"):
        return item
    own = decode(Privacy, item["privacy"], f"{where}, privacy of {item['name']!r}") if "privacy" in item else privacy
    if own.epsilon > privacy.epsilon or own.delta > privacy.delta:
        raise CoreshotError(
            f"{where}: [privacy] and the privacy of {item.get('name')!r} are not the same, and its own promises less; "
            "keep one of them."
        )
    return {**item, "privacy": encode(own)}


def _check_jump_starts(preset: Preset, privacy: Privacy) -> None:
    """A client of a jump start sends twice, and the two releases compose."""
    for arm in preset.arms:
        if arm.learner is None or arm.method is None:
            continue
        epsilon = compute_epsilon(preset.arm_releases(arm), privacy.delta)
        if epsilon > privacy.epsilon * 1.001:
            raise CoreshotError(
                f"preset {preset.name}, arm {arm.label!r}: its two halves together have epsilon {epsilon:.3g} at delta "
                f"{privacy.delta:g}, and [privacy] promises {privacy.epsilon:g}; give learner {arm.learner!r} and "
                f"method {arm.method!r} smaller ones of their own (privacy = {{ epsilon = ..., delta = ... }})."
            )


def _check_private(arm: Arm, learners: Mapping[str, Learner], methods: Mapping[str, Method], where: str) -> None:
    """A preset's [privacy] must hold for every arm."""
    for what, name, parts in (("learner", arm.learner, learners), ("method", arm.method, methods)):
        if name is not None and not has_setting({name: type(parts[name])}, name, "privacy"):
            raise CoreshotError(
                f"{where}: the preset has a [privacy] table, but {what} {name!r} keeps no promise; "
                "use a private one, or remove it."
            )


def _check_arm(
    arm: Arm,
    learners: Mapping[str, Learner],
    inferences: Mapping[str, Inference],
    methods: Mapping[str, Method],
    where: str,
) -> None:
    one_shot = (arm.learner, arm.inference, arm.weighting)
    if any(part is None for part in one_shot) and (arm.method is None or any(part is not None for part in one_shot)):
        raise CoreshotError(
            f"{where}: an arm has learner, inference and weighting, or a method, or all four (a jump start); "
            "add what is missing."
        )
    if arm.learner is not None:
        choose("learner", arm.learner, learners, where)
        choose("inference", arm.inference, inferences, where)
    if arm.method is not None:
        method = choose("method", arm.method, methods, where)
        if isinstance(method, OneShot):
            raise CoreshotError(
                f"{where}: method {arm.method!r} is one_shot; name its learner, an inference and a weighting."
            )
        if arm.learner is not None and not isinstance(method, MultiRound):
            raise CoreshotError(
                f"{where}: method {arm.method!r} is one-shot and cannot start from given weights; "
                "name a multi-round method."
            )
        if arm.inference is not None and (num := _num_samples(inferences[arm.inference])) > 1:
            raise CoreshotError(
                f"{where}: a jump start begins at one set of weights, and inference {arm.inference!r} gives {num} "
                "samples; name a MAP estimate of one chain."
            )


def _num_samples(inference: Inference) -> int:
    return inference.num_chains * inference.num_samples


def _folder() -> Any:
    return resources.files("coreshot") / "presets"


def _override(values: dict[str, Any], override: str) -> None:
    path, value = parse_assignment(override)
    *parents, last = path.split(".")
    node: Any = values
    for depth, part in enumerate(parents):
        node = _child(node, part, override, ".".join(parents[: depth + 1]))
    if isinstance(node, list):
        _child(node, last, override, path)
        node[int(last)] = value
    elif isinstance(node, dict):
        node[last] = value
    else:
        raise CoreshotError(f"--set {override}: {'.'.join(parents)} is a value, not a table; name a key of the preset.")


def _child(node: Any, part: str, override: str, path: str) -> Any:
    if isinstance(node, list):
        if part.isdigit() and int(part) < len(node):
            return node[int(part)]
        raise CoreshotError(f"--set {override}: {path} does not exist; the list has positions 0 to {len(node) - 1}.")
    return choose("key", part, node if isinstance(node, dict) else {}, f"--set {override}")
