"""A federation's model fitted to the place where it is used, from this place's own records or its class shares.

With labels, the federation's posterior is the prior and the site's records are the likelihood (`glm.personal`,
`spectral.personal`). Without labels, or with known shares of classes, only the base rates change (`glm.base_rates`).
Nothing leaves the site. A client whose records are adapted to is taken out of the model first, else they count twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from coreshot.data.validate import check_points
from coreshot.errors import CoreshotError
from coreshot.fitted.base_rate_posterior import BaseRatePosterior
from coreshot.fitted.model import Contents, FittedModel
from coreshot.fitted.survival import refuse_survival
from coreshot.glm.base_rate_trial import Trial, try_at_sites
from coreshot.glm.base_rates import LEAST_INFORMATION, Shares, balance_to_shares, estimate_shares, known_shares
from coreshot.glm.received import find_filling
from coreshot.methods.glm import Glm
from coreshot.methods.one_shot import OneShot
from coreshot.methods.protocol import Adapts
from coreshot.methods.spectral import Spectral
from coreshot.models.parallel import one_blas_thread
from coreshot.spectral.calibration import class_sums
from coreshot.study import Study
from coreshot.types import make_points

FEWEST_RECORDS = 5  # with labels; fewer tell nothing
MEAN_TOLERANCE = 1e-5  # by which a client's own means of inputs may differ from a file's, in float32


@dataclass(frozen=True)
class Adapted:
    """The model, and what was done: numbers for its folder, and sentences."""

    model: FittedModel
    facts: dict[str, Any]
    words: tuple[str, ...]


@one_blas_thread()
def adapt_to_records(model: FittedModel, x: Any, y: Any) -> Adapted:
    """`model` is that of the other sites, with its state: fitted here, not read from a file."""
    terms = model.study.agreement
    points = check_points(
        x, y, kind=terms.kind, input_shape=terms.input_shape, num_outputs=terms.num_outputs, client="these records"
    )
    if len(points.x) < FEWEST_RECORDS:
        raise CoreshotError(
            f"adapt: {len(points.x)} records with labels tell too little; give at least {FEWEST_RECORDS}, "
            "or the shares of classes by --share."
        )
    method = model.study.method
    if not isinstance(method, Adapts):
        raise CoreshotError(
            "adapt: a model of points has no posterior in closed form that a site's records could be added to; "
            "use --unlabelled or --share, or a study of the method glm or spectral."
        )
    local, own = method.adapt(model.study.model, model.state, model.posterior, points)
    facts = {"way": "records", "records": len(points.x), "own": round(own, 4)}
    words = (
        f"fitted to {len(points.x):,} records of this site, by a mixture of models: {1 - own:.0%} of the weight is on "
        f"models that start from what the federation says, {own:.0%} on models of these records alone",
    )
    return Adapted(replace(model, posterior=local, state=None), facts, words)


@one_blas_thread()
def adapt_to_unlabelled(model: FittedModel, contents: Contents, x: Any) -> Adapted:
    """Base rates by expectation maximisation; a CoreshotError where the model, or the sites, do not bear it out."""
    shares = federation_shares(model, contents)
    said = np.asarray(model.predict(x).mean, np.float64)
    rates = estimate_shares(said, shares)
    if rates.information < LEAST_INFORMATION:
        raise CoreshotError(
            f"adapt --unlabelled: the model tells the classes of these {len(said):,} records too badly to say how "
            f"often each is there (information {rates.information:.1f}, at least {LEAST_INFORMATION:g} is needed); "
            "give more records, or the shares by --share."
        )
    trial = _trial(model, contents)
    if trial is not None and trial.trust == 0:
        worst = f" (one of them by {np.max(trial.changes[:, -1]):.2f} nats)" if len(trial.changes) else ""
        raise CoreshotError(
            "adapt --unlabelled: shares estimated in this way would have made the predictions at the clients' own "
            f"places worse{worst}, because they differ in more than their shares; "
            "give the shares by --share, or records with labels."
        )
    trust = 1.0 if trial is None else trial.trust
    log_ratios = rates.scaled(trust)
    there = shares * np.exp(log_ratios)
    there /= np.sum(there)
    tested = (
        "whether the clients' places differ in more than their shares was not tested for this kind of study"
        if trial is None
        else f"of the correction {trust:.0%} is applied: what was best, in a trial, at the clients' own places"
    )
    facts = {"way": "unlabelled", "records": len(said), "trust": trust, "shares": _named(model.study, there)}
    return Adapted(_with_ratios(model, log_ratios), facts, (_share_words(model.study, shares, there), tested))


@one_blas_thread()
def adapt_to_shares(model: FittedModel, contents: Contents, given: Mapping[str, float], x: Any = None) -> Adapted:
    """Shares that are known. With records, their mean probabilities become these shares."""
    shares = federation_shares(model, contents)
    there = complete_shares(model.study, shares, given)
    if x is None:
        log_ratios = known_shares(shares, there)
    else:
        said = np.asarray(model.predict(x).mean, np.float64)
        log_ratios = balance_to_shares(np.log(np.maximum(said, 1e-12)), there)
    facts = {"way": "share", "records": 0 if x is None else len(x), "shares": _named(model.study, there)}
    return Adapted(_with_ratios(model, log_ratios), facts, (_share_words(model.study, shares, there),))


def complete_shares(study: Study, shares: Shares, given: Mapping[str, float]) -> Shares:
    """Classes that are not given share what is left as they do in the federation."""
    names = _class_names(study)
    for name, value in given.items():
        if name not in names:
            raise CoreshotError(f"--share {name}={value:g}: there is no class {name!r}; there are {', '.join(names)}.")
        if not 0 < value < 1:
            raise CoreshotError(f"--share {name}={value:g}: a share is between 0 and 1, both excluded; change it.")
    left, others = 1 - sum(given.values()), [entry for entry, name in enumerate(names) if name not in given]
    if (others and left <= 0) or (not others and abs(left) > 1e-6):
        raise CoreshotError(f"--share: the shares add up to {sum(given.values()):g}, not to 1; change them.")
    found = np.asarray([given.get(name, 0.0) for name in names])
    found[others] = left * shares[others] / np.sum(shares[others]) if others else 0.0
    return found


def federation_shares(model: FittedModel, contents: Contents) -> Shares:
    """Of all the clients' records."""
    study = model.study
    refuse_survival(study, "adapt", "which has no shares of classes to correct; give records with times.")
    if study.agreement.kind == "regression":
        raise CoreshotError("adapt: this study predicts a number and has no classes; give records with targets.")
    if isinstance(study.method, Spectral):
        sizes = sum(class_sums(one)[-1] for one in contents.values())
    elif isinstance(study.method, Glm):
        sizes = sum(class_sums(one.linear)[-1] for one in contents.values())
    elif isinstance(study.method, OneShot):
        sizes = sum(_point_classes(one) for one in contents.values())
    else:
        raise CoreshotError(
            "adapt: what the clients of this study send does not say how often classes are; give records with labels."
        )
    found = np.maximum(np.asarray(sizes, np.float64), 1e-6)
    return found / np.sum(found)


def _point_classes(coreset: Any) -> Float[np.ndarray, " classes"]:
    weight = np.asarray(coreset.points.weight, np.float64)
    classes = weight @ np.asarray(coreset.points.y, np.float64)
    return float(coreset.num_examples) * classes / max(float(np.sum(weight)), 1e-12)


def find_client(study: Study, contents: Contents, x: Any) -> str | None:
    """The client whose message was made of these very records, by the means of its inputs; of glm."""
    if not isinstance(study.method, Glm):
        return None
    terms = study.agreement
    labels = np.zeros((len(x), terms.num_outputs), np.float32)
    center = study.method.prepared_records(make_points(x, labels))[0].center_and_scale()[0]
    for client, content in contents.items():
        if abs(content.num_examples - len(x)) < 0.5 and np.allclose(
            content.center, center, rtol=0, atol=MEAN_TOLERANCE
        ):
            return str(client)
    return None


def _trial(model: FittedModel, contents: Contents) -> Trial | None:
    method = model.study.method
    if not isinstance(method, Glm):
        return None
    polynomials, filling = method.polynomials(model.study.model), find_filling(contents, method.fills)
    return try_at_sites(polynomials, [contents[name].summary(polynomials, filling) for name in sorted(contents)])


def _with_ratios(model: FittedModel, log_ratios: Shares) -> FittedModel:
    return replace(model, posterior=BaseRatePosterior(model.posterior, log_ratios), state=None)


def _class_names(study: Study) -> list[str]:
    classes = getattr(study.target, "classes", None)
    return list(classes) if classes else [str(entry) for entry in range(study.agreement.num_outputs)]


def _named(study: Study, shares: Shares) -> dict[str, float]:
    return {name: round(float(share), 4) for name, share in zip(_class_names(study), shares, strict=True)}


def _share_words(study: Study, before: Shares, there: Shares) -> str:
    rows = zip(_class_names(study), before, there, strict=True)
    return "shares of classes: " + ", ".join(f"{name} {new:.1%} (federation {old:.1%})" for name, old, new in rows)
