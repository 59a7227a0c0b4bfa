"""The arrays of an npz file, one by one: what is large and not compressed is memory-mapped where it lies."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from coreshot.errors import CoreshotError

BYTES_AT_ONCE = 1 << 22
FAULTS = (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)
MAGIC_OF_HEADER = 30  # bytes of a zip file's local header before the name


class NpzArchive:
    """Nothing in it is unpickled."""

    def __init__(self, path: Path, where: str) -> None:
        self._path, self._where = path, where
        try:
            with zipfile.ZipFile(path) as archive:
                infos = [info for info in archive.infolist() if info.filename.endswith(".npy")]
                self._infos = {info.filename.removesuffix(".npy"): info for info in infos}
                self.shapes: dict[str, tuple[int, ...]] = {name: self._header(archive, name)[0] for name in self._infos}
        except FAULTS as error:
            raise self._unreadable(error) from None

    def load(self, name: str) -> np.ndarray:
        try:
            with zipfile.ZipFile(self._path) as archive, archive.open(self._infos[name]) as member:
                return np.lib.format.read_array(member, allow_pickle=False)
        except FAULTS as error:
            raise self._unreadable(error) from None

    def map(self, name: str) -> np.ndarray:
        """As `load`; without reading it into memory where the file is not compressed. Its checksum is tested first."""
        info = self._infos[name]
        if info.compress_type != zipfile.ZIP_STORED or info.file_size <= BYTES_AT_ONCE:
            return self.load(name)
        try:
            with zipfile.ZipFile(self._path) as archive:
                shape, fortran, dtype, length = self._header(archive, name)
                with archive.open(info) as member:
                    while member.read(BYTES_AT_ONCE):
                        pass
            if dtype.hasobject:
                raise ValueError("Object arrays cannot be loaded")
            with self._path.open("rb") as file:
                file.seek(info.header_offset + 26)
                sizes = np.frombuffer(file.read(4), "<u2")
            start = info.header_offset + MAGIC_OF_HEADER + int(sizes.sum()) + length
            return np.memmap(self._path, dtype, "r", start, shape, "F" if fortran else "C")
        except FAULTS as error:
            raise self._unreadable(error) from None

    def _header(self, archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
        """Shape, whether in Fortran's order, type, and the length of the header."""
        with archive.open(self._infos[name]) as member:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            return *read(member), member.tell()

    def _unreadable(self, error: Exception) -> CoreshotError:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if reason.startswith("Object arrays"):
            return CoreshotError(
                f"{self._where}: not a readable npz file ({reason}); save text as numpy.array(values, dtype=str), "
                "and records of one shape as one array."
            )
        if isinstance(error, zipfile.BadZipFile) and _is_single_array(self._path):
            return CoreshotError(
                f"{self._where}: it is a single array, as in an npy file; save it with numpy.savez, which names it."
            )
        return CoreshotError(
            f"{self._where}: not a readable npz file ({reason}); it may be cut short: get it again, "
            "or save it again with numpy.savez."
        )


def _is_single_array(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX


def load_arrays(path: Path, where: str) -> dict[str, np.ndarray]:
    """All arrays of an npz file."""
    archive = NpzArchive(path, where)
    return {name: archive.load(name) for name in archive.shapes}
