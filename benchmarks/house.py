"""Is the house in order? The package graph and the counts that CONTRIBUTING.md sets limits for, from the source alone.

    python benchmarks/house.py [--before COMMIT]

Exit code 1 where a limit is passed. With --before, lines of source at that commit stand beside those of now.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "coreshot"
MAX_TOP_MODULES, MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_LINE_LENGTH, MAX_IGNORES = 10, 400, 60, 120, 15
POSTERIOR_PACKAGES = {"inference", "spectral", "glm"}  # where the kinds of posterior live
# Functions that may be longer, each with its reason.
LONG_FUNCTIONS: dict[str, str] = {}


def source_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_packages(path: Path) -> set[str]:
    """Packages of coreshot that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("coreshot.")}
    return found


def package_graph() -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for path in source_files():
        name = package_of(path)
        if name not in ("__init__", "__main__"):
            graph.setdefault(name, set()).update(imported_packages(path) - {name})
    known = set(graph)
    return {name: targets & known for name, targets in graph.items()}


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """Packages of one cycle, or none."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for target in sorted(graph[name]):
            if cycle := visit(target, [*path, name]):
                return cycle
        done.add(name)
        return []

    return next((cycle for name in sorted(graph) if (cycle := visit(name, []))), [])


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{path.relative_to(SOURCE)}:{node.name}", (node.end_lineno or 0) - node.lineno + 1


def count(text: str) -> tuple[int, int, int]:
    """Lines, lines with code (not blank, not a comment, not a docstring), and statements, the same in any layout."""
    tree, skipped, statements = ast.parse(text), set[int](), 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            skipped |= set(range(node.lineno, (node.end_lineno or 0) + 1))
        elif isinstance(node, ast.stmt):
            statements += 1
    layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    kept = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in layout and token.string
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(text.splitlines()), len(kept - skipped), statements


def total(texts: Iterable[str]) -> str:
    lines, code, statements = (sum(part) for part in zip(*map(count, texts), strict=True))
    return f"{lines:,} lines, {code:,} of them code, {statements:,} statements"


def texts_at(commit: str) -> list[str]:
    names = _git("ls-tree", "-r", "--name-only", commit, "src/coreshot").splitlines()
    return [_git("show", f"{commit}:{name}") for name in names if name.endswith(".py")]


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def capability_checks(path: Path) -> list[str]:
    """hasattr anywhere; isinstance against a posterior's class outside the packages that define them."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        where = f"{path.relative_to(SOURCE)}:{node.lineno}"
        if node.func.id == "hasattr":
            found.append(f"{where} hasattr")
        elif (
            node.func.id == "isinstance"
            and "Posterior" in ast.unparse(node.args[1])
            and package_of(path) not in POSTERIOR_PACKAGES
        ):
            found.append(f"{where} isinstance of a posterior")
    return found


def show(name: str, found: list[str], limit: int = 0) -> bool:
    """Print a count with its limit, and what is counted where the limit is passed."""
    is_over = len(found) > limit
    print(f"{name}: {len(found)} (at most {limit})" + (" <- too many" if is_over else ""))
    for line in found if is_over else []:
        print(f"    {line}")
    return is_over


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--before", metavar="COMMIT", help="also count the lines of source at this commit")
    before = parser.parse_args().before
    files, graph = source_files(), package_graph()
    edges = sum(map(len, graph.values()))
    print(f"packages and top modules: {len(graph)}, edges between them: {edges}")
    for name in sorted(graph):
        print(f"    {name} -> {', '.join(sorted(graph[name])) or 'nothing'}")
    cycle = find_cycle(graph)
    failed = [show("cycles", [" -> ".join(cycle)] if cycle else [])]
    top = [path.name for path in SOURCE.glob("*.py")]
    failed.append(show("modules at the top", sorted(top), MAX_TOP_MODULES))
    texts = {path: path.read_text() for path in files}
    sizes = [f"{path.relative_to(SOURCE)}: {len(text.splitlines())}" for path, text in texts.items()]
    long_files = [line for line in sizes if int(line.rpartition(" ")[2]) > MAX_FILE_LINES]
    failed.append(show(f"files over {MAX_FILE_LINES} lines", long_files))
    long_functions = [
        f"{name}: {size}"
        for path in files
        for name, size in functions(path)
        if size > MAX_FUNCTION_LINES and name not in LONG_FUNCTIONS
    ]
    failed.append(show(f"functions over {MAX_FUNCTION_LINES} lines without a reason", long_functions))
    for name, reason in LONG_FUNCTIONS.items():
        print(f"    {name}: {reason}")
    wide = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > MAX_LINE_LENGTH
    ]
    failed.append(show(f"lines over {MAX_LINE_LENGTH} characters", wide))
    ignores = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(r"#\s*type: ignore", line)
    ]
    failed.append(show("type: ignore", ignores, MAX_IGNORES - 1))
    checks = [found for path in files for found in capability_checks(path)]
    failed.append(show("hasattr, and isinstance of a posterior outside its package", checks))
    print(f"source now: {total(texts.values())}, in {len(files)} files")
    if before:
        print(f"at {before}: {total(texts_at(before))}")
    sys.exit(1 if any(failed) else 0)


if __name__ == "__main__":
    main()
