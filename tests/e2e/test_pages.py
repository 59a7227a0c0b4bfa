"""The pages in a real browser: all is shown, nothing is fetched or wrong, and a phone, paper or a keyboard is enough.

Screenshots at three widths are kept in the test run's folder (pytest prints it with --basetemp).
"""

import re
import shutil
import sys
from dataclasses import dataclass, field

import pytest

from coreshot.api import distill
from coreshot.cli.commands import main
from coreshot.data.files import read_records
from coreshot.demo.story import story_page
from coreshot.fitted.folder import by_client, open_model, write_model
from coreshot.report.model_page import evaluate_model, model_page
from coreshot.study.file import read_study, read_study_file
from stand_ins import small_story

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome", "chrome") if (path := shutil.which(name))), None
)
playwright = pytest.importorskip("playwright.sync_api", reason="the browser's driver, playwright, is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on PATH, and tests download none")

PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
WIDTHS = (390, 800, 1600)
LEAST_CONTRAST = 4.5  # WCAG 2.2, level AA, for text of usual size
# Each text that is shown: its colour and the first opaque background behind it, as rgb(...).
COLOURS = """() => {
  const found = {};
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const one = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || one.closest("svg, script, style") || !one.checkVisibility()) continue;
    let behind = one;
    while (behind && getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
    const ground = behind ? getComputedStyle(behind).backgroundColor : "rgb(255, 255, 255)";
    found[getComputedStyle(one).color + "/" + ground] = walk.currentNode.data.trim().slice(0, 40);
  }
  return found;
}"""
RUN = """
title = "two moons, for a page"
seeds = [0]
prior_precision = 0.1
task = { name = "moons", num_clients = 2, points_per_client = 12, noise_scale = 0.14, num_test = 30 }
network = { name = "mlp", hidden = [4], activation = "tanh" }
learner.noise = { name = "noise", num_points = 3, init_scale = 0.5 }
inference.adam = { name = "map_estimate", optimizer = "adam", step_size = 0.02, num_steps = 5 }
arm = [{ label = "noise + Adam", learner = "noise", inference = "adam", weighting = "mass" }]
"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )  # root, as in a container, has no sandbox
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def run_page(tmp_path_factory):
    from coreshot.experiments.preset import load_preset
    from coreshot.experiments.run import run
    from coreshot.report.run_report import write_report

    folder = tmp_path_factory.mktemp("page")
    (folder / "small.toml").write_text(RUN)
    run([load_preset(str(folder / "small.toml"))], folder / "run")
    return write_report(folder / "run")


@pytest.fixture(scope="module")
def heart_page(project, tmp_path_factory):
    """Of three sites that are drawn here, with the study of the example: 13 columns, and a client with a long name."""
    folder = tmp_path_factory.mktemp("model")
    study_file = project / "src" / "coreshot" / "examples" / "heart" / "study.toml"
    study = read_study(study_file)
    files = {}
    for index, name in enumerate(("north", "south", "a site with quite a long name - and more")):
        path = folder / f"{index}.csv"
        lines = [
            f"{40 + row % 40},{row % 2},{1 + row % 4},,,,,{90 + row},0,1.0,,,,{int(row * 7 % 40 > 19)}"
            for row in range(60 + index)
        ]
        path.write_text(
            "\n".join(["age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num", *lines]) + "\n"
        )
        records = read_records(path, study.inputs, study.target)
        files[path] = distill(study, records.x, records.y, client=name)
    fitted = write_model(folder / "model", read_study_file(study_file), by_client(files), None, "mass", 0)
    found = evaluate_model(fitted, records.x, records.y, None)
    page = folder / "page.html"
    page.write_bytes(model_page(open_model(folder / "model"), fitted, found, path.name))
    return page


@pytest.fixture(scope="module")
def inspect_page(heart_page):
    """Of the first of these sites, beside its records."""
    folder = heart_page.parent
    commands = ["inspect", "north.coreset", "--study", "study.toml", "--against", "0.csv", "--html", "north.html"]
    [message] = [data for client, data in open_model(folder / "model").coresets().items() if client == "north"]
    (folder / "north.coreset").write_bytes(message)
    (folder / "study.toml").write_text(open_model(folder / "model").study_file.text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["coreshot", *commands])
        with pytest.raises(SystemExit):
            main()
    return folder / "north.html"


@pytest.fixture(scope="module")
def demo_page(tmp_path_factory):
    """The story's page; its digits and its figures of the paper are stand-ins, its hospitals are computed."""
    page = tmp_path_factory.mktemp("demo") / "demo.html"
    page.write_bytes(story_page(small_story(page.parent)))
    return page


@dataclass
class Seen:
    """A page as it is open, and what went on behind it."""

    page: object
    messages: list = field(default_factory=list)
    requests: list = field(default_factory=list)


@pytest.fixture
def visit(browser):
    contexts = []

    def open_page(path, viewport):
        context = browser.new_context(viewport=viewport)
        contexts.append(context)
        seen = Seen(context.new_page())
        seen.page.on("console", lambda message: seen.messages.append(message.text))
        seen.page.on("pageerror", lambda error: seen.messages.append(str(error)))
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        seen.page.goto(path.as_uri(), wait_until="load")
        return seen

    yield open_page
    for context in contexts:
        context.close()


PAGES = ("run_page", "heart_page", "demo_page", "inspect_page")
TABLES = {"run_page": 3, "heart_page": 5, "demo_page": 6, "inspect_page": 5}


@pytest.fixture(params=PAGES)
def page_path(request):
    return request.param, request.getfixturevalue(request.param)


def test_tables_and_figures_are_there_and_nothing_is_fetched(visit, page_path):
    name, path = page_path
    seen = visit(path, DESK)
    seen.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    rows = seen.page.eval_on_selector_all(
        "table", "tables => tables.map(table => table.querySelectorAll('tbody tr').length)"
    )
    assert len(rows) == TABLES[name]
    assert min(rows) >= 1
    drawings = seen.page.eval_on_selector_all(
        "svg[role=img]",
        "all => all.filter(one => one.checkVisibility()).map(one => [one.clientWidth, one.querySelectorAll('path')"
        ".length, one.getAttribute('aria-label')])",
    )
    assert drawings
    assert all(width > 100 and paths > 10 and alt for width, paths, alt in drawings)
    assert seen.messages == []
    assert [url for url in seen.requests if not url.startswith("data:")] == [path.as_uri()]


def test_it_fits_a_phone(visit, page_path):
    seen = visit(page_path[1], PHONE)
    for state in ("false", "true"):  # with all that can be folded folded, and not
        seen.page.evaluate(f"document.querySelectorAll('details').forEach(one => one.open = {state})")
        width, inner = seen.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert width <= inner == PHONE["width"]


def contrast(pair):
    """The ratio of the lighter to the darker of two colours, after WCAG."""

    def luminance(colour):
        parts = [float(part) / 255 for part in re.findall(r"[\d.]+", colour)[:3]]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted(luminance(colour) for colour in pair.split("/"))
    return (light + 0.05) / (dark + 0.05)


def too_pale(page):
    return {words: pair for pair, words in page.evaluate(COLOURS).items() if contrast(pair) < LEAST_CONTRAST}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_at_every_width(visit, page_path, scheme, tmp_path):
    name, path = page_path
    seen = visit(path, DESK)
    seen.page.emulate_media(color_scheme=scheme)
    seen.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert too_pale(seen.page) == {}
    for width in WIDTHS:
        seen.page.set_viewport_size({"width": width, "height": 900})
        shown, inner = seen.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert shown <= inner == width
        seen.page.screenshot(path=tmp_path / f"{name}-{scheme}-{width}.png", full_page=True)
    ground = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (contrast(f"{ground}/rgb(0, 0, 0)") > 10) == (scheme == "light")


def test_the_page_of_a_model_takes_three_sheets_of_paper(visit, heart_page, tmp_path):
    seen = visit(heart_page, DESK)
    printed = seen.page.pdf(path=tmp_path / "model.pdf", format="A4")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 3


def test_a_keyboard_reaches_everything(visit, page_path):
    """Tab comes to every link, control, fold and table that scrolls, in the order of the page, and shows the focus."""
    seen = visit(page_path[1], DESK)
    wanted = seen.page.eval_on_selector_all(
        "a[href], summary, input, button, [tabindex='0']", "all => all.filter(one => one.checkVisibility()).length"
    )
    reached = []
    for _ in range(wanted):
        seen.page.keyboard.press("Tab")
        reached.append(
            seen.page.evaluate(
                "(() => { const one = document.activeElement; const all = [...document.querySelectorAll('*')];"
                " return [all.indexOf(one), getComputedStyle(one).outlineStyle]; })()"
            )
        )
    places = [place for place, _ in reached]
    assert wanted > 4
    assert places == sorted(set(places))
    assert all(style != "none" for _, style in reached)
    folded = seen.page.locator("summary").first
    folded.focus()
    seen.page.keyboard.press("Enter")
    assert seen.page.evaluate("document.querySelector('details').open")


def test_a_click_on_a_heading_sorts(visit, heart_page):
    """By numbers, with their units and signs; once more, the other way round."""
    page = visit(heart_page, DESK).page
    table = page.locator("#clients table")
    column = [head.strip() for head in table.locator("thead th").all_inner_texts()].index("bytes sent")
    cells = table.locator(f"tbody tr :nth-child({column + 1})")
    heading = table.locator("thead button").nth(column)
    for order, way in ((sorted, "ascending"), (lambda found: sorted(found, reverse=True), "descending")):
        heading.click()
        found = [int(text.replace(",", "")) for text in cells.all_inner_texts()]
        assert found == order(found)
        assert len(set(found)) > 1
        assert heading.locator("..").get_attribute("aria-sort") == way


BAD = """<!doctype html><title>bad</title><img src="http://127.0.0.1:9/x.png" alt="">
<script>console.log("hello"); nowhere()</script>
<div style="width: 900px; color: #999; background: #fff">wide and pale</div>"""


def test_negative_control_a_bad_page_is_seen_to_be_bad(visit, tmp_path):
    (tmp_path / "bad.html").write_text(BAD)
    seen = visit(tmp_path / "bad.html", PHONE)
    assert any("nowhere" in message for message in seen.messages)
    assert any(url.startswith("http:") for url in seen.requests)
    assert seen.page.evaluate("document.images[0].naturalWidth") == 0
    assert list(too_pale(seen.page)) == ["wide and pale"]
    assert seen.page.evaluate("document.documentElement.scrollWidth") > PHONE["width"]
