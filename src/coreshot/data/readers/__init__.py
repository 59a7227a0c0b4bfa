"""Files in the formats in which people hold federated data, read one client after another."""

from __future__ import annotations

import re
from pathlib import Path

from coreshot.config import choose
from coreshot.data.readers.leaf import read_leaf
from coreshot.data.readers.npz import read_npz
from coreshot.data.readers.parquet import read_parquet
from coreshot.data.readers.protocol import FileFormat, SourceFile
from coreshot.data.readers.tff import read_tff
from coreshot.errors import CoreshotError

FILE_FORMATS = {
    "leaf": FileFormat((".json",), read_leaf, preparation="handwriting"),
    "tff": FileFormat((".h5", ".hdf5"), read_tff, preparation="handwriting"),
    "parquet": FileFormat((".parquet",), read_parquet),
    "npz": FileFormat((".npz",), read_npz),
}


def find_files(source: Path, form: str | None) -> tuple[str, list[SourceFile]]:
    """The format of a file or a folder, and its files in order. Several formats in one folder need `form`."""
    if not source.exists():
        raise CoreshotError(f"{source}: there is no such file or folder; check the path.")
    paths = [source] if source.is_file() else _list_files(source)
    if form is not None:
        choose("form", form, FILE_FORMATS, "--form")
    by_format = {
        name: [path for path in paths if path.suffix in known.suffixes or (form and source.is_file())]
        for name, known in FILE_FORMATS.items()
    }
    found = [name for name, some in by_format.items() if some and form in (None, name)]
    if not found:
        known = ", ".join(f"{' or '.join(one.suffixes)} ({name})" for name, one in FILE_FORMATS.items())
        raise CoreshotError(f"{source}: no data that coreshot can read; it reads {known}. Unpack an archive first.")
    if len(found) > 1:
        raise CoreshotError(f"{source}: holds files of several forms ({', '.join(found)}); say which with --form.")
    return found[0], _assign_roles(by_format[found[0]], source)


def _list_files(folder: Path) -> list[Path]:
    """Where there are folders train and test, only their files: LEAF keeps every stage of its work beside them."""
    parts = [folder / "train", folder / "test"]
    roots = parts if all(part.is_dir() for part in parts) else [folder]
    return sorted(
        path for root in roots for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")
    )


def _assign_roles(paths: list[Path], source: Path) -> list[SourceFile]:
    """Files whose path has the word test are for testing, unless all have it: a test file alone is data of clients."""
    names = [path.name if path == source else path.relative_to(source).as_posix() for path in paths]
    tests = ["test" in re.split("[^a-z]+", name.lower()) for name in names]
    both = any(tests) and not all(tests)
    return [
        SourceFile(path, name, "test" if both and test else "train")
        for path, name, test in zip(paths, names, tests, strict=True)
    ]
