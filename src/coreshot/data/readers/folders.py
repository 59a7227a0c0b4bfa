"""Folders of image files: CLIENT/CLASS/*.png, or CLASS/*.png without clients; below train and test, where they are.

A folder of a class is one source: the names of folders are the names of clients and classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from coreshot.data.image_files import decode_image
from coreshot.data.readers.protocol import NOBODY, Batch, SourceFile, stack_records
from coreshot.data.store import Role
from coreshot.errors import CoreshotError

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
SPLIT_FOLDERS: dict[str, Role] = {"train": "train", "test": "test"}
IMAGES_AT_ONCE = 512


def find_class_folders(source: Path) -> list[SourceFile]:
    """The folders that hold images, in order, with their roles."""
    if not source.is_dir():
        raise CoreshotError(f"{source}: is no folder; --form folders reads DIR/CLIENT/CLASS/*.png.")
    roots: dict[Path, Role] = {source: "train"}
    if _is_split(source):
        roots = {source / name: role for name, role in SPLIT_FOLDERS.items()}
    found = []
    for root, role in roots.items():
        for folder in sorted({path.parent for path in root.rglob("*") if is_image(path)}):
            found.append(SourceFile(folder, folder.relative_to(source).as_posix(), role))
            _check_depth(source, root, folder)
    if not found:
        raise CoreshotError(
            f"{source}: holds no images ({', '.join(IMAGE_SUFFIXES)}); put them into folders CLIENT/CLASS."
        )
    return found


def is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()


def list_images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if is_image(path))


def _check_depth(source: Path, root: Path, folder: Path) -> None:
    depth = len(folder.relative_to(root).parts)
    if depth not in (1, 2):
        name = folder.relative_to(source).as_posix()
        raise CoreshotError(
            f"{source}: images lie in {'the folder itself' if name == '.' else name}, and should lie in CLIENT/CLASS, "
            "or in CLASS where there are no clients; move them."
        )


def read_class_folder(folder: SourceFile) -> Iterator[Batch]:
    parts = folder.path.parts[-2:] if _has_client(folder) else folder.path.parts[-1:]
    client = parts[0] if len(parts) == 2 else None
    owner = NOBODY if client is None and folder.role == "test" else client
    paths = list_images(folder.path)
    for first in range(0, len(paths), IMAGES_AT_ONCE):
        some = paths[first : first + IMAGES_AT_ONCE]
        names = [f"{folder.name}/{path.name}" for path in some]
        images = [
            decode_image(path, name, folder.reading.channels, folder.reading.size)
            for path, name in zip(some, names, strict=True)
        ]
        yield Batch(
            folder.name, owner, folder.role, stack_records(images, names), [parts[-1]] * len(some), is_complete=False
        )


def _has_client(folder: SourceFile) -> bool:
    """Below train and test, the first part of the name is not a client's."""
    parts = folder.name.split("/")
    source = folder.path.parents[len(parts) - 1]
    return len(parts) - _is_split(source) == 2


def _is_split(source: Path) -> bool:
    """Whether there are folders train and test, or train and nothing else."""
    below = {path.name for path in source.iterdir() if path.is_dir() and not path.name.startswith(".")}
    return set(SPLIT_FOLDERS) <= below or below == {"train"}
