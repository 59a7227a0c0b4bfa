"""A story of `coreshot demo` that takes a second: only the hospitals are computed."""

import numpy as np

from coreshot.demo.digits import DigitsStory, Quality
from coreshot.demo.heart import tell_heart
from coreshot.demo.paper import PaperStory
from coreshot.demo.story import Story
from coreshot.fitted.metrics import Metrics
from coreshot.progress import Silent
from coreshot.report.story_figures import draw_quality, draw_what_leaves
from coreshot.report.tables import Grid


def small_story(folder):
    draws = np.random.default_rng(0)
    found = Metrics(0.9, 0.3, 0.1, 0.02, None)
    lines = [Quality(name, found, sent) for name, sent in (("ours", 800.0), ("FedAvg", 9e6), ("pooled", None))]
    quality = draw_quality({line.name: line.found for line in lines})
    leaves = draw_what_leaves("site-1", draws.random((30, 8, 8, 1)), draws.normal(size=(9, 12)), 80)
    late = {
        "late": "site-2",
        "forgotten": "site-1",
        "before": 0.8,
        "after": 0.9,
        "without": 0.85,
        "one_image": 0.1,
        "apart": 1e-12,
    }
    private = [{"words": "noise", "epsilon": 8.0, "delta": 1e-5, "promise": "a promise", "found": found, "sent": 900}]
    sites = Grid(["site", "images"], [["site-1", "5"], ["site-2", "6"]])
    digits = DigitsStory(2, 11, 7, sites, 800, 700, 300, "Nothing.", lines, (0.5, 0.6), leaves, quality, late, private)
    paper = PaperStory("moons", "Moons, small", Grid(["arm", "NLL"], [["a + HMC", "0.1"]]), quality, [], [{"arm": "a"}])
    return Story(digits, tell_heart(folder / "hospitals", None, Silent()), [paper], 61.0, folder / "demo.html", folder)
