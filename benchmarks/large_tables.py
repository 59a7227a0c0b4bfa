"""`coreshot distill` of large tables, as a command: seconds and memory for each number of records, CSV and parquet.

    python benchmarks/large_tables.py [--sizes 250000,1000000] [--formats csv,parquet] [--work FOLDER]

Twenty columns of numbers with three decimals, one in fifty cells empty, and a class; the study is what `study new`
writes for a table (method glm). Seconds are of the clock, and of the process's own work in brackets. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
from many_clients import COLUMNS, run

STUDY = """format = 1
name = "large tables"
task = "classification"
[target]
name = "ill"
classes = ["no", "yes"]
[method]
name = "glm"
winsorise = true
[table]
missing = "mean"
"""
AT_ONCE = 100_000
EMPTY = 0.02  # of all cells


def write_study(path: Path) -> None:
    column = '[[table.column]]\nname = "x{}"\nkind = "number"\nrange = [-5, 5]\noutside = "clip"\n'
    path.write_text(STUDY + "".join(column.format(number) for number in range(COLUMNS)))


def write_table(path: Path, num_records: int) -> None:
    """In parts, so that memory does not grow with the length."""
    slopes, writer = np.random.default_rng(0).normal(size=COLUMNS), None
    for first in range(0, num_records, AT_ONCE):
        draws = np.random.default_rng(first + 1)
        size = min(AT_ONCE, num_records - first)
        x = np.round(draws.normal(size=(size, COLUMNS)), 3)
        y = draws.uniform(size=size) < 1 / (1 + np.exp(-x @ slopes))
        missing = draws.uniform(size=x.shape) < EMPTY
        columns = {f"x{c}": pyarrow.array(x[:, c], mask=missing[:, c]) for c in range(COLUMNS)}
        table = pyarrow.table({**columns, "ill": pyarrow.array(np.where(y, "yes", "no"))})
        if writer is None:
            make = pyarrow.parquet.ParquetWriter if path.suffix == ".parquet" else pyarrow.csv.CSVWriter
            writer = make(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures distill of large tables.")
    parser.add_argument("--sizes", default="250000,1000000")
    parser.add_argument("--formats", default="csv,parquet")
    parser.add_argument("--work", type=Path, help="a folder that keeps the tables; the default is a temporary one")
    chosen, rows = parser.parse_args(), {}
    with tempfile.TemporaryDirectory() as temporary:
        work = chosen.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        os.environ["CORESHOT_LEDGER"] = f"{temporary}/ledger.sqlite"
        write_study(work / "study.toml")
        for size in map(int, chosen.sizes.split(",")):
            for form in chosen.formats.split(","):
                table, out = work / f"table-{size}.{form}", Path(temporary) / f"{form}-{size}.coreset"
                if not table.exists():
                    write_table(table, size)
                row = rows[f"{form} {size}"] = run("distill", work / "study.toml", table, "--out", out)
                told = f"{row['seconds']:8.1f} s [{row['cpu']:7.1f}] {row['gb']:6.2f} GB"
                print(f"{size:10,} {form:8} {told}  {table.stat().st_size / 1e6:.0f} MB", flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
