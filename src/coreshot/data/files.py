"""A site's file as the records of a study: CSV, parquet, npz, or a folder of images; read, checked and encoded."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
from jaxtyping import Float

from coreshot.data.image_files import decode_image
from coreshot.data.readers.npz import INPUT_KEYS, LABEL_KEYS, load_arrays
from coreshot.data.schema import Cells, Classes, Finding, Images, Quantity, Table
from coreshot.errors import CoreshotError

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")


@dataclass(frozen=True)
class EncodedRecords:
    """Inputs and targets for a model; y is None if no targets were asked for."""

    x: Float[np.ndarray, "n ..."]
    y: Any
    findings: list[Finding]


def read_records(
    path: Path, inputs: Table | Images, target: Classes | Quantity, *, needs_target: bool = True
) -> EncodedRecords:
    where = str(path)
    if not path.exists():
        raise CoreshotError(f"{where}: there is no such file or folder; give CSV, parquet, npz, or a folder of images.")
    if isinstance(inputs, Images):
        images, labels = _read_images(path, inputs, target)
        cells: Mapping[str, Any] = {target.name: labels} if labels is not None else {}
        x, findings = inputs.encode(images, where)
    else:
        cells = read_columns(path)
        x, findings = inputs.encode(cells, where)
    if len(x) == 0:
        raise CoreshotError(f"{where}: holds no records; give a file with at least one.")
    if not needs_target:
        return EncodedRecords(x, None, findings)
    if target.name not in cells:
        raise CoreshotError(f"{where}: there is no column {target.name!r}, which is what is to be learned; add it.")
    y, finding = target.encode(cells[target.name], where)
    return EncodedRecords(x, y, [*findings, finding])


def read_arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of a study without a schema, whose records are arrays: an npz file."""
    if not path.exists():
        raise CoreshotError(f"{path}: there is no such file; give an npz file.")
    arrays = load_arrays(path, str(path))
    inputs, labels = (next((arrays[key] for key in keys if key in arrays), None) for keys in (INPUT_KEYS, LABEL_KEYS))
    if inputs is None or labels is None:
        names = ", ".join(arrays) or "none"
        raise CoreshotError(
            f"{path}: has arrays {names}; save inputs as {' or '.join(INPUT_KEYS)} "
            f"and targets as {' or '.join(LABEL_KEYS)}."
        )
    return inputs, labels


def read_columns(path: Path) -> dict[str, Cells]:
    """The columns of a table by name; their cells are text or numbers."""
    suffix = path.suffix.lower()
    try:
        if suffix == ".csv":
            return _read_csv(path)
        if suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
            return {name: table.column(name).to_pylist() for name in table.column_names}
        if suffix == ".npz":
            return {name: array.tolist() for name, array in load_arrays(path, str(path)).items() if array.ndim == 1}
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        is_encoding = "utf8" in str(error).lower().replace("-", "")
        advice = "save it as UTF-8" if is_encoding else "give a whole CSV, parquet or npz file"
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CoreshotError(f"{path}: cannot be read ({reason}); {advice}.") from None
    raise CoreshotError(f"{path}: a table is a file ending in .csv, .parquet or .npz; give one of these.")


def check_header(names: Sequence[str], path: Path) -> list[str]:
    """Column names without spaces around them; two that are the same are refused."""
    clean = [unicodedata.normalize("NFC", name.strip()) for name in names]
    for mark, word in ((";", "';'"), ("\t", "tabs")):
        if len(clean) == 1 and mark in clean[0]:
            raise CoreshotError(f"{path}: its columns are separated by {word}; save it with commas.")
    twice = next((name for name in clean if clean.count(name) > 1), None)
    if twice is not None:
        raise CoreshotError(f"{path}: two columns are called {twice!r}; rename one.")
    return clean


def _read_csv(path: Path) -> dict[str, Cells]:
    names = pyarrow.csv.open_csv(
        path, convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True)
    ).schema.names
    clean = check_header(names, path)
    as_text = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pyarrow.string()), strings_can_be_null=True, quoted_strings_can_be_null=True
    )
    table = pyarrow.csv.read_csv(path, convert_options=as_text)
    return {name: column.to_pylist() for name, column in zip(clean, table.columns, strict=True)}


def _read_images(path: Path, inputs: Images, target: Classes | Quantity) -> tuple[np.ndarray, Cells | None]:
    if path.is_dir():
        return _read_image_folder(path, inputs)
    if path.suffix.lower() != ".npz":
        raise CoreshotError(
            f"{path}: images are an npz file with {' or '.join(INPUT_KEYS)}, "
            "or a folder with one folder a class; give one of these."
        )
    arrays = load_arrays(path, str(path))
    key = next((key for key in INPUT_KEYS if key in arrays), None)
    if key is None:
        raise CoreshotError(
            f"{path}: has arrays {', '.join(arrays) or 'none'}, but none called {' or '.join(INPUT_KEYS)}; "
            "save the images as one."
        )
    label_key = next((name for name in (target.name, *LABEL_KEYS) if name in arrays), None)
    labels = arrays[label_key] if label_key else None
    if arrays[key].ndim < 3 or arrays[key].dtype.kind not in "buif" or (labels is not None and labels.ndim != 1):
        raise CoreshotError(
            f"{path}: images are an array [number, lines, columns(, channels)] of numbers, "
            "labels one of [number]; save them so."
        )
    if labels is not None and len(labels) != len(arrays[key]):
        raise CoreshotError(f"{path}: has {len(arrays[key])} images and {len(labels)} labels; give one for each.")
    return arrays[key], None if labels is None else labels.tolist()


def _read_image_folder(path: Path, inputs: Images) -> tuple[np.ndarray, Cells | None]:
    """path/CLASS/*.png, or path/*.png without classes."""
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
    if not files:
        raise CoreshotError(
            f"{path}: holds no images ({', '.join(IMAGE_SUFFIXES)}); give a folder with one folder a class."
        )
    images = np.stack([_read_image(file, inputs) for file in files])
    loose = [file for file in files if file.parent == path]
    if loose and len(loose) < len(files):
        raise CoreshotError(f"{loose[0]}: lies beside the folders of the classes; move it into one of them.")
    return images, None if loose else [file.relative_to(path).parts[0] for file in files]


def _read_image(file: Path, inputs: Images) -> np.ndarray:
    pixels = decode_image(file, str(file), 1 if inputs.shape[2] == 1 else 3)
    if pixels.shape != inputs.shape:
        raise CoreshotError(f"{file}: is {pixels.shape}, the study wants {inputs.shape}; resize it.")
    return pixels
