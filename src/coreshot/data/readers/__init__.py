"""Files in the formats in which people hold federated data, read one client after another."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from coreshot.config import choose
from coreshot.data.readers.csv import read_csv
from coreshot.data.readers.folders import IMAGE_SUFFIXES, find_class_folders, read_class_folder
from coreshot.data.readers.leaf import read_leaf
from coreshot.data.readers.npz import read_npz
from coreshot.data.readers.parquet import read_parquet
from coreshot.data.readers.protocol import FileFormat, SourceFile
from coreshot.data.readers.reading import Reading
from coreshot.data.readers.tff import read_tff
from coreshot.errors import CoreshotError

FILE_FORMATS = {
    "leaf": FileFormat((".json",), read_leaf, preparation="handwriting"),
    "tff": FileFormat((".h5", ".hdf5"), read_tff, preparation="handwriting"),
    "parquet": FileFormat((".parquet",), read_parquet),
    "csv": FileFormat((".csv",), read_csv),
    "npz": FileFormat((".npz",), read_npz),
    "folders": FileFormat(IMAGE_SUFFIXES, read_class_folder, find=find_class_folders),
}
OFTEN_BESIDE = ("csv", "folders")
# What a user may say about files of a format; LEAF and TFF name their clients themselves.
KNOWN_OPTIONS = {
    "leaf": ("inputs", "labels", "class_names"),
    "tff": ("inputs", "labels", "class_names"),
    "folders": ("size", "channels"),
}


def find_files(source: Path, form: str | None, reading: Reading | None = None) -> tuple[str, list[SourceFile]]:
    """The format of a file or a folder, and its files in order. Several formats in one folder need `form`."""
    if not source.exists():
        raise CoreshotError(f"{source}: there is no such file or folder; check the path.")
    if form is not None:
        choose("form", form, FILE_FORMATS, "--form")
    form, files = _find(source, form)
    reading = reading or Reading()
    for option in reading.options():
        if option not in KNOWN_OPTIONS.get(form, tuple(vars(reading))):
            raise CoreshotError(
                f"--{option.replace('_', '-')}: it says nothing about files of the form {form}; leave it out."
            )
    return form, [replace(file, reading=reading) for file in files]


def _find(source: Path, form: str | None) -> tuple[str, list[SourceFile]]:
    paths = [source] if source.is_file() else _list_files(source)
    by_format = {
        name: [path for path in paths if path.suffix.lower() in known.suffixes or (form and source.is_file())]
        for name, known in FILE_FORMATS.items()
    }
    found = [name for name, some in by_format.items() if some and form in (None, name)]
    # Tables and pictures lie beside data of other forms, and are then not the data.
    found = [name for name in found if name not in OFTEN_BESIDE] or found
    if not found:
        known = ", ".join(f"{' or '.join(one.suffixes)} ({name})" for name, one in FILE_FORMATS.items())
        raise CoreshotError(f"{source}: no data that coreshot can read; it reads {known}. Unpack an archive first.")
    if len(found) > 1:
        raise CoreshotError(f"{source}: holds files of several forms ({', '.join(found)}); say which with --form.")
    find = FILE_FORMATS[found[0]].find
    return found[0], find(source) if find else _assign_roles(by_format[found[0]], source)


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
