"""A release: one quantity that a client computes from its records and sends, with a name and a mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from coreshot.errors import CoreshotError

MAX_RELEASES = 16  # in a header; the methods declare at most five
MAX_WORDS = 1000  # characters of a release's name and of its content
MAX_NOISY = 4  # of them with noise: the accountant takes seconds for each
Mechanism = Literal["exact", "gaussian", "dp_sgd"]


@dataclass(frozen=True)
class Release:
    """Exact: computed from the records and sent, or used for what is sent, without noise. Otherwise with Gaussian
    noise.

    Sensitivity is how far adding or removing one record can move the released numbers, in Euclidean norm. The noise
    has the standard deviation noise_multiplier * sensitivity. dp_sgd makes num_steps such releases, each on records
    drawn with probability sampling_rate.
    """

    name: str
    content: str  # in words
    mechanism: Mechanism = "exact"
    sensitivity: float | None = None
    noise_multiplier: float | None = None
    num_steps: int = 1
    sampling_rate: float = 1.0
    delta: float | None = None  # for which the noise was made
    num_sharers: int = 1  # clients that share the noise, of which only the sum is seen; 1: each adds all of it

    @property
    def is_exact(self) -> bool:
        return self.mechanism == "exact"

    def to_dict(self) -> dict[str, Any]:
        """For the header of a message; an exact release has no noise to describe."""
        return (
            {"name": self.name, "content": self.content, "mechanism": self.mechanism} if self.is_exact else asdict(self)
        )


def noise_share(num_sharers: int) -> float:
    """Each client's share of the common noise's variance: 1 / (n - 1), private even against one participant."""
    return 1 / max(num_sharers - 1, 1)


def releases_match(declared: Sequence[Release], agreed: Sequence[Release]) -> bool:
    """Whether they are equal, up to their words, which a later version may write better, and up to the last digits of a
    noise multiplier, which differ between processors; a little more noise is an earlier version's, which rounded up."""
    rounded = [
        tuple(replace(one, content="", noise_multiplier=None) for one in releases) for releases in (declared, agreed)
    ]
    multipliers = [[one.noise_multiplier or 0.0 for one in releases] for releases in (declared, agreed)]
    return rounded[0] == rounded[1] and all(
        -1e-6 * agreed <= declared - agreed <= 1e-3 * agreed for declared, agreed in zip(*multipliers, strict=True)
    )


def parse_releases(values: Any, where: str) -> tuple[Release, ...]:
    """Releases from the header of a message; the inverse of `to_dict`."""
    if isinstance(values, list) and len(values) > MAX_RELEASES:
        raise CoreshotError(f"{where}: declares {len(values):,} releases, and at most {MAX_RELEASES} are read.")
    try:
        found = tuple(Release(**one) for one in values)
    except TypeError:
        found = ()
    if not isinstance(values, list) or len(found) != len(values) or not all(map(_makes_sense, found)):
        raise CoreshotError(f"{where}: its list of releases cannot be read; distill it again.")
    if sum(not release.is_exact for release in found) > MAX_NOISY:
        raise CoreshotError(f"{where}: declares more than {MAX_NOISY} releases with noise; distill it again.")
    return found


def check_releases(releases: Sequence[Release], where: str) -> None:
    """A CoreshotError where a study's releases could not be read back from a header or a ledger."""
    if len(releases) > MAX_RELEASES or sum(not one.is_exact for one in releases) > MAX_NOISY:
        raise CoreshotError(f"{where}: has more releases than a message may declare; agree on a smaller study.")
    for release in releases:
        if not _makes_sense(release):
            raise CoreshotError(
                f"{where}: its release {release.name!r} has a noise, a delta, a sensitivity or a number of steps "
                "beyond what is accounted for; agree on other values."
            )


def _makes_sense(release: Release) -> bool:
    """Limits for values from an untrusted file: the accountant would compute for hours with noise of 1e-9."""
    is_text = all(
        isinstance(value, str) and len(value) <= MAX_WORDS for value in (release.name, release.content)
    ) and release.mechanism in get_args(Mechanism)
    if not is_text or release.is_exact:
        return is_text
    limits = {
        "sensitivity": (1e-9, 1e9),
        "noise_multiplier": (0.1, 1e6),
        "num_steps": (1, 10**5),
        "sampling_rate": (1e-9, 1.0),
        "delta": (1e-30, 0.1),
        "num_sharers": (1, 10**9),
    }
    values = {name: getattr(release, name) for name in limits}
    whole = {"num_steps", "num_sharers"}
    if not all(type(value) in ((int,) if name in whole else (int, float)) for name, value in values.items()):
        return False
    if not all(limits[name][0] <= value <= limits[name][1] for name, value in values.items()):
        return False
    # All steps together, as one Gaussian mechanism: noise of a tenth of the sensitivity has an epsilon far above the 32
    # that a study can ask for.
    return bool(values["sampling_rate"] * values["num_steps"] ** 0.5 / values["noise_multiplier"] <= 10)
