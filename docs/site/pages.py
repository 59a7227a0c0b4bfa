"""A hook of mkdocs: the order of the pages, and the reference, which is made from the program itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from notebook_pages import notebook_page
from reference import api_page, commands_page, settings_page, wire_page

# The order for a newcomer. A page that is written later and stands in no section comes under the last one.
SECTIONS: dict[str, list[str]] = {
    "Start": ["index.md", "start.md", "notebooks/first-study.md", "heart.md"],
    "For data owners": ["for-sites.md", "privacy.md", "budget.md", "at-work.md", "flower-site.md"],
    "For coordinators": ["study.md", "fitting.md", "features.md", "flower-coordinator.md"],
    "For researchers": [
        "researchers.md",
        "notebooks/paper.md",
        "reproduction.md",
        "your-data.md",
        "data.md",
        "add-a-part.md",
    ],
    "How it works": [
        "how-it-works.md",
        "glm.md",
        "spectral.md",
        "learners.md",
        "bpc.md",
        "follow-one-datum.md",
        "private-methods.md",
        "audit.md",
        "security.md",
        "performance.md",
    ],
    "Results": [
        "results.md",
        "tables.md",
        "handwriting.md",
        "baselines.md",
        "ablations.md",
        "synthetic.md",
        "private-results.md",
    ],
    "Reference": [],
}
REFERENCE = {
    "reference/commands.md": commands_page,
    "reference/api.md": api_page,
    "reference/study-file.md": settings_page,
    "reference/wire.md": wire_page,
}
LINK_OUT = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)(?:#[^)]*)?\)")


def navigation(names: list[str]) -> list[dict[str, list[str]]]:
    """Each page once: in its section, or under "More"."""
    listed = {name for pages in SECTIONS.values() for name in pages}
    found = {title: [name for name in pages if name in names] for title, pages in SECTIONS.items()}
    found["Reference"] = list(REFERENCE)
    more = sorted(name for name in names if name not in listed)
    if more:
        found["More"] = more
    return [{title: pages} for title, pages in found.items()]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    docs = Path(config.docs_dir)
    names = [path.name for path in docs.glob("*.md")] + ["index.md", *map(_page_name, docs.glob("notebooks/*.ipynb"))]
    config.nav = navigation(names)
    return config


def _page_name(notebook: Path) -> str:
    return f"notebooks/{notebook.stem}.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The first page is the README; the reference is made."""
    for name, make in REFERENCE.items():
        files.append(File.generated(config, name, content=make()))
    for path in sorted(Path(config.docs_dir).glob("notebooks/*.ipynb")):
        files.append(File.generated(config, _page_name(path), content=notebook_page(path)))
    readme = (Path(config.docs_dir).parent / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=readme))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """A link to a file of the repository that is no page becomes its path; one that leads nowhere is an error."""
    root = Path(config.docs_dir).parent
    if "/" in page.file.src_path:  # made here
        return markdown

    def name_it(found: re.Match[str]) -> str:
        target = found[2].removeprefix("../")
        if not (root / target).exists():
            raise PluginError(f"{page.file.src_path}: [{found[1]}]({found[2]}) leads nowhere; mend the link.")
        return f"{found[1]} (`{target}`)" if target not in found[1] else f"`{target}`"

    return LINK_OUT.sub(name_it, markdown)
