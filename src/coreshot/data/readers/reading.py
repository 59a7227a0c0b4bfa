"""What a user says about a source whose arrays, columns or images are not what a reader expects."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from coreshot.errors import CoreshotError

INPUT_NAMES = ("images", "image", "x", "X", "inputs", "input", "features", "pixels", "data", "jpeg", "png")
LABEL_NAMES = ("labels", "label", "y", "Y", "character", "targets", "target")
CLIENT_NAMES = tuple(
    name + ending for ending in ("s", "", "_id", "_ids") for name in ("client", "writer", "user", "site", "hospital")
)
CLASS_NAMES = ("class_names", "label_names", "classes")
ALL_OTHERS = "all"  # as inputs: every column of numbers that is nothing else


@dataclass(frozen=True)
class Reading:
    """Names of arrays or columns; None: the usual ones. Size and channels are what image files are brought to."""

    inputs: str | None = None
    labels: str | None = None
    clients: str | None = None
    test: str | None = None
    class_names: str | None = None  # the array that has them, or the names themselves with commas between
    size: tuple[int, int] | None = None  # height, width
    channels: Literal[1, 3] | None = None

    def options(self) -> dict[str, Any]:
        """What was said, for the record of a data set."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value is not None
        }

    @property
    def listed_class_names(self) -> tuple[str, ...] | None:
        """The names themselves, where they were given as a list."""
        if self.class_names is None or "," not in self.class_names:
            return None
        names = tuple(part.strip() for part in self.class_names.split(","))
        if "" in names or len(set(names)) < len(names):
            raise CoreshotError(
                f"--class-names {self.class_names}: a name is empty or comes twice; give each class a name of its own."
            )
        return names


def find_name(asked: str | None, usual: Sequence[str], there: Collection[str], what: str, where: str) -> str | None:
    """The array or column with this content: the one that was asked for, or the first of the usual names.

    None where nothing was asked for and none of the usual names is there.
    """
    if asked is None:
        return next((name for name in usual if name in there), None)
    if asked in there:
        return asked
    raise CoreshotError(f"{where}: --{what} {asked}: there is no such array or column; {list_names(there)}.")


def need_name(asked: str | None, usual: Sequence[str], there: Collection[str], what: str, where: str) -> str:
    found = find_name(asked, usual, there, what, where)
    if found is None:
        raise CoreshotError(
            f"{where}: no array or column is called {', '.join(usual[:3])} or the like; {list_names(there)}; "
            f"say which has the {what} with --{what} NAME."
        )
    return found


def list_names(there: Collection[str]) -> str:
    shown = sorted(there)[:20]
    more = f" and {len(there) - len(shown)} more" if len(there) > len(shown) else ""
    return f"there are {', '.join(shown)}{more}" if shown else "there is nothing in it"
