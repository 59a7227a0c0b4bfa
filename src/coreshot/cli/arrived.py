"""The coresets that have arrived: many files, of which only the headers are kept in memory; and parts of a fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from coreshot.cli.output import print_result, value_lines
from coreshot.errors import CoreshotError

if TYPE_CHECKING:
    from coreshot.study import Study
    from coreshot.study.file import StudyFile
    from coreshot.wire.signatures import Roster

LENGTH = 8  # bytes before a message's header, which say how long it is


class Arrived(Mapping[str, bytes]):
    """Files by the names that the messages themselves bear; each is read when it is asked for."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self.paths = paths

    def __getitem__(self, client: str) -> bytes:
        return _read(self.paths[client])

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.paths))

    def __len__(self) -> int:
        return len(self.paths)


def read_coresets(paths: list[Path], study: Study, where: str) -> Arrived:
    """All of this study: of another one, it would be misleading to say anything else about them."""
    from coreshot.storage import check_client_name

    found, terms = dict[str, Path](), study.hash
    for path in _files(paths):
        header = _read_header(path)
        if header["study"] != terms:
            raise CoreshotError(
                f"{path}: belongs to study {header['study'][:12]}, but {where} is study {terms[:12]} "
                f"({study.agreement.task!r}); leave the file away, or have its site distill again with this study."
            )
        client = check_client_name(header["client"])
        if client in found and _read(found[client]) != _read(path):
            raise CoreshotError(
                f"{path}: is of client {client}, as is another of the files, and they differ; keep one of them."
            )
        found[client] = path
    return Arrived(found)


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(path.rglob("*.coreset"))
        if not inside:
            raise CoreshotError(f"{path}: has no file that ends in .coreset; give the folder that they are in.")
        yield from inside


def _read_header(path: Path) -> dict[str, str]:
    """Of a whole message only where the header alone cannot be read, for the error."""
    from coreshot.wire.messages import MAX_HEADER, read_header

    try:
        with path.open("rb") as file:
            start = file.read(LENGTH)
            data = start + file.read(min(int.from_bytes(start, "little"), MAX_HEADER))
        return read_header(data, str(path))
    except OSError:
        _read(path)
        raise
    except CoreshotError:
        return read_header(_read(path), str(path))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CoreshotError(f"{path}: cannot be read ({error.strerror}); give the path of a coreset.") from None


def write_partial(coresets: list[Path], study: Path, out: Path, part: str, keys: Roster | None, as_json: bool) -> None:
    """The shards of one part: of 2/8, every eighth shard from the second one on. All parts get the same files."""
    from coreshot.fitted.sharded_folder import write_part
    from coreshot.study.file import read_study_file

    agreed = read_study_file(study)
    number, _, total = part.partition("/")
    if not (number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total)):
        raise CoreshotError(f"--partial {part}: write the part and the number of parts, as 2/8.")
    arrived = read_coresets(coresets, agreed.study, str(study))
    files = write_part(out, agreed.study, arrived, int(number) - 1, int(total), keys)
    values = {"part": str(out), "clients": sum(len(file.names()) for file in files), "shards": len(files)}
    print_result(values, as_json, tuple(value_lines(values)))


def merge_parts(parts: list[Path], agreed: StudyFile, out: Path, seed: int, keys: Roster | None) -> None:
    from coreshot.fitted.folder import merge

    merge(parts, agreed, out, seed, keys)
