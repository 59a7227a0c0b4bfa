"""Ten sites with handwritten digits (scikit-learn's): one file from each, beside FedAvg, pooling, each site alone."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from coreshot.api import distill
from coreshot.data.federated import FederatedData
from coreshot.experiments.preset import Preset, load_preset
from coreshot.fitted.metrics import Metrics, metrics, sums
from coreshot.fitted.model import FittedModel, fit
from coreshot.methods.spectral import Spectral
from coreshot.privacy.promise import promise, promised_epsilon
from coreshot.progress import Progress
from coreshot.report.drawing import Drawing
from coreshot.report.story_figures import draw_quality, draw_what_leaves
from coreshot.report.tables import NO_VALUE, Grid
from coreshot.report.units import format_bytes
from coreshot.runtime.simulate import simulate
from coreshot.study import Study
from coreshot.types import Points
from coreshot.wire.ledger import Ledger
from coreshot.wire.messages import decode_message

SEED = 0
UNLIMITED = 10**9  # bytes: all that the method has to say
FILE_BYTES = 8_000  # so that all files are smaller than all images of one byte a pixel
NUM_ROUNDS = 100  # of FedAvg, as in the preset `digits`
PRIVATE = {"own_8": "each site adds noise of its own", "own_3": "the same, a stricter promise"}


@dataclass(frozen=True)
class Quality:
    """A line of the comparison."""

    name: str
    found: Metrics
    sent: float | None  # bytes of all sites and the server together; None: nothing is sent

    def cells(self) -> list[str]:
        parts = [getattr(self.found, name) for name in ("accuracy", "nll", "ece")]
        sent = NO_VALUE if self.sent is None else format_bytes(self.sent)
        return [self.name, *(NO_VALUE if one is None else f"{one:.3f}" for one in parts), sent]


@dataclass(frozen=True)
class DigitsStory:
    """What the first part of the page tells."""

    num_sites: int
    num_records: int
    num_test: int
    sites: Grid
    file_bytes: int  # of all sites
    raw_bytes: int  # of all images, a byte for each pixel
    packed_bytes: int  # the same, as numpy packs an npz file
    promise: str
    lines: list[Quality]
    alone: tuple[float, float]  # the worst and the best site
    leaves: Drawing
    quality: Drawing
    late: dict[str, Any]
    private: list[dict[str, Any]]


def tell_digits(progress: Progress) -> DigitsStory:
    preset = load_preset("spectral_digits", [f"method.spectral.max_bytes={FILE_BYTES}"])
    data = preset.task.make(SEED)
    study = preset.method_study("spectral", SEED)
    progress.begin("digits: ten sites make one file each, the server fits", 2)
    messages = _messages(study, data.clients)
    model = fit(study, messages.values())
    progress.advance()
    ours = Quality("coreshot, one file a site", _evaluate(model, data.test), sum(map(len, messages.values())))
    alone = [_evaluate(fit(study, [message]), data.test) for message in messages.values()]
    everything = load_preset("spectral_digits", [f"method.spectral.max_bytes={UNLIMITED}"]).method_study(
        "spectral", SEED
    )
    together = fit(everything, _messages(everything, _pool(data.clients)).values())
    progress.end()
    late = _late_and_forgotten(study, messages, model, data)
    raw = sum(points.num_points * (points.x[0].size + 1) for points in data.clients.values())
    lines = [
        ours,
        fed_avg(data.clients, data.test, progress),
        pooled_network(preset, data.clients, data.test, progress),
        Quality("all images in one place, the same method", _evaluate(together, data.test), None),
        Quality("each site alone, mean of ten", _mean(alone), None),
    ]
    return DigitsStory(
        len(messages),
        sum(points.num_points for points in data.clients.values()),
        data.test.num_points,
        _site_grid(data.clients, messages),
        int(ours.sent or 0),
        raw,
        _packed(data.clients),
        promise(study.releases),
        lines,
        (min(one.accuracy or 0.0 for one in alone), max(one.accuracy or 0.0 for one in alone)),
        _leaves(study, data.clients, messages),
        draw_quality({line.name: line.found for line in lines}),
        late,
        [_private(name, words, data.clients, data.test) for name, words in PRIVATE.items()],
    )


def _messages(study: Study, clients: Mapping[str, Points]) -> dict[str, bytes]:
    return {name: distill(study, *arrays(points), client=name) for name, points in clients.items()}


def arrays(points: Points) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(points.x), np.argmax(np.asarray(points.y), axis=1)


def _pool(clients: Mapping[str, Points]) -> dict[str, Points]:
    return {"everybody": jax.tree.map(lambda *parts: jnp.concatenate(parts), *clients.values())}


def _evaluate(model: FittedModel, test: Points) -> Metrics:
    return model.evaluate(*arrays(test))


def _mean(found: list[Metrics]) -> Metrics:
    def mean(name: str) -> float:
        return float(np.mean([getattr(one, name) for one in found]))

    return Metrics(mean("accuracy"), mean("nll"), mean("brier"), mean("ece"), None)


def _late_and_forgotten(
    study: Study, messages: Mapping[str, bytes], whole: FittedModel, data: FederatedData
) -> dict[str, Any]:
    """The site with most images comes late; then the next is forgotten: its file is taken out of the server's sums."""
    late, forgotten = sorted(messages, key=lambda name: -data.clients[name].num_points)[:2]
    before = fit(study, [message for name, message in messages.items() if name != late])
    never = fit(study, [message for name, message in messages.items() if name != forgotten])
    left = whole.forget(messages[forgotten])
    inputs, _ = arrays(data.test)
    apart = np.abs(np.asarray(left.predict(inputs).mean) - np.asarray(never.predict(inputs).mean))
    return {
        "late": late,
        "forgotten": forgotten,
        "before": _evaluate(before, data.test).accuracy,
        "after": _evaluate(whole, data.test).accuracy,
        "without": _evaluate(left, data.test).accuracy,
        "one_image": 1 / data.test.num_points,
        "apart": float(np.max(apart)),  # the sums are floats, so this is rounding; a refit has the same bytes
    }


def fed_avg(clients: Mapping[str, Points], test: Points, progress: Progress, rounds: int = NUM_ROUNDS) -> Quality:
    """The ConvNet of the preset `digits`, with its step sizes."""
    study = load_preset("digits", [f"method.fed_avg_10.num_rounds={rounds}"]).method_study("fed_avg_10", SEED)
    ledger = Ledger()
    progress.begin(f"digits: FedAvg, {rounds} rounds", rounds)
    state = simulate(jax.random.key(SEED), study, clients, ledger, on_exchange=lambda exchange: progress.advance())
    progress.end()
    posterior, _ = study.method.posterior(jax.random.key(SEED), study.model, state)
    found = metrics(study.model, sums(study.model, posterior, test))
    return Quality(f"FedAvg, a ConvNet, {rounds} rounds", found, ledger.bytes("up") + ledger.bytes("down"))


def pooled_network(preset: Preset, clients: Mapping[str, Points], test: Points, progress: Progress) -> Quality:
    """The same ConvNet, trained on all images in one place."""
    progress.begin("digits: a ConvNet on all images in one place", 1)
    study = preset.study("pooled", SEED)
    model = fit(study, _messages(study, clients).values(), preset.inferences["sgd"])
    found = _evaluate(model, test)
    progress.end()
    return Quality("all images in one place, the ConvNet", found, None)


def _private(name: str, words: str, clients: Mapping[str, Points], test: Points) -> dict[str, Any]:
    study = load_preset("private_digits").method_study(name, SEED)
    messages = _messages(study, clients)
    return {
        "words": words,
        "epsilon": promised_epsilon(study.releases),
        "delta": max(release.delta or 0.0 for release in study.releases),
        "promise": promise(study.releases),
        "found": _evaluate(fit(study, messages.values()), test),
        "sent": sum(map(len, messages.values())),
    }


def _site_grid(clients: Mapping[str, Points], messages: Mapping[str, bytes]) -> Grid:
    lines = []
    for name, points in clients.items():
        sizes = np.bincount(arrays(points)[1], minlength=10)
        most = ", ".join(str(digit) for digit in np.argsort(-sizes, kind="stable")[:3])
        lines.append([name, most, f"{points.num_points:,}", format_bytes(len(messages[name]))])
    return Grid(["site", "digits it has most of", "images", "its file"], lines, first_number=2)


def _packed(clients: Mapping[str, Points]) -> int:
    """All images of whole grey levels and their labels as one compressed npz file."""
    pooled = _pool(clients)["everybody"]
    images, labels = arrays(pooled)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=np.round(16 * images).astype(np.uint8), y=labels.astype(np.uint8))
    return len(buffer.getvalue())


def _leaves(study: Study, clients: Mapping[str, Points], messages: Mapping[str, bytes]) -> Drawing:
    name = next(iter(clients))
    message = decode_message(messages[name], study_hash=study.hash, releases=study.releases)
    assert isinstance(study.method, Spectral)
    rows: Float[np.ndarray, "rows columns"] = study.method.read_rows(study.model, name, message)[0]
    return draw_what_leaves(name, np.asarray(clients[name].x), rows, len(messages[name]))
