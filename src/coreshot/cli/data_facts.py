"""What is said about a stored data set: facts for machines, and the words for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coreshot.data.store import StoredData

MOST_CLASS_NAMES = 70  # that are listed; more are counted


def collect_facts(data: StoredData) -> dict[str, Any]:
    import numpy as np

    from coreshot.data.store import ROLES

    held = {role: data.of_role(role) for role in ROLES}
    return {
        "name": data.name,
        **{
            role: {"clients": len(holders), "records": sum(holder.count for holder in holders)}
            for role, holders in held.items()
        },
        "input_shape": list(data.description.input_shape),
        "input_scale": data.description.input_scale,
        "kind": data.description.kind,
        "class_names": list(data.description.class_names),
        "classes": [] if data.description.target_names else np.unique(data.targets).tolist(),
        "target_names": list(data.description.target_names),
        **data.description.notes,
        "partition": data.index["options"]["partition"],
        "sources": data.index["sources"],
    }


def noun(data: StoredData) -> str:
    return "images" if data.description.holds_images else "vectors"


def count_records(data: StoredData) -> list[str]:
    from coreshot.data.store import Role

    what_records = noun(data)
    roles: tuple[tuple[Role, str], ...] = (
        ("train", "training clients"),
        ("extra", "extra clients"),
        ("test", f"holders of test {what_records}"),
    )
    found = []
    for role, what in roles:
        holders = data.of_role(role)
        if holders:
            found.append(f"{len(holders)} {what} with {sum(holder.count for holder in holders):,} {what_records}")
    return found


def describe_shape(data: StoredData) -> str:
    return f"{noun(data)} of {' x '.join(map(str, data.description.input_shape))}"


def describe_targets(data: StoredData) -> str:
    """For the list of sets: the number of classes, or what is regressed."""
    description = data.description
    return str(len(description.class_names)) if description.class_names else "regression"


def list_targets(data: StoredData) -> str:
    """The classes, or the quantities with their ranges."""
    import numpy as np

    if data.description.target_names:
        low, high = np.min(data.targets, axis=0), np.max(data.targets, axis=0)
        ranges = [
            f"{name} from {one:.4g} to {other:.4g}"
            for name, one, other in zip(data.description.target_names, low, high, strict=True)
        ]
        return f"quantities: {', '.join(ranges)}"
    return f"classes: {list_classes(data)}"


def list_classes(data: StoredData) -> str:
    import numpy as np

    names = data.description.class_names
    present = [names[target] for target in np.unique(data.targets)]
    are_characters = all(len(name) == 1 for name in names)
    shown = ("" if are_characters else ", ").join(present[:MOST_CLASS_NAMES])
    more = f" and {len(present) - MOST_CLASS_NAMES} more" if len(present) > MOST_CLASS_NAMES else ""
    return f"{len(present)} of {len(names)}: {shown}{more}"


def summarise_sources(data: StoredData) -> str:
    first, *others = (source["file"] for source in data.index["sources"])
    return f"{first} and {len(others)} more" if others else str(first)
