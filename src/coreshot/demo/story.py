"""The demo: both studies and the paper's figures, computed, and the one page that tells them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coreshot.demo.digits import DigitsStory, tell_digits
from coreshot.demo.heart import HeartStory, tell_heart
from coreshot.demo.paper import PRESETS, PaperStory, tell_paper
from coreshot.errors import CoreshotError
from coreshot.progress import Progress
from coreshot.report.drawing import render
from coreshot.report.page import embed_drawing, render_page
from coreshot.report.tables import Grid
from coreshot.report.units import format_bytes, format_seconds
from coreshot.storage import write_bytes

HEADINGS = ["who", "accuracy", "NLL", "ECE", "sent"]


@dataclass(frozen=True)
class Story:
    digits: DigitsStory
    heart: HeartStory
    paper: list[PaperStory]
    seconds: float
    page: Path
    folder: Path

    @property
    def verdict(self) -> str:
        ours, rounds, pooled = self.digits.lines[:3]
        return (
            f"Ten sites sent one file each, {format_bytes(self.digits.file_bytes)} in all. The model that was fitted "
            f"to the files is right about {_percent(ours.found.accuracy)} of new digits. FedAvg is right about "
            f"{_percent(rounds.found.accuracy)} after it has sent {format_bytes(rounds.sent or 0)}, and a network that "
            f"sees all images in one place about {_percent(pooled.found.accuracy)}."
        )

    @property
    def next_commands(self) -> list[tuple[str, str]]:
        hospitals = self.folder / "hospitals"
        return [
            (
                f"coreshot inspect {hospitals}/va.coreset --study {hospitals}/study.toml --html {hospitals}/va.html",
                "what the file of a hospital tells, before it leaves",
            ),
            (
                f"coreshot evaluate {hospitals}/model {hospitals}/held-out.csv",
                f"how good the model of the hospitals is; its page is {hospitals}/model.html",
            ),
            (
                f"coreshot study new my-study.toml --from {hospitals}/cleveland.csv --target num --guess",
                "a study of your own: put your table and its target there",
            ),
        ]


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.1f}\u00a0%"  # the sign stays with its number


def tell(folder: Path, real: Path | None, progress: Progress) -> Story:
    """The paper's figures are computed beside the studies, on the other core."""
    if folder.exists() and any(folder.iterdir()):
        raise CoreshotError(f"{folder}: is there already and not empty; give another folder with --out, or remove it.")
    began = time.perf_counter()
    with ThreadPoolExecutor(1) as other:
        figures = [other.submit(tell_paper, name, folder / "paper") for name in PRESETS]
        try:
            digits = tell_digits(progress)
            heart = tell_heart(folder / "hospitals", real, progress)
            progress.begin("the paper's two figures: BPC-FL on moons and regression", len(figures))
            paper = []
            for one in figures:
                paper.append(one.result())
                progress.advance()
            progress.end()
        except BaseException:
            for one in figures:
                one.cancel()
            raise
    story = Story(digits, heart, paper, time.perf_counter() - began, folder / "demo.html", folder)
    write_bytes(folder / "what-leaves.png", render(digits.leaves, "png"))
    write_bytes(story.page, story_page(story))
    return story


def quality_grid(story: DigitsStory) -> Grid:
    return Grid(HEADINGS, [line.cells() for line in story.lines])


def private_grid(story: DigitsStory) -> Grid:
    lines = [
        [
            f"epsilon {one['epsilon']:.3g}: {one['words']}",
            f"{one['found'].accuracy:.3f}",
            f"{one['found'].nll:.3f}",
            f"{one['found'].ece:.3f}",
            format_bytes(one["sent"]),
        ]
        for one in story.private
    ]
    first = story.lines[0].cells()
    return Grid(["promise", *HEADINGS[1:]], [["none (above)", *first[1:]], *lines])


def story_page(story: Story) -> bytes:
    digits, heart = story.digits, story.heart
    ours, rounds = digits.lines[:2]
    return render_page(
        "story.html.j2",
        seconds=format_seconds(story.seconds),
        verdict=story.verdict,
        cards=[
            (format_bytes(digits.file_bytes / digits.num_sites), "leave each site, once"),
            (_percent(ours.found.accuracy), f"of new digits are right; FedAvg: {_percent(rounds.found.accuracy)}"),
            (f"{(rounds.sent or 0) / digits.file_bytes:,.0f} times", "as many bytes are sent by FedAvg"),
            ("0 bytes", "differ after a site is forgotten") if heart.is_same else ("differ", "after forgetting"),
        ],
        digits=digits,
        results=quality_grid(digits),
        private=private_grid(digits),
        leaves=embed_drawing(digits.leaves),
        quality=embed_drawing(digits.quality),
        late=digits.late,
        raw=format_bytes(digits.raw_bytes),
        packed=format_bytes(digits.packed_bytes),
        sent=format_bytes(digits.file_bytes),
        heart=heart,
        largest=format_bytes(heart.largest_file),
        columns=embed_drawing(heart.columns),
        paper=[_paper_part(one) for one in story.paper],
        next=story.next_commands,
    )


def _paper_part(story: PaperStory) -> dict[str, Any]:
    sampling = "A posterior without chains." if story.r_hat is None else f"The chains agree (R-hat {story.r_hat:.3f})."
    return {"story": story, "figure": embed_drawing(story.figure), "sampling": sampling}
