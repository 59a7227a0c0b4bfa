"""Run notebooks and write what they print and draw into them: python benchmarks/notebooks.py docs/notebooks/*.ipynb

It needs no Jupyter: cells are plain Python. A cell's last expression is shown; a figure is shown as PNG.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

from coreshot.report.drawing import Drawing, render


def run_notebook(notebook: dict[str, Any], where: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """The notebook with the outputs of its code cells, which run one after the other with the same names."""
    names = {"__name__": "__main__"} if names is None else names
    cells = [
        _run_cell(cell, f"{where}, cell {place}", names) if cell["cell_type"] == "code" else cell
        for place, cell in enumerate(notebook["cells"])
    ]
    return {**notebook, "cells": cells}


def _run_cell(cell: dict[str, Any], where: str, names: dict[str, Any]) -> dict[str, Any]:
    tree = ast.parse("".join(cell["source"]), where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, where, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(True)})
    if value is not None:
        outputs.append({"output_type": "display_data", "metadata": {}, "data": _data(value)})
    return {**cell, "outputs": outputs, "execution_count": None}


def _data(value: Any) -> dict[str, Any]:
    if isinstance(value, Drawing):
        return {"image/png": base64.b64encode(render(value, "png")).decode(), "text/plain": [value.alt]}
    return {"text/plain": [repr(value)]}


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        done = run_notebook(json.loads(path.read_text(encoding="utf-8")), path.name)
        path.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
