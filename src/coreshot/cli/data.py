"""The commands of the store of data sets: coreshot data add, list, show, get."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from coreshot.cli.output import Json, console, print_facts, say, working
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    import numpy as np

    from coreshot.data.partition import Partitioner
    from coreshot.data.store import Holder, StoredData

data_app = typer.Typer(no_args_is_help=True, help="Federated data sets: convert once, look at them, download.")

PICTURE_LINES, PICTURE_COLUMNS = 8, 16
MOST_CLASS_NAMES = 70  # that are listed; more are counted


@data_app.command()
def add(
    name: Annotated[
        str, typer.Argument(help="What to call it; the tasks emnist62 and unipen62 look for sets of their own names.")
    ],
    source: Annotated[
        Path, typer.Option("--from", help="A file, or a folder of files, in one of the forms leaf, tff, parquet, npz.")
    ],
    form: Annotated[
        str | None,
        typer.Option("--form", help="leaf, tff, parquet or npz, where the names of the files do not say it."),
    ] = None,
    preparation: Annotated[
        str | None,
        typer.Option(
            "--as",
            help="general: any images or vectors, any classes. handwriting: 28 x 28 pixels with ink on black, "
            "62 characters. Default: handwriting for the names emnist62 and unipen62 and the forms leaf and tff.",
        ),
    ] = None,
    background: Annotated[
        str | None, typer.Option("--background", help="Of handwriting: black or white, where the images do not say it.")
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
    if as_json:
        print_facts({**_collect_facts(data), "is_new": is_new}, as_json)
        return
    _print_added(data, is_new, background is not None)


def _print_added(data: StoredData, is_new: bool, is_background_given: bool) -> None:
    if not is_new:
        say(f"{data.name}: is already there, from the same files")
        return
    found = data.description.notes.get("background_of_source")
    if found:
        inverted = ", so pixels were inverted" if found == "white" else ""
        say(f"background: {'given as' if is_background_given else 'found to be'} {found} in the source{inverted}")
    say(f"{data.name}: {', '.join(_count_records(data))}; `coreshot data show {data.name}` shows it")


@data_app.command("list")
def list_sets(as_json: Json = False) -> None:
    """The data sets of the store, which is ~/.coreshot/data or the folder that CORESHOT_DATA names.

    Example: coreshot data list
    """
    from coreshot.data.store import data_home, open_data_set, stored_names

    found = [open_data_set(name) for name in stored_names()]
    if as_json:
        print_facts({"store": str(data_home()), "sets": [_collect_facts(data) for data in found]}, as_json)
        return
    if not found:
        say(f"{data_home()}: no data yet; add some with `coreshot data add NAME --from PATH`")
        return
    table = Table("name", "shape", "classes", "training clients", "extra clients", "records", "test records", "source")
    for data in found:
        facts = _collect_facts(data)
        table.add_row(
            data.name,
            _describe_shape(data),
            str(len(data.description.class_names)),
            str(facts["train"]["clients"]),
            str(facts["extra"]["clients"]),
            f"{facts['train']['records'] + facts['extra']['records']:,}",
            f"{facts['test']['records']:,}",
            escape(_summarise_sources(data)),
        )
    console.print(table)


@data_app.command()
def show(
    name: Annotated[str, typer.Argument(help="A name from `coreshot data list`.")],
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="Where the picture of images goes, a PNG file; the default is NAME.png here."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Who holds how much of what, where it came from, and a picture of some images.

    Example: coreshot data show emnist62 --picture emnist62.png
    """
    from coreshot.data.store import open_data_set

    data = open_data_set(name)
    path = _draw_picture(data, picture)
    if as_json:
        print_facts({**_collect_facts(data), "picture": path and str(path)}, as_json)
        return
    console.print(_roles_table(data))
    say(f"records: {_describe_shape(data)}, stored as {data.inputs.dtype}, divided by {data.description.input_scale:g}")
    say(f"classes: {_list_classes(data)}")
    if "background_of_source" in data.description.notes:
        say(f"background of the source: {data.description.notes['background_of_source']}; here 0 is paper and 255 ink")
    partition = data.index["options"]["partition"]
    settings = "as the source has them" if partition is None else ", ".join(f"{k} = {v}" for k, v in partition.items())
    say(f"clients: {settings}")
    shared = {one.name for one in data.of_role("test")} & {one.name for one in data.of_role("train", "extra")}
    if shared:
        noun = _noun(data)
        say(
            f"test {noun}: of {len(shared)} clients that also train (the source is split by {noun[:-1]}, not by client)"
        )
    for source in data.index["sources"]:
        say(f"source: {source['file']}, {source['bytes']:,} bytes, sha256 {source['sha256']}")
    if path:
        say(f"picture: {path}")


@data_app.command()
def get(
    url: Annotated[str, typer.Argument(help="The address of a file, http or https.")],
    sha256: Annotated[str, typer.Option("--sha256", help="The checksum that the file must have.")],
    folder: Annotated[Path, typer.Option("--to", help="The folder that it goes to.")] = Path(),
    as_json: Json = False,
) -> None:
    """Download a file; continues where it stopped, and keeps the file only if its SHA-256 is right.

    Example: coreshot data get https://example.org/femnist.parquet --sha256 9f86d0... --to downloads
    """
    from coreshot.data.download import download

    with working(as_json) as progress:
        path, is_new = download(url, folder, sha256, progress)
    if as_json:
        print_facts({"file": str(path), "sha256": sha256, "is_new": is_new}, as_json)
        return
    say(f"{path}: {'downloaded, its SHA-256 is right' if is_new else 'is already there, its SHA-256 is right'}")


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
    table = Table(data.name, "clients", noun, f"{noun} a client", "classes a client")
    for role in ROLES:
        holders = data.of_role(role)
        if holders:
            sizes = np.array([holder.count for holder in holders])
            classes = np.array([len(np.unique(data.targets[holder.rows])) for holder in holders])
            table.add_row(role, str(len(holders)), f"{sizes.sum():,}", _show_spread(sizes), _show_spread(classes))
    table.caption = "a client: least / median / most"
    return table


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
    """A line for each of the first holders, with images of as many different classes as fit."""
    import numpy as np

    from coreshot.report.images import gallery

    # Holders that can fill a line come first: otherwise one small client would make all lines short.
    holders = sorted(data.of_role("train", "extra", "test"), key=lambda holder: -min(holder.count, PICTURE_COLUMNS))
    lines = [(holder, _choose_varied_rows(data, holder)) for holder in holders[:PICTURE_LINES]]
    columns = min(len(rows) for _, rows in lines)
    chosen = np.concatenate([rows[:columns] for _, rows in lines])
    is_bytes = data.inputs.dtype == np.uint8
    return gallery(
        data.inputs[chosen],
        [data.description.class_names[target] for target in data.targets[chosen]],
        num_columns=columns,
        scale=(0, 255) if is_bytes else None,
        line_names=[holder.name for holder, _ in lines],
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
