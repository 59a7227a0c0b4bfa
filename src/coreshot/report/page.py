"""HTML pages from templates. A page holds its style and its images itself and fetches nothing."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from coreshot.report.drawing import Drawing, page_svg


def render_page(template: str, **values: Any) -> bytes:
    environment = Environment(
        loader=PackageLoader("coreshot"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values).encode()


def embed_drawing(drawing: Drawing) -> dict[str, Any]:
    """What a template needs to show a drawing."""
    return {"svg": Markup(page_svg(drawing)), "alt": drawing.alt, "caption": drawing.caption}
