"""`coreshot inspect` on the default study of a table: the table of columns, the picture, and records beside it."""

import json

import numpy as np
import pytest
from PIL import Image

SITE = "age,sex,pressure,ill"


@pytest.fixture
def glm_path(study_path):
    text = study_path.read_text()
    study_path.write_text(text.split("[method]")[0] + '[method]\nname = "glm"\ndimension = 16\n')
    return study_path


@pytest.fixture
def site(coreshot, glm_path, write_site):
    path = write_site("a")
    coreshot("distill", glm_path, path, "--out", "a.coreset")
    return path


def test_the_table_is_that_of_the_file(coreshot, glm_path, site):
    facts = json.loads(coreshot("inspect", "a.coreset", "--study", glm_path, "--json"))["tells"]
    lines = [line.split(",") for line in site.read_text().splitlines()[1:]]
    age = np.asarray([float(line[0]) for line in lines])
    pressure = np.asarray([float(line[2]) for line in lines if line[2]])
    columns = {one["name"]: one for one in facts["columns"]}
    assert facts["records"] == len(lines)
    assert columns["age"]["mean"] == pytest.approx(np.mean(age), abs=0.02 * np.std(age))
    assert columns["pressure"]["deviation"] == pytest.approx(np.std(pressure), rel=0.02)
    assert columns["pressure"]["missing"] == pytest.approx(1 - len(pressure) / len(lines), abs=0.005)
    assert columns["sex = f"]["mean"] == pytest.approx(np.mean([line[1] == "f" for line in lines]), abs=0.01)
    assert "age x pressure" in facts["products"]
    assert not facts["may_determine_records"]


def test_it_says_in_words_what_is_told_and_what_not(coreshot, glm_path, site, write_site):
    told = coreshot("inspect", "a.coreset", "--study", glm_path)
    for words in (
        "It stands for 60 records (ill: no",
        "mean where ill = yes",
        "correlation with ill = yes",
        "The site's own logistic regression is in it",
        "Rounding changes a probability by 0.00",
        "Not in it: names",
    ):
        assert words in told
    assert "may determine single records" not in told
    coreshot("distill", glm_path, write_site("few", count=8), "--out", "few.coreset")
    assert "may determine single records" in coreshot("inspect", "few.coreset", "--study", glm_path)
    assert "there are no points to show" not in told
    assert "--study STUDY shows what it tells" in coreshot("inspect", "a.coreset")


def test_against_the_records_and_against_others(coreshot, glm_path, site, write_site, tmp_path):
    told = coreshot("inspect", "a.coreset", "--study", glm_path, "--against", site)
    assert "Distilled again, these records give this very file, byte by byte." in told
    assert "There are no rows that could be records" in told
    assert "whoever has all records but one can subtract them" in told
    found = json.loads(coreshot("inspect", "a.coreset", "--study", glm_path, "--against", site, "--json"))
    loss = found["against"]["loss"]
    assert loss["mean_change"] == pytest.approx(found["tells"]["rounding_loss"], abs=1e-6)
    assert 0 < loss["mean_change"] < loss["largest_change"]
    assert "holds 50 records, and the message stands for 60" in coreshot(
        "inspect", "a.coreset", "--study", glm_path, "--against", write_site("b", count=50), code=2
    )
    older = write_site("c", change=lambda lines: [SITE, *(f"99{line[2:]}" for line in lines[1:])])
    assert "give the file that it was made from" in coreshot(
        "inspect", "a.coreset", "--study", glm_path, "--against", older, code=2
    )
    similar = write_site("d", change=lambda lines: [*lines[:-1], "50,f,100,0"])
    near = json.loads(coreshot("inspect", "a.coreset", "--study", glm_path, "--against", similar, "--json"))
    assert not near["against"]["same_bytes"]
    assert near["against"]["loss"]["mean_change"] > loss["mean_change"]


def test_against_is_read_with_the_site_s_own_settings(coreshot, glm_path, site, tmp_path):
    renamed = tmp_path / "own.csv"
    renamed.write_text(site.read_text().replace("age,", "years;", 1).replace(",", ";"))
    (tmp_path / "site.toml").write_text('delimiter = ";"\n[columns]\nyears = "age"\n')
    words = ("inspect", "a.coreset", "--study", glm_path, "--against", renamed)
    assert "there is no column 'age'" in coreshot(*words, code=2)
    assert "byte by byte" in coreshot(*words, "--site-settings", "site.toml")


def test_a_picture_of_columns(coreshot, glm_path, site, tmp_path):
    assert "picture: page.png" in coreshot("inspect", "a.coreset", "--study", glm_path, "--picture", "page.png")
    with Image.open(tmp_path / "page.png") as page:
        colours = {colour for _, colour in page.convert("RGB").getcolors(2**20)}
        assert page.size[0] > 800
    assert (106, 61, 154) in colours, "the line of a mean"
    assert "is there already" in coreshot("inspect", "a.coreset", "--study", glm_path, "--picture", "page.png", code=2)
    assert "it shows one message" in coreshot(
        "inspect", "a.coreset", "a.coreset", "--study", glm_path, "--picture", "other.png", code=2
    )


def test_a_page_for_who_decides(coreshot, glm_path, private_path, site, write_site, tmp_path):
    words = ("inspect", "a.coreset", "--study", glm_path, "--against", site, "--html", "a.html")
    assert "page: a.html" in coreshot(*words)
    page = (tmp_path / "a.html").read_text()
    for words_of_it in (
        "What the file of a tells",
        "treat this file as confidential as the 60 records",
        "mean where ill = yes",
        "Distilled again, these records give this very file",
        "nothing: they can compute all that can be read off it",
        "no: there are fewer sums than cells",
        "Checklist",
    ):
        assert words_of_it in page
    assert "Look at this first" not in page
    records = [line for line in site.read_text().splitlines()[1:] if line.count(",") == 3]
    assert not any(line in page for line in records)
    assert "is there already" in coreshot(*words, code=2)
    assert "need --study" in coreshot("inspect", "a.coreset", "--html", "b.html", code=2)
    coreshot("distill", glm_path, write_site("few", count=8), "--out", "few.coreset")
    coreshot("inspect", "few.coreset", "--study", glm_path, "--html", "few.html")
    few = (tmp_path / "few.html").read_text()
    assert "Look at this first" in few
    assert "so many sums may determine single records" in few
    coreshot("distill", private_path, site, "--out", "private.coreset")
    coreshot("inspect", "private.coreset", "--study", private_path, "--html", "private.html")
    private = (tmp_path / "private.html").read_text()
    assert "the bound of epsilon = 2" in private
    assert "They are not pictures" in private
    assert "treat this file as confidential" not in private


def test_a_page_shows_every_image_and_how_near_it_is_to_a_record(coreshot, tmp_path):
    draws = np.random.default_rng(0)
    np.savez(tmp_path / "site.npz", images=draws.integers(0, 255, (6, 4, 4)), labels=np.arange(6) % 2)
    (tmp_path / "images.toml").write_text(
        'format = 1\nname = "images"\ntask = "classification"\n[target]\nname = "label"\nclasses = ["0", "1"]\n'
        '[image]\nshape = [4, 4, 1]\n[learner]\nname = "random_subset"\nnum_points = 3\n'
    )
    coreshot("distill", "images.toml", "site.npz", "--out", "site.coreset")
    words = ("inspect", "site.coreset", "--study", "images.toml", "--against", "site.npz", "--html", "site.html")
    assert "copies: 3" in coreshot(*words)
    page = (tmp_path / "site.html").read_text()
    assert "All 3 images in the file" in page
    assert page.count("<image ") >= 2  # all of them side by side, and the scale
    assert "3 of 3 points are copies of a record" in page
    assert "3 learned points, shown below as the images that they are" in page


def test_rows_of_features_are_not_records_unless_there_is_one(coreshot, study_path, write_site):
    site = write_site("a")
    coreshot("distill", study_path, site, "--out", "a.coreset")
    told = coreshot("inspect", "a.coreset", "--study", study_path, "--against", site, "--picture", "a.png")
    assert "It stands for 60 records" in told
    assert "rows is a record's features" in told
    one = write_site("one", count=1)
    coreshot("distill", study_path, one, "--out", "one.coreset")
    told = coreshot("inspect", "one.coreset", "--study", study_path, "--against", one)
    assert "warning: of one record, the means are this record." in told
    assert "warning: the one row is the one record's features." in told


@pytest.mark.parametrize("method", ["glm", "private"])
def test_one_promise_in_study_check_distill_and_inspect(coreshot, glm_path, private_path, write_site, method):
    study_path = private_path if method == "private" else glm_path
    site = write_site("a")
    checked = json.loads(coreshot("study", "check", study_path, "--json"))["promise"]
    distilled = json.loads(coreshot("distill", study_path, site, "--out", "a.coreset", "--json"))["promise"]
    inspected = json.loads(coreshot("inspect", "a.coreset", "--json"))["promise"]
    assert checked == distilled
    assert inspected.endswith(checked)
    assert inspected.removesuffix(checked) in (
        "",
        "According to the releases that its header declares, this holds: ",
    )
    for words in (("study", "check", study_path), ("inspect", "a.coreset", "--study", study_path)):
        assert checked in coreshot(*words)
    if method == "private":
        assert "carries noise" in coreshot("inspect", "a.coreset", "--study", study_path, "--against", site, code=2)


def test_fit_shows_what_rounding_has_changed(coreshot, glm_path, site, write_site, tmp_path):
    coreshot("distill", glm_path, write_site("b", seed=1), "--out", "b.coreset")
    told = coreshot("fit", "a.coreset", "b.coreset", "--study", glm_path, "--out", "model")
    assert "rounding changes a probability by 0.00" in told
    stored = json.loads(coreshot("forget", "model", "--client", "b", "--json"))["standings"]["a"]["rounding"]
    facts = json.loads(coreshot("inspect", "a.coreset", "--study", glm_path, "--json"))["tells"]
    assert stored == pytest.approx(facts["rounding_loss"], abs=1e-5)
    assert f"rounding = {stored}" in (tmp_path / "model" / "model.toml").read_text()


def test_rows_of_features_of_images_beside_the_images(coreshot, tmp_path):
    coreshot("study", "new", "images.toml", "--image", "12,12,1", "--classes", "a,b")
    path = tmp_path / "images.toml"
    path.write_text(path.read_text().replace("dimension = 512, num_filters = 64", "dimension = 24, num_filters = 4"))
    images = np.random.default_rng(0).integers(0, 256, (14, 12, 12), dtype=np.uint8)
    for name, count in (("site", 14), ("part", 10)):
        np.savez(tmp_path / f"{name}.npz", images=images[:count], labels=np.asarray(["a", "b"] * 7)[:count])
    coreshot("distill", "images.toml", "site.npz", "--out", "site.coreset")
    words = ("inspect", "site.coreset", "--study", "images.toml", "--against")
    told = coreshot(*words, "site.npz")
    assert "None of 14 rows is a record's features" in told
    assert "byte by byte" in told
    assert "there are no points to show" in told
    assert "holds 10 records, and the message stands for 14" in coreshot(*words, "part.npz", code=2)
