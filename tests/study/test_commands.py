"""A study, one file out, one model back: through the commands, as a person in an empty folder would use them."""

import json
import os
import shutil
import signal

import numpy as np
import pytest
from PIL import Image

from coreshot.progress import Lines


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_distill_fit_evaluate_predict(coreshot, study_path, three_coresets, write_site, tmp_path):
    told = coreshot("fit", *three_coresets, "--study", study_path, "--out", "model")
    assert "clients: north, south, west" in told
    test = write_site("test", count=200, seed=9)
    found = json.loads(coreshot("evaluate", "model", test, "--json"))
    assert found["records"] == 200
    assert found["accuracy"] > 0.7
    coreshot("predict", "model", test, "--out", "pred.csv")
    lines = (tmp_path / "pred.csv").read_text().splitlines()
    assert lines[0] == (
        "record,predicted,probability of no,probability of yes,uncertainty of the model,unlike the training data"
    )
    assert len(lines) == 201
    first = lines[1].split(",")
    assert float(first[2]) + float(first[3]) == pytest.approx(1, abs=0.0011)  # three digits each
    assert all(path.stat().st_size < 3000 for path in three_coresets)


def test_order_late_arrival_and_forgetting_give_the_same_bytes(coreshot, study_path, three_coresets, tmp_path):
    north, south, west = three_coresets
    coreshot("fit", north, south, "--study", study_path, "--out", "two")
    coreshot("fit", south, west, north, "--study", study_path, "--out", "three")
    coreshot("fit", south, north, "--study", study_path, "--out", "late")
    coreshot("fit", "--add", west, "late")
    assert files_of(tmp_path / "late") == files_of(tmp_path / "three")
    coreshot("forget", "late", "--client", "west")
    assert files_of(tmp_path / "late") == files_of(tmp_path / "two")


def test_nothing_is_overwritten(coreshot, study_path, three_coresets, write_site):
    site = write_site("north2")
    for words in (
        ("distill", study_path, site, "--out", "north.coreset"),
        ("study", "new", study_path, "--image", "8,8,1", "--classes", "a,b"),
    ):
        assert "is there already" in coreshot(*words, code=2)
    coreshot("fit", *three_coresets, "--study", study_path, "--out", "model")
    assert "is there already; add to it with --add" in coreshot(
        "fit", *three_coresets, "--study", study_path, "--out", "model", code=2
    )
    assert "client north is in it already" in coreshot("fit", "--add", three_coresets[0], "model", code=2)


def test_mistakes_get_one_sentence(coreshot, study_path, three_coresets, write_site, tmp_path):
    site = write_site("east", change=lambda lines: [*lines[:3], "999,f,100,0", *lines[3:]])
    assert "east.csv: record 3 has a cell in 'age' outside the study's 20 to 100" in coreshot(
        "distill", study_path, site, "--out", "e.coreset", code=2
    )
    assert not (tmp_path / "e.coreset").exists()
    for words, message in (
        (("distill", "none.toml", site, "--out", "e.coreset"), "there is no such file"),
        (("distill", study_path, "none.csv", "--out", "e.coreset"), "there is no such file or folder"),
        (("fit", "none.coreset", "--study", study_path, "--out", "m"), "cannot be read"),
        (("fit", site, "--study", study_path, "--out", "m"), "not a coreshot message"),
        (("forget", tmp_path, "--client", "a"), "holds no coreshot model"),
        (("evaluate", tmp_path, site), "holds no coreshot model"),
        (("fit", *three_coresets), "needs --study FILE and --out FOLDER"),
        (("distill", study_path, site, "--out", "e.coreset", "--client", "../evil"), "a name has at most 64 letters"),
    ):
        assert message in coreshot(*words, code=2)
    other = tmp_path / "other.toml"
    other.write_text(study_path.read_text().replace("range = [20, 100]", "range = [10, 100]"))
    assert "belongs to study" in coreshot("fit", *three_coresets, "--study", other, "--out", "m", code=2)
    coreshot("fit", *three_coresets[1:], "--study", study_path, "--out", "model")
    coreshot("distill", other, write_site("again"), "--out", "foreign.coreset", "--client", "south")
    # Its client is in the model already; that it is of another study is what matters.
    told = coreshot("fit", "--add", "foreign.coreset", "model", code=2)
    hashes = [json.loads(coreshot("study", "check", path, "--json"))["hash"][:12] for path in (other, study_path)]
    assert f"foreign.coreset: belongs to study {hashes[0]}, but model is study {hashes[1]} ('small')" in told
    assert "already" not in told
    told = coreshot("fit", *three_coresets, "foreign.coreset", "--study", study_path, "--out", "m", code=2)
    assert f"foreign.coreset: belongs to study {hashes[0]}" in told
    shutil.copy(three_coresets[0], tmp_path / "again.coreset")
    coreshot(
        "fit", three_coresets[0], "again.coreset", three_coresets[1], "--study", study_path, "--out", "once"
    )  # the same file twice is one


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("format = 1", "format = 9"), "is of format 9"),
        (lambda text: text.replace('kind = "category"', 'kind = "number"'), "a number has range = [low, high]"),
        (lambda text: text.replace("[method]", "[metod]"), "unknown key 'metod'"),
        (lambda text: text.replace('name = "age"', 'name = "ill"'), "'ill' is both a column and the target"),
        (lambda text: text.replace("dimension = 7", "dimension = 5"), "identity of dimension 5"),
        (lambda text: text + "\n[privacy]\nepsilon = 1.0\ndelta = 1e-5\n", "keeps no promise"),
        (lambda text: text.replace("[target]", "[target"), "not valid TOML"),
        (lambda text: text.replace('task = "classification"', 'task = "regression"'), "make task and [target] agree"),
    ],
)
def test_bad_studies(coreshot, study_path, write_site, change, message):
    study_path.write_text(change(study_path.read_text()))
    assert message in coreshot("distill", study_path, write_site("a"), "--out", "a.coreset", code=2)


def test_a_new_study_must_be_filled_in_and_a_guessed_one_works(coreshot, write_site, tmp_path):
    site = write_site("sample")
    coreshot("study", "new", "empty.toml", "--from", site, "--target", "ill")
    assert "4 lines still say FILL IN: 11 (classes of target)" in coreshot("study", "check", "empty.toml", code=2)
    coreshot("study", "new", "guessed.toml", "--from", site, "--target", "ill", "--guess")
    facts = json.loads(coreshot("study", "check", "guessed.toml", "--json"))
    assert facts["num_outputs"] == 3
    assert "No promise" in facts["promise"]
    coreshot("distill", "guessed.toml", site, "--out", "sample.coreset")
    assert "not among the columns" in coreshot("study", "new", "x.toml", "--from", site, "--target", "nothing", code=2)


def test_images_in_folders_and_in_npz_are_the_same_records(coreshot, tmp_path):
    draws = np.random.default_rng(0)
    coreshot("study", "new", "images.toml", "--image", "12,12,1", "--classes", "a,b")
    images, labels = draws.integers(0, 256, (12, 12, 12), dtype=np.uint8), np.asarray(["a", "b"] * 6)
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        (tmp_path / "folder" / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "folder" / label / f"{index:02}.png")
    order = np.argsort(labels, kind="stable")
    np.savez(tmp_path / "site.npz", images=images[order], labels=labels[order])
    coreshot("distill", "images.toml", "folder", "--out", "one.coreset", "--client", "site")
    coreshot("distill", "images.toml", "site.npz", "--out", "two.coreset", "--client", "site")
    assert (tmp_path / "one.coreset").read_bytes() == (tmp_path / "two.coreset").read_bytes()


def test_a_private_study_says_its_promise(coreshot, private_path, write_site):
    told = coreshot("distill", private_path, write_site("a"), "--out", "a.coreset")
    assert "differential privacy with epsilon = 2 and delta = 1e-05" in told


POINTS = """
[learner]
name = "random_subset"
num_points = 12

[network]
name = "mlp"
hidden = [4]
activation = "tanh"
"""


def with_points(study_path):
    """The same study, with raw points in place of the spectral coreset."""
    study_path.write_text(study_path.read_text().split("[method]")[0] + POINTS)
    return study_path


def test_inspect_shows_points_in_units_and_how_near_they_come(coreshot, study_path, write_site):
    site = write_site("a")
    coreshot("distill", with_points(study_path), site, "--out", "a.coreset")
    told = coreshot("inspect", "a.coreset", "--study", study_path, "--against", site)
    assert "points, in the study's units" in told
    assert "copies: 12" in told, "a random subset is copies of records"
    assert "No promise of privacy" in told
    facts = json.loads(coreshot("inspect", "a.coreset", "--study", study_path, "--against", site, "--json"))
    assert facts["against"]["copies"] == facts["num_points"] == 12
    assert facts["releases"][0]["mechanism"] == "exact"


def test_inspect_of_rows_and_of_another_study(coreshot, study_path, three_coresets, write_site, tmp_path):
    told = coreshot("inspect", three_coresets[0], "--study", study_path)
    assert "It is of this study" in told
    assert "It stands for 60 records" in told
    assert "give the file that it was made from" in coreshot(
        "inspect", three_coresets[0], "--study", study_path, "--against", write_site("b", count=50), code=2
    )
    assert "need --study" in coreshot("inspect", three_coresets[0], "--against", "x.csv", code=2)
    other = tmp_path / "other.toml"
    other.write_text(study_path.read_text().replace("[20, 100]", "[10, 100]"))
    assert "belongs to study" in coreshot("inspect", three_coresets[0], "--study", other, code=2)


def test_a_picture_of_images(coreshot, tmp_path):
    coreshot("study", "new", "images.toml", "--image", "12,12,1", "--classes", "a,b")
    path = tmp_path / "images.toml"
    path.write_text(path.read_text().split("# What a site computes")[0] + POINTS)
    draws = np.random.default_rng(0)
    np.savez(
        tmp_path / "site.npz",
        images=draws.integers(0, 256, (14, 12, 12), dtype=np.uint8),
        labels=np.asarray(["a", "b"] * 7),
    )
    coreshot("distill", "images.toml", "site.npz", "--out", "site.coreset")
    coreshot("inspect", "site.coreset", "--study", "images.toml", "--picture", "page.png")
    with Image.open(tmp_path / "page.png") as page:
        assert page.size[0] > 100
    assert "is there already" in coreshot(
        "inspect", "site.coreset", "--study", "images.toml", "--picture", "page.png", code=2
    )


def test_a_coreset_of_62_images_takes_hardly_more_than_its_numbers(coreshot, tmp_path):
    """Of 28 x 28 pixels in float32; labels, names, hash and releases are in the other 5 %."""
    names = [str(index) for index in range(62)]
    coreshot("study", "new", "images.toml", "--image", "28,28,1", "--classes", ",".join(names))
    path = tmp_path / "images.toml"
    path.write_text(
        path.read_text().split("# What a site computes")[0] + POINTS.replace("num_points = 12", "num_points = 62")
    )
    images = np.random.default_rng(0).integers(0, 256, (124, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "site.npz", images=images, labels=np.asarray(names * 2))
    coreshot("distill", "images.toml", "site.npz", "--out", "site.coreset")
    payload = 62 * 28 * 28 * 4
    assert payload < (tmp_path / "site.coreset").stat().st_size <= 1.05 * payload


def test_a_model_of_points_needs_an_inference_and_gets_one(coreshot, study_path, write_site):
    for seed, name in enumerate(("a", "b")):
        coreshot(
            "distill",
            with_points(study_path) if not seed else study_path,
            write_site(name, seed=seed),
            "--out",
            f"{name}.coreset",
        )
    told = coreshot(
        "fit", "a.coreset", "b.coreset", "--study", study_path, "--out", "model", "--inference", "map_estimate"
    )
    assert "its points would need an inference for each client" in told
    found = json.loads(coreshot("evaluate", "model", write_site("t", count=100, seed=8), "--json"))
    assert found["accuracy"] > 0.55


SLOW = """
[learner]
name = "dm"
num_points = 4
num_updates = 2000
step_size_x = 0.01

[network]
name = "mlp"
hidden = [4]
activation = "tanh"
"""


def test_ctrl_c_leaves_a_state_from_which_distill_goes_on(coreshot, study_path, write_site, tmp_path, monkeypatch):
    study_path.write_text(study_path.read_text().split("[method]")[0] + SLOW)
    site = write_site("a")
    coreshot("distill", study_path, site, "--out", "whole.coreset", "--client", "a")
    advance = Lines.advance

    def press_ctrl_c(lines, amount=1):
        advance(lines, amount)
        if lines._done == 5:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Lines, "advance", press_ctrl_c)
    assert "stopped; a.coreset.unfinished has its state, and the same command goes on there" in coreshot(
        "distill", study_path, site, "--out", "a.coreset", code=1
    )
    assert not (tmp_path / "a.coreset").exists()
    monkeypatch.setattr(Lines, "advance", advance)
    coreshot("distill", study_path, site, "--out", "a.coreset")
    assert (tmp_path / "a.coreset").read_bytes() == (tmp_path / "whole.coreset").read_bytes()
    assert not (tmp_path / "a.coreset.unfinished").exists()
