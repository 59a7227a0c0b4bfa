"""`coreshot data show`: who holds how much of what, and a picture of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.data_facts import collect_facts, describe_shape, list_targets, noun
from coreshot.cli.output import Json, make_table, print_result
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table

    from coreshot.cli.output import Part
    from coreshot.data.store import Holder, StoredData

PICTURE_ROWS, PICTURE_COLUMNS = 8, 16
LONGEST_TITLE = 9  # letters above an image
MOST_SOURCES = 10  # that are listed; more are counted


def show(
    name: Annotated[str, typer.Argument(help="A name from `coreshot data list`.")],
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture",
            help="The PNG file to draw: images, or who holds what; the default is NAME.png in this folder.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how many records and classes the clients have, where the data came from, and a picture.

    Example: coreshot data show emnist62 --picture emnist62.png
    """
    from coreshot.data.store import open_data_set

    data = open_data_set(name)
    path = _draw_picture(data, picture)
    print_result({**collect_facts(data), "picture": str(path)}, as_json, _set_parts(data, path))


def _set_parts(data: StoredData, picture: Path) -> Iterator[Part]:
    description = data.description
    yield _roles_table(data)
    yield f"records: {describe_shape(data)}, stored as {data.inputs.dtype}, divided by {description.input_scale:g}"
    yield list_targets(data)
    if "background_of_source" in description.notes:
        yield f"background of the source: {description.notes['background_of_source']}; here 0 is paper and 255 ink"
    partition = data.index["options"]["partition"] or {}
    settings = ", ".join(f"{key} = {value}" for key, value in partition.items())
    yield f"clients: {settings or 'as the source has them'}"
    yield from _test_lines(data)
    sources = data.index["sources"]
    for source in sources[:MOST_SOURCES]:
        yield f"source: {source['file']}, {source['bytes']:,} bytes, sha256 {source['sha256']}"
    if len(sources) > MOST_SOURCES:
        total = sum(source["bytes"] for source in sources)
        yield f"sources: {len(sources) - MOST_SOURCES} more, {total:,} bytes together"
    yield f"picture: {picture}"


def _test_lines(data: StoredData) -> Iterator[str]:
    shared = {one.name for one in data.of_role("test")} & {one.name for one in data.of_role("train", "extra")}
    held = data.index["options"].get("holding_out")
    if shared:
        what, one = noun(data), noun(data)[:-1]
        whose = "the source is split by" if held is None else f"--test-fraction {held['fraction']:g} splits by"
        yield f"test {what}: of {len(shared)} clients that also train ({whose} {one}, not by client)"
    elif held is not None:
        drawn = ", ".join(f"{key} = {value}" for key, value in held.items())
        yield f"test {noun(data)}: drawn at random ({drawn})"
    elif not data.of_role("test"):
        yield f"test {noun(data)}: none; a task holds back a share of every client's (test_fraction, num_test_clients)"


def _roles_table(data: StoredData) -> Table:
    import numpy as np

    from coreshot.data.store import ROLES

    what, rows = noun(data), []
    is_regression = data.description.kind == "regression"
    for role in ROLES:
        holders = data.of_role(role)
        if holders:
            sizes = np.array([holder.count for holder in holders])
            classes = np.array([_summarise(data.targets[holder.rows]) for holder in holders])
            rows.append((role, str(len(holders)), f"{sizes.sum():,}", _show_spread(sizes), _show_spread(classes)))
    columns = (data.name, "clients", what, f"{what} per client", f"{'mean' if is_regression else 'classes'} per client")
    return make_table(columns, rows, caption="per client: minimum / median / maximum")


def _summarise(targets: np.ndarray) -> float:
    """Of one client: its number of classes, or the mean of its first quantity."""
    import numpy as np

    return float(targets[:, 0].mean()) if targets.ndim == 2 else len(np.unique(targets))


def _show_spread(values: np.ndarray) -> str:
    import numpy as np

    return f"{values.min():.6g} / {np.median(values):.6g} / {values.max():.6g}"


def _draw_picture(data: StoredData, picture: Path | None) -> Path:
    from coreshot.report.holdings import draw_holdings
    from coreshot.report.images import png
    from coreshot.storage import write_bytes

    path = picture or Path(f"{data.name}.png")
    if path.exists():
        raise CoreshotError(
            f"{path}: is already there, and nothing is overwritten; say where the picture goes with --picture."
        )
    write_bytes(path, png(_make_figure(data) if data.description.holds_images else draw_holdings(data)))
    return path


def _make_figure(data: StoredData) -> Any:
    """A row for each of the first holders, with images of as many different classes as fit."""
    import numpy as np

    from coreshot.report.images import gallery

    # Holders that can fill a row come first: one small client would make all rows short.
    holders = sorted(data.of_role("train", "extra", "test"), key=lambda holder: -min(holder.count, PICTURE_COLUMNS))
    lines = [(holder, _choose_varied_rows(data, holder)) for holder in holders[:PICTURE_ROWS]]
    columns = min(len(rows) for _, rows in lines)
    chosen = np.concatenate([rows[:columns] for _, rows in lines])
    is_bytes = data.inputs.dtype == np.uint8
    return gallery(
        data.inputs[chosen],
        [_title(data, target) for target in data.targets[chosen]],
        num_columns=columns,
        scale=(0, 255) if is_bytes else None,
        line_names=[holder.name for holder, _ in lines],
        high_is_dark="background_of_source" in data.description.notes,  # handwriting: high values are ink
    )


def _title(data: StoredData, target: Any) -> str:
    """Of one image: its class, as far as there is room, or its quantity."""
    if data.description.kind == "regression":
        return f"{target[0]:.3g}"
    name = data.description.class_names[target]
    return name if len(name) <= LONGEST_TITLE else f"{name[: LONGEST_TITLE - 1]}…"


def _choose_varied_rows(data: StoredData, holder: Holder) -> np.ndarray:
    """Different classes first, spread over all that the holder has, in the order of the classes."""
    import numpy as np

    targets = data.targets[holder.rows]
    if targets.ndim == 2:  # quantities: low ones first
        some = np.linspace(0, holder.count - 1, min(holder.count, PICTURE_COLUMNS)).astype(int)
        return holder.start + np.argsort(targets[:, 0], kind="stable")[some]
    first = np.unique(targets, return_index=True)[1]
    others = np.setdiff1d(np.arange(holder.count), first)
    if len(first) >= PICTURE_COLUMNS:
        chosen = first[np.linspace(0, len(first) - 1, PICTURE_COLUMNS).astype(int)]
    else:
        chosen = np.sort(np.concatenate([first, others[: PICTURE_COLUMNS - len(first)]]))
    return holder.start + chosen
