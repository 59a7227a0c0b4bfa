"""Notebooks as pages: text, code, and what the code printed and drew."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def notebook_page(path: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _parts(cell)) + "\n"


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        if "text" in output:
            yield f"```text\n{''.join(output['text']).rstrip()}\n```"
        picture = output.get("data", {}).get("image/png")
        if picture:
            alt = html.escape("".join(output["data"]["text/plain"]))
            yield f'<img alt="{alt}" src="data:image/png;base64,{picture}">'
