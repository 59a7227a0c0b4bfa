"""`coreshot data add | list | show | get`: federated data sets that are stored on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.output import Json, make_table, print_result, working
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table

    from coreshot.cli.output import Part
    from coreshot.data.partition import Partitioner
    from coreshot.data.store import Holder, StoredData

data_app = typer.Typer(
    no_args_is_help=True, help="Federated data sets: convert them once, look at them, download them."
)

PICTURE_ROWS, PICTURE_COLUMNS = 8, 16
MOST_CLASS_NAMES = 70  # that are listed; more are counted


@data_app.command()
def add(
    name: Annotated[
        str, typer.Argument(help="The name of the set; the tasks emnist62 and unipen62 read the sets of these names.")
    ],
    source: Annotated[
        Path,
        typer.Option("--from", help="A file, or a folder of files, in one of the formats leaf, tff, parquet, npz."),
    ],
    form: Annotated[
        str | None,
        typer.Option("--form", help="leaf, tff, parquet or npz, if the names of the files do not tell it."),
    ] = None,
    preparation: Annotated[
        str | None,
        typer.Option(
            "--as",
            help="general: any images or vectors, any classes. handwriting: 28 x 28 pixels with ink on black, "
            "62 characters. Default: handwriting for the names emnist62 and unipen62 and the formats leaf and tff.",
        ),
    ] = None,
    background: Annotated[
        str | None, typer.Option("--background", help="Of handwriting: black or white, if the images do not tell it.")
    ] = None,
    transpose: Annotated[
        bool, typer.Option("--transpose", help="Turn the images upright: the original EMNIST files are transposed.")
    ] = False,
    partition: Annotated[
        str | None,
        typer.Option(
            "--partition", help="Make clients for data that has none: iid, dirichlet, pathological or natural_id."
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the partition, such as num_partitions=100; may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Convert images or vectors with labels and clients once, into memory-mapped arrays sorted by client.

    Example: coreshot data add emnist62 --from femnist/data

    Example: coreshot data add mine --from mine.npz --partition dirichlet --set num_partitions=100 --set alpha=0.5
    """
    from coreshot.data.convert import add_data_set

    if background not in (None, "black", "white"):
        raise CoreshotError(f"--background {background}: it is black or white.")
    with working(as_json) as progress:
        data, is_new = add_data_set(
            name,
            source,
            form=form,
            preparation=preparation,
            background=background,  # type: ignore[arg-type]
            transpose=transpose,
            partitioner=_read_partitioner(partition, assignments or []),
            progress=progress,
        )
    lines = _added_lines(data, is_new, background is not None)
    print_result({**_collect_facts(data), "is_new": is_new}, as_json, lines)


def _added_lines(data: StoredData, is_new: bool, is_background_given: bool) -> Iterator[str]:
    if not is_new:
        yield f"{data.name}: is already there, from the same files"
        return
    found = data.description.notes.get("background_of_source")
    if found:
        inverted = ", so pixels were inverted" if found == "white" else ""
        yield f"background: {'given as' if is_background_given else 'found to be'} {found} in the source{inverted}"
    yield f"{data.name}: {', '.join(_count_records(data))}; `coreshot data show {data.name}` shows it"


@data_app.command("list")
def list_sets(as_json: Json = False) -> None:
    """List the stored sets. They are in ~/.coreshot/data, or in the folder of the environment variable CORESHOT_DATA.

    Example: coreshot data list
    """
    from coreshot.data.store import data_home, open_data_set, stored_names

    found = [open_data_set(name) for name in stored_names()]
    empty = f"{data_home()}: no data yet; add some with `coreshot data add NAME --from PATH`"
    values = {"store": str(data_home()), "sets": [_collect_facts(data) for data in found]}
    print_result(values, as_json, [_sets_table(found) if found else empty])


def _sets_table(found: Sequence[StoredData]) -> Table:
    rows = []
    for data in found:
        facts = _collect_facts(data)
        num_clients = [str(facts[role]["clients"]) for role in ("train", "extra")]
        records = f"{facts['train']['records'] + facts['extra']['records']:,}"
        num_classes, num_test = str(len(data.description.class_names)), f"{facts['test']['records']:,}"
        shape, sources = _describe_shape(data), _summarise_sources(data)
        rows.append((data.name, shape, num_classes, *num_clients, records, num_test, sources))
    clients = ("training clients", "extra clients")
    return make_table(("name", "shape", "classes", *clients, "records", "test records", "source"), rows)


@data_app.command()
def show(
    name: Annotated[str, typer.Argument(help="A name from `coreshot data list`.")],
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture", help="The PNG file to draw, if the set has images; the default is NAME.png in this folder."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how many records and classes the clients have, where the data came from, and a picture of some images.

    Example: coreshot data show emnist62 --picture emnist62.png
    """
    from coreshot.data.store import open_data_set

    data = open_data_set(name)
    path = _draw_picture(data, picture)
    print_result({**_collect_facts(data), "picture": path and str(path)}, as_json, _set_parts(data, path))


def _set_parts(data: StoredData, picture: Path | None) -> Iterator[Part]:
    description = data.description
    yield _roles_table(data)
    yield f"records: {_describe_shape(data)}, stored as {data.inputs.dtype}, divided by {description.input_scale:g}"
    yield f"classes: {_list_classes(data)}"
    if "background_of_source" in description.notes:
        yield f"background of the source: {description.notes['background_of_source']}; here 0 is paper and 255 ink"
    partition = data.index["options"]["partition"] or {}
    settings = ", ".join(f"{key} = {value}" for key, value in partition.items())
    yield f"clients: {settings or 'as the source has them'}"
    shared = {one.name for one in data.of_role("test")} & {one.name for one in data.of_role("train", "extra")}
    if shared:
        noun, one = _noun(data), _noun(data)[:-1]
        yield f"test {noun}: of {len(shared)} clients that also train (the source is split by {one}, not by client)"
    for source in data.index["sources"]:
        yield f"source: {source['file']}, {source['bytes']:,} bytes, sha256 {source['sha256']}"
    if picture:
        yield f"picture: {picture}"


@data_app.command()
def get(
    url: Annotated[str, typer.Argument(help="The address of a file, http or https.")],
    sha256: Annotated[str, typer.Option("--sha256", help="The SHA-256 checksum that the file must have.")],
    folder: Annotated[Path, typer.Option("--to", help="The folder to write the file to.")] = Path(),
    as_json: Json = False,
) -> None:
    """Download a file and keep it only if its SHA-256 is right. A download that was stopped continues.

    Example: coreshot data get https://example.org/femnist.parquet --sha256 9f86d0... --to downloads
    """
    from coreshot.data.download import download

    with working(as_json) as progress:
        path, is_new = download(url, folder, sha256, progress)
    outcome = "downloaded, its SHA-256 is right" if is_new else "is already there, its SHA-256 is right"
    print_result({"file": str(path), "sha256": sha256, "is_new": is_new}, as_json, [f"{path}: {outcome}"])


def _collect_facts(data: StoredData) -> dict[str, Any]:
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
        "class_names": list(data.description.class_names),
        "classes": sorted(set(data.targets.tolist())),
        **data.description.notes,
        "partition": data.index["options"]["partition"],
        "sources": data.index["sources"],
    }


def _read_partitioner(name: str | None, assignments: Sequence[str]) -> Partitioner | None:
    from coreshot.config import choose, decode, parse_assignment
    from coreshot.data.partition import PARTITIONERS

    if name is None:
        if assignments:
            raise CoreshotError(f"--set {assignments[0]}: it is a setting of a partition; say which with --partition.")
        return None
    cls: type[Any] = choose("partition", name, PARTITIONERS, "--partition")
    return decode(cls, dict(parse_assignment(text) for text in assignments), f"--partition {name}")


def _noun(data: StoredData) -> str:
    return "images" if data.description.holds_images else "vectors"


def _count_records(data: StoredData) -> list[str]:
    from coreshot.data.store import Role

    noun = _noun(data)
    roles: tuple[tuple[Role, str], ...] = (
        ("train", "training clients"),
        ("extra", "extra clients"),
        ("test", f"holders of test {noun}"),
    )
    found = []
    for role, what in roles:
        holders = data.of_role(role)
        if holders:
            found.append(f"{len(holders)} {what} with {sum(holder.count for holder in holders):,} {noun}")
    return found


def _describe_shape(data: StoredData) -> str:
    return f"{_noun(data)} of {' x '.join(map(str, data.description.input_shape))}"


def _list_classes(data: StoredData) -> str:
    names = data.description.class_names
    present = [names[target] for target in sorted(set(data.targets.tolist()))]
    are_characters = all(len(name) == 1 for name in names)
    shown = ("" if are_characters else ", ").join(present[:MOST_CLASS_NAMES])
    more = f" and {len(present) - MOST_CLASS_NAMES} more" if len(present) > MOST_CLASS_NAMES else ""
    return f"{len(present)} of {len(names)}: {shown}{more}"


def _summarise_sources(data: StoredData) -> str:
    first, *others = (source["file"] for source in data.index["sources"])
    return f"{first} and {len(others)} more" if others else str(first)


def _roles_table(data: StoredData) -> Table:
    import numpy as np

    from coreshot.data.store import ROLES

    noun = _noun(data)
    rows = []
    for role in ROLES:
        holders = data.of_role(role)
        if holders:
            sizes = np.array([holder.count for holder in holders])
            classes = np.array([len(np.unique(data.targets[holder.rows])) for holder in holders])
            rows.append((role, str(len(holders)), f"{sizes.sum():,}", _show_spread(sizes), _show_spread(classes)))
    columns = (data.name, "clients", noun, f"{noun} per client", "classes per client")
    return make_table(columns, rows, caption="per client: minimum / median / maximum")


def _show_spread(values: np.ndarray) -> str:
    import numpy as np

    return f"{values.min()} / {np.median(values):g} / {values.max()}"


def _draw_picture(data: StoredData, picture: Path | None) -> Path | None:
    """Writes the picture; None for vectors, which have none."""
    from coreshot.report.images import png
    from coreshot.storage import write_bytes

    if not data.description.holds_images:
        if picture is not None:
            raise CoreshotError(f"--picture {picture}: {data.name} holds vectors, which have no picture; leave it out.")
        return None
    path = picture or Path(f"{data.name}.png")
    if path.exists():
        raise CoreshotError(
            f"{path}: is already there, and nothing is overwritten; say where the picture goes with --picture."
        )
    write_bytes(path, png(_make_figure(data)))
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
        [data.description.class_names[target] for target in data.targets[chosen]],
        num_columns=columns,
        scale=(0, 255) if is_bytes else None,
        line_names=[holder.name for holder, _ in lines],
        high_is_dark="background_of_source" in data.description.notes,  # handwriting: high values are ink
    )


def _choose_varied_rows(data: StoredData, holder: Holder) -> np.ndarray:
    """Different classes first, spread over all that the holder has, in the order of the classes."""
    import numpy as np

    targets = data.targets[holder.rows]
    first = np.unique(targets, return_index=True)[1]
    others = np.setdiff1d(np.arange(holder.count), first)
    if len(first) >= PICTURE_COLUMNS:
        chosen = first[np.linspace(0, len(first) - 1, PICTURE_COLUMNS).astype(int)]
    else:
        chosen = np.sort(np.concatenate([first, others[: PICTURE_COLUMNS - len(first)]]))
    return holder.start + chosen
