"""One look for all pages: a run's report and a model's page. Everything is inside the file; nothing is fetched."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from coreshot.report.drawing import Drawing


@dataclass(frozen=True)
class Grid:
    """A table as text: the terminal and the page show the same one. Columns from `first_number` on are numbers."""

    headings: list[str]
    lines: list[list[str]]
    first_number: int = 1


def render_page(template: str, **values: Any) -> bytes:
    environment = Environment(
        loader=PackageLoader("coreshot"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values).encode()


def shown_image(drawing: Drawing, png: bytes) -> dict[str, Any]:
    return {"png": base64.b64encode(png).decode(), "alt": drawing.alt, "caption": drawing.caption}
