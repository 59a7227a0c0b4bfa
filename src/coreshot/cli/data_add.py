"""`coreshot data add`: from a user's files to a data set of the store."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coreshot.cli.data_facts import collect_facts, count_records
from coreshot.cli.output import Json, print_result, working
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.data.handwriting.pixels import Background
    from coreshot.data.holding_out import HoldingOut
    from coreshot.data.partition import Partitioner
    from coreshot.data.readers.reading import Reading
    from coreshot.data.store import StoredData
    from coreshot.types import Kind

NUM_PARTITIONS = "num_partitions"

Name = Annotated[
    str, typer.Argument(help="The name of the set; the tasks emnist62 and unipen62 read the sets of these names.")
]
Source = Annotated[
    Path,
    typer.Option(
        "--from", help="A file, or a folder of files, in one of the formats npz, parquet, csv, leaf, tff, folders."
    ),
]
Form = Annotated[
    str | None,
    typer.Option(
        "--form",
        help="npz, parquet, csv, leaf, tff or folders (images in CLIENT/CLASS), if names of files do not tell it.",
    ),
]
Inputs = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        help="The array or column of the inputs; of a table also several, as a,b,c, or all: all other numbers.",
    ),
]
Labels = Annotated[str | None, typer.Option("--labels", help="The array or column of the labels or targets.")]
Clients = Annotated[
    str | None,
    typer.Option(
        "--clients", help="The array or column that names each record's client; with --partition, how many to make."
    ),
]
Test = Annotated[
    str | None,
    typer.Option("--test", help="The array or column that says which records are for testing: 0 and 1, or words."),
]
TestClients = Annotated[
    int | None, typer.Option("--test-clients", min=1, help="Hold so many clients back for testing, drawn at random.")
]
TestFraction = Annotated[
    float | None, typer.Option("--test-fraction", help="Hold this share of each client's records back for testing.")
]
Task = Annotated[
    str, typer.Option("--task", help="classification, or regression: labels are quantities, one or a row for each.")
]
ClassNames = Annotated[
    str | None,
    typer.Option("--class-names", help="The array with the names of classes 0, 1, ..., or the names: cat,dog."),
]
Size = Annotated[
    str | None, typer.Option("--size", help="Bring image files to this height and width, such as 32 or 32x48.")
]
Channels = Annotated[
    int | None, typer.Option("--channels", help="Bring image files to 1 (grey) or 3 (colour) channels.")
]
Preparation = Annotated[
    str | None,
    typer.Option(
        "--as",
        help="general: any images or vectors, any classes. handwriting: 28 x 28 pixels with ink on black, "
        "62 characters. Default: handwriting for the names emnist62 and unipen62 and the formats leaf and tff.",
    ),
]
BackgroundName = Annotated[
    str | None, typer.Option("--background", help="Of handwriting: black or white, if the images do not tell it.")
]
Transpose = Annotated[
    bool, typer.Option("--transpose", help="Turn the images upright: the original EMNIST files are transposed.")
]
PartitionName = Annotated[
    str | None,
    typer.Option(
        "--partition",
        help="Make clients for data that has none: iid, dirichlet, pathological, shard, linear, square, exponential, "
        "continuous or natural_id.",
    ),
]
Alpha = Annotated[
    float | None, typer.Option("--alpha", help="Of a dirichlet partition: small gives each client few classes.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the partition, and of the draw of test records.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the partition, such as num_partitions=100; may be repeated."),
]


def add(
    name: Name,
    source: Source,
    form: Form = None,
    inputs: Inputs = None,
    labels: Labels = None,
    clients: Clients = None,
    test: Test = None,
    test_clients: TestClients = None,
    test_fraction: TestFraction = None,
    task: Task = "classification",
    class_names: ClassNames = None,
    size: Size = None,
    channels: Channels = None,
    preparation: Preparation = None,
    background: BackgroundName = None,
    transpose: Transpose = False,
    partition: PartitionName = None,
    alpha: Alpha = None,
    seed: Seed = 42,
    assignments: Assignments = None,
    as_json: Json = False,
) -> None:
    """Convert images or vectors with labels and clients once, into memory-mapped arrays sorted by client.

    Example: coreshot data add trees --from trees.npz --labels kind --clients park --test-fraction 0.2

    Example: coreshot data add mine --from mine.npz --partition dirichlet --alpha 0.1 --clients 100
    """
    from coreshot.data.convert import add_data_set

    column = None if partition is not None else clients
    partitioner = _read_partitioner(partition, clients, alpha, seed, assignments or [])
    with working(as_json) as progress:
        data, is_new = add_data_set(
            name,
            source,
            form=form,
            preparation=preparation,
            background=_parse_background(background),
            transpose=transpose,
            partitioner=partitioner,
            kind=_parse_kind(task),
            reading=_make_reading(inputs, labels, column, test, class_names, size, channels),
            holding_out=_make_holding_out(test, test_clients, test_fraction, seed),
            progress=progress,
        )
    lines = _added_lines(data, is_new, background is not None)
    print_result({**collect_facts(data), "is_new": is_new}, as_json, lines)


def _parse_background(text: str | None) -> Background | None:
    from coreshot.config import choose

    known: dict[str, Background] = {"black": "black", "white": "white"}
    return None if text is None else choose("background", text, known, "--background")


def _parse_kind(text: str) -> Kind:
    from coreshot.config import choose

    known: dict[str, Kind] = {"classification": "classification", "regression": "regression"}
    return choose("task", text, known, "--task")


def _make_reading(
    inputs: str | None,
    labels: str | None,
    clients: str | None,
    test: str | None,
    class_names: str | None,
    size: str | None,
    channels: int | None,
) -> Reading:
    from coreshot.data.readers.reading import Reading

    if clients is not None and clients.isdigit():
        raise CoreshotError(
            f"--clients {clients}: a number of clients is made by a partition; say which, for example --partition "
            f"dirichlet --alpha 0.5 --clients {clients}, or name an array or column."
        )
    if channels not in (None, 1, 3):
        raise CoreshotError(f"--channels {channels}: images have 1 (grey) or 3 (colour) channels; give one of these.")
    return Reading(
        inputs,
        labels,
        clients,
        test,
        class_names,
        _parse_size(size),
        None if channels is None else _as_channels(channels),
    )


def _as_channels(number: int) -> Any:
    return number


def _parse_size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch("([1-9][0-9]{0,4})(?:[x,]([1-9][0-9]{0,4}))?", text)
    if found is None:
        raise CoreshotError(f"--size {text}: not a height and a width; write, for example, --size 32 or --size 32x48.")
    return int(found[1]), int(found[2] or found[1])


def _make_holding_out(
    test: str | None, num_clients: int | None, fraction: float | None, seed: int
) -> HoldingOut | None:
    from coreshot.data.holding_out import HoldingOut

    if num_clients is None and fraction is None:
        return None
    if test is not None:
        raise CoreshotError(f"--test {test}: it says which records are for testing; give one --test option, not two.")
    return HoldingOut(num_clients, fraction, seed)


def _read_partitioner(
    name: str | None, clients: str | None, alpha: float | None, seed: int, assignments: Sequence[str]
) -> Partitioner | None:
    """From --partition with --clients, --alpha, --seed and --set."""
    from coreshot.config import choose, decode, has_setting, parse_assignment
    from coreshot.data.partition import PARTITIONERS

    if name is None:
        if assignments or alpha is not None:
            said = f"--set {assignments[0]}" if assignments else f"--alpha {alpha:g}"
            raise CoreshotError(f"{said}: it is a setting of a partition; say which with --partition.")
        return None
    cls: type[Any] = choose("partition", name, PARTITIONERS, "--partition")
    values: dict[str, Any] = {}
    if clients is not None:
        values = {"partition_by": clients} if name == "natural_id" else {NUM_PARTITIONS: _parse_number(clients)}
    if alpha is not None:
        values["alpha"] = alpha
    if has_setting(PARTITIONERS, name, "seed"):
        values["seed"] = seed
    values.update(dict(parse_assignment(text) for text in assignments))
    if has_setting(PARTITIONERS, name, NUM_PARTITIONS) and NUM_PARTITIONS not in values:
        raise CoreshotError(f"--partition {name}: how many clients? Say it with --clients, for example --clients 10.")
    return decode(cls, values, f"--partition {name}")


def _parse_number(clients: str) -> int:
    if not clients.isdigit():
        raise CoreshotError(
            f"--clients {clients}: with --partition it is the number of clients to make; give a number, or leave "
            "--partition out if the file names its clients."
        )
    return int(clients)


def _added_lines(data: StoredData, is_new: bool, is_background_given: bool) -> Iterator[str]:
    if not is_new:
        yield f"{data.name}: is already there, from the same files"
        return
    found = data.description.notes.get("background_of_source")
    if found:
        inverted = ", so pixels were inverted" if found == "white" else ""
        yield f"background: {'given as' if is_background_given else 'found to be'} {found} in the source{inverted}"
    yield f"{data.name}: {', '.join(count_records(data))}; `coreshot data show {data.name}` shows it"
    yield f"next: `coreshot new-preset {data.name} --out {data.name}.toml` writes an experiment with it"
