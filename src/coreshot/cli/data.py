"""The commands of the shelf: coreshot data add, list, show, get."""

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
    from coreshot.data.readers.protocol import Role
    from coreshot.data.store import Holder, ImageSet

data_app = typer.Typer(no_args_is_help=True, help="Federated handwriting: convert it once, look at it, download it.")

PICTURE_LINES, PICTURE_COLUMNS = 8, 16
ROLES: tuple[Role, ...] = ("train", "extra", "test")


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
    background: Annotated[
        str | None, typer.Option("--background", help="black or white, where the images do not say it.")
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
    """Convert data once, into a memory-mapped layout with one client after another.

    Example: coreshot data add emnist62 --from femnist/data

    Example: coreshot data add mine --from mine.npz --partition dirichlet --set num_partitions=100 --set alpha=0.5
    """
    from coreshot.data import convert

    if background not in (None, "black", "white"):
        raise CoreshotError(f"--background {background}: it is black or white.")
    with working(as_json) as progress:
        data, is_new = convert.add(
            name,
            source,
            form=form,
            background=background,  # type: ignore[arg-type]
            transpose=transpose,
            partitioner=_partitioner(partition, assignments or []),
            progress=progress,
        )
    if as_json:
        print_facts({**_facts(data), "is_new": is_new}, as_json)
        return
    if not is_new:
        say(f"{name}: is already there, from the same files")
        return
    was = data.index["background_of_source"]
    say(
        f"background: {'given as' if background else 'found to be'} {was} in the source{', so pixels were inverted' if was == 'white' else ''}"
    )
    say(f"{name}: {', '.join(_counts(data))}; `coreshot data show {name}` shows it")


@data_app.command("list")
def list_sets(as_json: Json = False) -> None:
    """The sets on the shelf; it lies in ~/.coreshot/data, or where the environment variable CORESHOT_DATA says.

    Example: coreshot data list
    """
    from coreshot.data import store as shelf

    if as_json:
        print_facts(
            {"shelf": str(shelf.home()), "sets": [_facts(shelf.open_set(name)) for name in shelf.names()]}, as_json
        )
        return
    table = Table("name", "training clients", "extra clients", "images", "test images", "source")
    for name in shelf.names():
        data = shelf.open_set(name)
        sizes = {role: sum(holder.count for holder in data.of_role(role)) for role in ROLES}
        table.add_row(
            name,
            str(len(data.of_role("train"))),
            str(len(data.of_role("extra"))),
            f"{sizes['train'] + sizes['extra']:,}",
            f"{sizes['test']:,}",
            escape(_sources(data)),
        )
    if table.row_count:
        console.print(table)
    else:
        say(f"{shelf.home()}: no data yet; add some with `coreshot data add NAME --from PATH`")


@data_app.command()
def show(
    name: Annotated[str, typer.Argument(help="A name from `coreshot data list`.")],
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Where the picture goes, a PNG file; the default is NAME.png here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Who holds how much of what, where it came from, and a picture of some images.

    Example: coreshot data show emnist62 --picture emnist62.png
    """
    from coreshot.data import store as shelf
    from coreshot.data.handwriting.labels import CHARACTERS, NUM_CLASSES
    from coreshot.report.images import png
    from coreshot.storage import write_bytes

    data = shelf.open_set(name)
    path = picture or Path(f"{name}.png")
    if path.exists():
        raise CoreshotError(
            f"{path}: is already there, and nothing is overwritten; say where the picture goes with --picture."
        )
    write_bytes(path, png(_picture(data)))
    if as_json:
        print_facts({**_facts(data), "picture": str(path)}, as_json)
        return
    console.print(_roles_table(data))
    present = sorted(set(data.labels.tolist()))
    say(f"classes: {len(present)} of {NUM_CLASSES}: {''.join(CHARACTERS[label] for label in present)}")
    say(f"background of the source: {data.index['background_of_source']}; here 0 is paper and 255 ink")
    partition = data.index["options"]["partition"]
    say(
        f"clients: {'as the source has them' if partition is None else ', '.join(f'{key} = {value}' for key, value in partition.items())}"
    )
    shared = {holder.name for holder in data.of_role("test")} & {
        holder.name for holder in data.of_role("train", "extra")
    }
    if shared:
        say(f"test images: of {len(shared)} clients that also train (the source is split by image, not by client)")
    for source in data.index["sources"]:
        say(f"source: {source['file']}, {source['bytes']:,} bytes, sha256 {source['sha256']}")
    say(f"picture: {path}")


@data_app.command()
def get(
    url: Annotated[str, typer.Argument(help="The address of a file, http or https.")],
    sha256: Annotated[str, typer.Option("--sha256", help="The checksum that the file must have.")],
    folder: Annotated[Path, typer.Option("--to", help="The folder that it goes to.")] = Path(),
    as_json: Json = False,
) -> None:
    """Download a file; goes on where it stopped, and keeps it only if its SHA-256 is right.

    Example: coreshot data get https://example.org/femnist.parquet --sha256 9f86d0... --to downloads
    """
    from coreshot.data.download import download

    with working(as_json) as progress:
        path, is_new = download(url, folder, sha256, progress)
    if as_json:
        print_facts({"file": str(path), "sha256": sha256, "is_new": is_new}, as_json)
        return
    say(f"{path}: {'downloaded, its SHA-256 is right' if is_new else 'is already there, its SHA-256 is right'}")


def _facts(data: ImageSet) -> dict[str, Any]:
    return {
        "name": data.name,
        **{
            role: {"clients": len(held), "images": sum(holder.count for holder in held)}
            for role in ROLES
            for held in [data.of_role(role)]
        },
        "classes": sorted(set(data.labels.tolist())),
        "background_of_source": data.index["background_of_source"],
        "partition": data.index["options"]["partition"],
        "sources": data.index["sources"],
    }


def _partitioner(name: str | None, assignments: Sequence[str]) -> Partitioner | None:
    from coreshot.config import choose, decode, parse_assignment
    from coreshot.data.partition import PARTITIONERS

    if name is None:
        if assignments:
            raise CoreshotError(f"--set {assignments[0]}: it is a setting of a partition; say which with --partition.")
        return None
    cls: type[Any] = choose("partition", name, PARTITIONERS, "--partition")
    return decode(cls, dict(parse_assignment(text) for text in assignments), f"--partition {name}")


def _counts(data: ImageSet) -> list[str]:
    found = []
    for role, what in (("train", "training clients"), ("extra", "extra clients"), ("test", "holders of test images")):
        holders = data.of_role(role)  # type: ignore[arg-type]
        if holders:
            found.append(f"{len(holders)} {what} with {sum(holder.count for holder in holders):,} images")
    return found


def _sources(data: ImageSet) -> str:
    first, *others = (source["file"] for source in data.index["sources"])
    return f"{first} and {len(others)} more" if others else str(first)


def _roles_table(data: ImageSet) -> Table:
    import numpy as np

    table = Table(data.name, "clients", "images", "images a client", "classes a client")
    for role in ROLES:
        holders = data.of_role(role)
        if holders:
            sizes = np.array([holder.count for holder in holders])
            classes = np.array([len(np.unique(data.labels[holder.rows])) for holder in holders])
            table.add_row(role, str(len(holders)), f"{sizes.sum():,}", _spread(sizes), _spread(classes))
    table.caption = "a client: least / median / most"
    return table


def _spread(values: np.ndarray) -> str:
    import numpy as np

    return f"{values.min()} / {np.median(values):g} / {values.max()}"


def _picture(data: ImageSet) -> Any:
    """A line for each of the first holders, with as many different characters as fit."""
    import numpy as np

    from coreshot.data.handwriting.labels import CHARACTERS
    from coreshot.report.images import gallery

    # Those who can fill a line come first: else one small client would make all lines short.
    holders = sorted(data.of_role("train", "extra", "test"), key=lambda holder: -min(holder.count, PICTURE_COLUMNS))
    lines = [(holder, _varied_rows(data, holder)) for holder in holders[:PICTURE_LINES]]
    columns = min(len(rows) for _, rows in lines)
    chosen = np.concatenate([rows[:columns] for _, rows in lines])
    titles = [CHARACTERS[label] for label in data.labels[chosen]]
    return gallery(
        data.images[chosen],
        titles,
        num_columns=columns,
        scale=(0, 255),
        line_names=[holder.name for holder, _ in lines],
    )


def _varied_rows(data: ImageSet, holder: Holder) -> np.ndarray:
    """Different classes first, spread over all that the holder has, in the order of the classes."""
    import numpy as np

    labels = data.labels[holder.rows]
    first = np.unique(labels, return_index=True)[1]
    others = np.setdiff1d(np.arange(holder.count), first)
    if len(first) >= PICTURE_COLUMNS:
        chosen = first[np.linspace(0, len(first) - 1, PICTURE_COLUMNS).astype(int)]
    else:
        chosen = np.sort(np.concatenate([first, others[: PICTURE_COLUMNS - len(first)]]))
    return holder.start + chosen
