"""Files in the forms in which people hold federated handwriting, read one client after another."""

from __future__ import annotations

import re
from pathlib import Path

from coreshot.config import choose
from coreshot.data.readers import leaf, npz, parquet, tff
from coreshot.data.readers.protocol import Form, SourceFile
from coreshot.errors import CoreshotError

FORMS = {
    "leaf": Form((".json",), leaf.read),
    "tff": Form((".h5", ".hdf5"), tff.read),
    "parquet": Form((".parquet",), parquet.read),
    "npz": Form((".npz",), npz.read),
}


def find_files(source: Path, form: str | None) -> tuple[str, list[SourceFile]]:
    """The form of a file or a folder, and its files in order; several forms in one folder are refused unless `form` says which."""
    if not source.exists():
        raise CoreshotError(f"{source}: there is no such file or folder; check the path.")
    paths = [source] if source.is_file() else _files_within(source)
    if form is not None:
        choose("form", form, FORMS, "--form")
    by_form = {
        name: [path for path in paths if path.suffix in known.suffixes or (form and source.is_file())]
        for name, known in FORMS.items()
    }
    found = [name for name, some in by_form.items() if some and form in (None, name)]
    if not found:
        raise CoreshotError(f"{source}: no data that coreshot can read; it reads {_known()}. Unpack an archive first.")
    if len(found) > 1:
        raise CoreshotError(f"{source}: holds files of several forms ({', '.join(found)}); say which with --form.")
    return found[0], _with_roles(by_form[found[0]], source)


def _files_within(folder: Path) -> list[Path]:
    """Where there are folders train and test, only what is in those: LEAF keeps every stage of its preparation beside them."""
    parts = [folder / "train", folder / "test"]
    roots = parts if all(part.is_dir() for part in parts) else [folder]
    return sorted(
        path for root in roots for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")
    )


def _known() -> str:
    return ", ".join(f"{' or '.join(form.suffixes)} ({name})" for name, form in FORMS.items())


def _with_roles(paths: list[Path], source: Path) -> list[SourceFile]:
    """Files whose path says test are for testing, where others beside them are not: a test file alone is somebody's data as well."""
    names = [path.name if path == source else path.relative_to(source).as_posix() for path in paths]
    tests = ["test" in re.split("[^a-z]+", name.lower()) for name in names]
    both = any(tests) and not all(tests)
    return [
        SourceFile(path, name, "test" if both and test else "train")
        for path, name, test in zip(paths, names, tests, strict=True)
    ]
