"""The documentation: the site builds without a warning, the reference has every public name, the tutorial runs."""

import doctest
import importlib.util
import re
import shlex
import sys

import pytest

import coreshot

CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_first_tutorial_runs_as_it_stands(call, project, tmp_path, monkeypatch):
    text = (project / "docs" / "start.md").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORESHOT_LEDGER", str(tmp_path / "ledger"))
    commands = [line for block in CONSOLE.findall(text) for line in block.splitlines()]
    assert len(commands) > 10
    for command in commands:
        code, _, errors = call(*shlex.split(command)[1:])
        assert code == 0, (command, errors)
        if command.startswith("coreshot example"):
            monkeypatch.chdir(tmp_path / "heart")
    blocks = PYTHON.findall(text)
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/start.md", "exec"), {})


def test_every_public_name_has_an_example_and_they_run():
    public = {name: getattr(coreshot, name) for name in coreshot._HOMES}
    assert [name for name, one in public.items() if ">>>" not in (one.__doc__ or "")] == []
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(verbose=False)
    for name, one in public.items():
        for found in finder.find(one, name, globs={**public, "coreshot": coreshot}):
            runner.run(found)
    assert runner.failures == 0
    assert runner.tries > 10
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    assert doctest.DocTestRunner(verbose=False).run(wrong, out=lambda text: None).failed == 1


@pytest.fixture(scope="module")
def site(project, tmp_path_factory):
    """The whole site, built once."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(project / "mkdocs.yml"), site_dir=str(folder)))
    return folder


@pytest.mark.filterwarnings("ignore")  # of the site's builder, which is not ours
def test_the_site_builds_and_has_every_public_name_and_command(site):
    reference = (site / "reference" / "api.html").read_text()
    names = set(coreshot._HOMES)
    assert names == {name for name in names if re.search(rf'id="coreshot[a-z_.]*\.{name}"', reference)}
    from typer.main import get_command

    from coreshot.cli.commands import app

    commands = (site / "reference" / "commands.html").read_text()
    assert all(f"coreshot {name}" in commands for name in get_command(app).commands)


@pytest.mark.filterwarnings("ignore")
def test_no_page_fetches_anything(site):
    for page in site.rglob("*.html"):
        fetched = re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text())
        assert fetched == [], page.name


@pytest.fixture(scope="module")
def pages(project):
    """The hook that orders the pages."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
    folder = project / "docs" / "site"
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location("pages", folder / "pages.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


def test_every_page_has_one_place(pages, project):
    names = [path.name for path in (project / "docs").glob("*.md")]
    placed = [name for section in pages.navigation(names) for part in section.values() for name in part]
    assert len(placed) == len(set(placed))
    assert set(names) <= set(placed)
    assert {"More": ["new.md"]} in pages.navigation([*names, "new.md"])


def test_a_link_that_leads_nowhere_is_an_error(pages, project):
    class Page:
        class file:
            src_path = "start.md"

    class Config:
        docs_dir = str(project / "docs")

    assert pages.on_page_markdown("[a](../bench.json)", Page, Config, None) == "a (`bench.json`)"
    with pytest.raises(pages.PluginError, match="leads nowhere"):
        pages.on_page_markdown("[a](../nothing.json)", Page, Config, None)
