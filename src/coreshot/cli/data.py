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
    from coreshot.data.readers.protocol import Role
    from coreshot.data.store import Holder, ImageSet

data_app = typer.Typer(
    no_args_is_help=True, help="Federated data sets: convert them once, look at them, download them."
)

PICTURE_ROWS, PICTURE_COLUMNS = 8, 16
ROLES: tuple[Role, ...] = ("train", "extra", "test")


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
    background: Annotated[
        str | None, typer.Option("--background", help="black or white, if the images do not tell it.")
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
    """Convert a data set once, into memory-mapped files that hold one client after another.

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
    print_result({**_facts(data), "is_new": is_new}, as_json, _added_lines(data, is_new, background is not None))


def _added_lines(data: ImageSet, is_new: bool, is_background_given: bool) -> Iterator[str]:
    if not is_new:
        yield f"{data.name}: is already there, from the same files"
        return
    was = data.index["background_of_source"]
    inverted = ", so pixels were inverted" if was == "white" else ""
    yield f"background: {'given as' if is_background_given else 'found to be'} {was} in the source{inverted}"
    yield f"{data.name}: {', '.join(_counts(data))}; `coreshot data show {data.name}` shows it"


@data_app.command("list")
def list_sets(as_json: Json = False) -> None:
    """List the stored sets. They are in ~/.coreshot/data, or in the folder of the environment variable CORESHOT_DATA.

    Example: coreshot data list
    """
    from coreshot.data import store

    sets = [store.open_set(name) for name in store.names()]
    values = {"shelf": str(store.home()), "sets": [_facts(data) for data in sets]}
    print_result(values, as_json, [_sets_table(sets) if sets else _no_sets(store.home())])


def _no_sets(home: Path) -> str:
    return f"{home}: no data yet; add some with `coreshot data add NAME --from PATH`"


def _sets_table(sets: Sequence[ImageSet]) -> Table:
    rows = []
    for data in sets:
        num_images = {role: sum(holder.count for holder in data.of_role(role)) for role in ROLES}
        num_clients = [str(len(data.of_role(role))) for role in ("train", "extra")]
        images = f"{num_images['train'] + num_images['extra']:,}"
        rows.append((data.name, *num_clients, images, f"{num_images['test']:,}", _sources(data)))
    return make_table(("name", "training clients", "extra clients", "images", "test images", "source"), rows)


@data_app.command()
def show(
    name: Annotated[str, typer.Argument(help="A name from `coreshot data list`.")],
    picture: Annotated[
        Path | None, typer.Option("--picture", help="The PNG file to draw; the default is NAME.png in this folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how many images and classes the clients have, where the data came from, and a picture of some images.

    Example: coreshot data show emnist62 --picture emnist62.png
    """
    from coreshot.data import store
    from coreshot.report.images import png
    from coreshot.storage import write_bytes

    data = store.open_set(name)
    path = picture or Path(f"{name}.png")
    if path.exists():
        raise CoreshotError(
            f"{path}: is already there, and nothing is overwritten; say where the picture goes with --picture."
        )
    write_bytes(path, png(_picture(data)))
    print_result({**_facts(data), "picture": str(path)}, as_json, _set_parts(data, path))


def _set_parts(data: ImageSet, picture: Path) -> Iterator[Part]:
    from coreshot.data.handwriting.labels import CHARACTERS, NUM_CLASSES

    yield _roles_table(data)
    present = sorted(set(data.labels.tolist()))
    yield f"classes: {len(present)} of {NUM_CLASSES}: {''.join(CHARACTERS[label] for label in present)}"
    yield f"background of the source: {data.index['background_of_source']}; here 0 is paper and 255 ink"
    partition = data.index["options"]["partition"] or {}
    settings = ", ".join(f"{key} = {value}" for key, value in partition.items())
    yield f"clients: {settings or 'as the source has them'}"
    train, test = data.of_role("train", "extra"), data.of_role("test")
    shared = {holder.name for holder in test} & {holder.name for holder in train}
    if shared:
        yield f"test images: of {len(shared)} clients that also train (the source is split by image, not by client)"
    for source in data.index["sources"]:
        yield f"source: {source['file']}, {source['bytes']:,} bytes, sha256 {source['sha256']}"
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

    rows = []
    for role in ROLES:
        if holders := data.of_role(role):
            sizes = np.array([holder.count for holder in holders])
            classes = np.array([len(np.unique(data.labels[holder.rows])) for holder in holders])
            rows.append((role, str(len(holders)), f"{sizes.sum():,}", _spread(sizes), _spread(classes)))
    columns = (data.name, "clients", "images", "images per client", "classes per client")
    return make_table(columns, rows, caption="per client: minimum / median / maximum")


def _spread(values: np.ndarray) -> str:
    import numpy as np

    return f"{values.min()} / {np.median(values):g} / {values.max()}"


def _picture(data: ImageSet) -> Any:
    """A row for each of the first holders, with as many different classes as fit."""
    import numpy as np

    from coreshot.data.handwriting.labels import CHARACTERS
    from coreshot.report.images import gallery

    # Holders that can fill a row come first: one small client would make all rows short.
    holders = sorted(data.of_role("train", "extra", "test"), key=lambda holder: -min(holder.count, PICTURE_COLUMNS))
    rows = [(holder, _varied_rows(data, holder)) for holder in holders[:PICTURE_ROWS]]
    columns = min(len(chosen) for _, chosen in rows)
    images = np.concatenate([chosen[:columns] for _, chosen in rows])
    titles = [CHARACTERS[label] for label in data.labels[images]]
    return gallery(
        data.images[images],
        titles,
        num_columns=columns,
        scale=(0, 255),
        line_names=[holder.name for holder, _ in rows],
    )


def _varied_rows(data: ImageSet, holder: Holder) -> np.ndarray:
    """Indices of images of different classes first, spread over all classes of the holder, in the order of classes."""
    import numpy as np

    labels = data.labels[holder.rows]
    first = np.unique(labels, return_index=True)[1]
    others = np.setdiff1d(np.arange(holder.count), first)
    if len(first) >= PICTURE_COLUMNS:
        chosen = first[np.linspace(0, len(first) - 1, PICTURE_COLUMNS).astype(int)]
    else:
        chosen = np.sort(np.concatenate([first, others[: PICTURE_COLUMNS - len(first)]]))
    return holder.start + chosen
