"""One row of results: a table, a split, a seed. Sites' files -> messages -> a model, beside what pooling would give.

Only what a user has is called: `coreshot study new`, the reader of a site's file, `distill`, `fit`, `predict`.
"""

from __future__ import annotations

import csv
import functools
import json
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import tomli_w
from table_generated import LOGISTIC_ROWS, dirty_table, logistic_table
from table_made import MADE, made_table
from table_peers import Data, Forecast, run_peers, score
from table_sources import Cells, Table, load_table, widen
from table_splits import Split, split_table

from coreshot import distill, fit, read_study
from coreshot.data.schema import Quantity
from coreshot.errors import CoreshotError
from coreshot.fitted.model import FittedModel
from coreshot.runtime.compilation import keep_compiled
from coreshot.study import Study
from coreshot.study.site_records import read_study_records

NUM_EXAMPLES = 240  # lines of the made-up file that `study new` looks at
CHUNK = 20_000  # records that are predicted together
MANY = 20_000  # rows of a file that is parquet: CSV of 200,000 rows takes a minute to write and read


@dataclass(frozen=True)
class Job:
    """What a row is about, and nothing about how it is computed."""

    table: str
    split: str
    seed: int
    widen: float = 1.0
    max_bytes: int | None = None  # None: as `study new` wrote it
    rows: int = LOGISTIC_ROWS  # of each site of the logistic data


def run_job(job: Job, packages: Path, peers: dict[str, Any] | None) -> dict[str, Any]:
    """The row; `peers` are those of an earlier row of this job, which do not change with coreshot."""
    keep_compiled()
    start = time.perf_counter()
    table = make_table(job, packages)
    sites, test = split_table(table, job.split, job.seed)
    with tempfile.TemporaryDirectory() as folder:
        study = make_study(job, table, Path(folder))
        ours, data, sizes, seconds = _run_ours(job, study, table, (sites, test), Path(folder))
    if peers is None:
        peers = run_peers(table.is_regression, data, _num_classes(table))
    return {
        **asdict(job),
        "task": "regression" if table.is_regression else "classification",
        "num_classes": _num_classes(table),
        "num_inputs": len(data.test_x[0]),
        "sites": [len(rows) for rows in sites],
        "num_test": len(test),
        "study": study.hash[:12],
        "bytes": max(sizes),
        "ours": ours,
        **peers,
        "seconds_ours": round(seconds, 2),
        "seconds": round(time.perf_counter() - start, 1),
    }


def make_table(job: Job, packages: Path) -> Table:
    if job.table == "logistic":
        return logistic_table(job.seed, job.rows)
    if job.table in MADE:
        return made_table(job.table, job.seed)
    return dirty_table(job.seed) if job.table == "dirty CSV" else load_table(job.table, packages)


def _num_classes(table: Table) -> int:
    return 1 if table.is_regression else len(table.target_lines["classes"])


def _run_ours(
    job: Job, study: Study, table: Table, split: Split, folder: Path
) -> tuple[dict[str, float], Data, list[int], float]:
    sites, test = split
    written = table.cells if table.dirty is None else table.dirty
    messages, parts, seconds = [], [], 0.0
    for index, rows in enumerate(sites):
        x, y = _read(study, table, written, rows, folder / f"site-{index}")
        start = time.perf_counter()
        messages.append(distill(study, x, y, client=f"site-{index}"))
        seconds += time.perf_counter() - start
        parts.append((x, y))
    test_x, test_y = _read(study, table, table.cells if job.split == "clean test" else written, test, folder / "test")
    start = time.perf_counter()
    model = fit(study, messages)
    on_test = forecast(model, test_x)
    seconds += time.perf_counter() - start
    train_x, train_y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    found = score(on_test, in_units(study, test_y), forecast(model, train_x), in_units(study, train_y))
    if table.dirty is not None and job.split != "dirty peers":  # the peers have what is true
        parts = [_read(study, table, table.cells, rows, folder / f"clean-{i}") for i, rows in enumerate(sites)]
        test_x, test_y = _read(study, table, table.cells, test, folder / "clean-test")
    of_sites = [(x, in_units(study, y)) for x, y in parts]
    return found, Data(of_sites, test_x, in_units(study, test_y)), [len(message) for message in messages], seconds


def make_study(job: Job, table: Table, folder: Path) -> Study:
    """The file that `study new` writes for such columns, with the ranges and values that are known here."""
    document = tomllib.loads(_template(json.dumps([table.name, table.columns, table.target_lines])))
    [target] = widen([table.target_lines], job.widen)
    document |= {"task": "regression" if table.is_regression else "classification", "target": target}
    document["table"]["column"] = widen(table.columns, job.widen)
    if job.max_bytes is not None:
        document["method"]["max_bytes"] = job.max_bytes
    path = folder / "study.toml"
    path.write_text(tomli_w.dumps(document), encoding="utf-8")
    return read_study(path)


@functools.cache
def _template(description: str) -> str:
    """What `coreshot study new --guess` makes of a made-up file with such columns: it knows the task and the kinds."""
    name, columns, target = json.loads(description)
    draws = np.random.default_rng(0)
    lines = [*columns, target]
    cells = [[_made_up(line, index, draws) for line in lines] for index in range(NUM_EXAMPLES)]
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "study.toml"
        examples = Path(folder) / "made-up.csv"
        with examples.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([[line["name"] for line in lines], *cells])
        command = [sys.executable, "-m", "coreshot", "study", "new", str(study), "--from", str(examples), "--guess"]
        done = subprocess.run([*command, "--target", target["name"]], capture_output=True, text=True, check=False)
        if done.returncode:
            raise CoreshotError(f"tables: `study new` refused the columns of {name}: {done.stderr.strip()}")
        return study.read_text(encoding="utf-8")


def _made_up(line: dict[str, Any], index: int, draws: np.random.Generator) -> str:
    if "range" in line:
        low, high = line["range"]
        return f"{low + (high - low) * draws.random():.6g}"
    values = line.get("values") or line["classes"]
    return str(values[index % len(values)])


def _read(study: Study, table: Table, cells: Cells, rows: np.ndarray, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Write a site's file and read it as the study encodes it."""
    columns = [column["name"] for column in table.columns]
    lines = pyarrow.table({name: pyarrow.array(cells[name][rows]) for name in [*columns, table.target]})
    if len(rows) > MANY:
        path = path.with_suffix(".parquet")
        pyarrow.parquet.write_table(lines, path)
    else:
        path = path.with_suffix(".csv")
        pyarrow.csv.write_csv(lines, path)
    records = read_study_records(study, path)
    path.unlink()
    return records.x, records.y


def forecast(model: FittedModel, x: np.ndarray) -> Forecast:
    found = [model.predict(x[first : first + CHUNK]) for first in range(0, len(x), CHUNK)]
    mean = np.concatenate([np.asarray(part.mean, np.float64) for part in found])
    deviation = np.concatenate([np.hypot(part.epistemic, part.aleatoric) for part in found])
    target = model.study.target
    if isinstance(target, Quantity):
        return Forecast(target.in_units(mean)[:, 0], target.in_units(deviation, is_deviation=True)[:, 0])
    return Forecast(mean)


def in_units(study: Study, y: np.ndarray) -> np.ndarray:
    return study.target.in_units(y)[:, 0] if isinstance(study.target, Quantity) else np.asarray(y)
