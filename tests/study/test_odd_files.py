"""Files as people really have them: each mistake is one sentence that names the place, and nothing is written."""

import io

import numpy as np
import pytest
from PIL import Image

from coreshot.data.files import read_records
from coreshot.data.schema import Classes, Column, Images, Quantity, Table, parse_target
from coreshot.errors import CoreshotError

TABLE = Table(columns=(Column(name="age", kind="number", range=(0, 100)),), missing="indicator")
ILL = Classes(name="ill", classes=("no", "yes"))
PIXELS = Images(shape=(4, 4, 1))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("age, age,ill\n50,99,no\n", r"two columns are called 'age'; rename one"),
        ("age;ill\n50;no;60;yes\n", r"record 1 has 4 cells, the header has 2; mend it: a cell that contains ';' needs"),
        ("age,ill\n50,n\xe4\n".encode("latin-1"), r"record 1 has a cell in 'ill' that the study does not know"),
    ],
)
def test_a_table_that_would_be_misread_is_refused(tmp_path, text, sentence):
    path = tmp_path / "site.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CoreshotError, match=sentence):
        read_records(path, TABLE, ILL)


def test_what_is_to_be_predicted_may_be_empty_or_unknown(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("age,ill\n50,\n60,perhaps\n")
    assert read_records(path, TABLE, ILL, needs_target=False).y is None
    with pytest.raises(CoreshotError, match="record 1 has no 'ill'"):
        read_records(path, TABLE, ILL)


def test_a_name_written_in_two_ways_is_one_name(tmp_path):
    """A letter with its dots as one character, and as two: macOS writes the second."""
    path = tmp_path / "site.csv"
    path.write_text("age,ill\n50,u\u0308bel\n40,no\n")
    assert list(read_records(path, TABLE, Classes(name="ill", classes=("no", "\u00fcbel"))).y) == [1, 0]


def test_a_target_out_of_range_is_told_what_to_agree_on(tmp_path):
    path = tmp_path / "site.csv"
    path.write_text("age,price\n50,1000\n")
    with pytest.raises(CoreshotError, match="mend it, or agree on a wider range"):
        read_records(path, TABLE, Quantity(name="price", range=(0, 10)))


@pytest.mark.parametrize("classes", [("01", "1"), ("1.0", "2.0"), ("a ", "b")])
def test_a_class_that_no_cell_can_be_is_refused_by_the_study(classes):
    with pytest.raises(CoreshotError, match="so no value can be called that; use another name"):
        parse_target({"name": "ill", "classes": list(classes)}, "study")


def archive(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def array():
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 4, 4)))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (archive(images=np.zeros((2, 4, 4)))[:-40], "not a readable npz file"),
        (array(), "it is a single array, as in an npy file"),
        (archive(images=np.float32(3)), "images are an array"),
        (archive(images=np.full((2, 4, 4), "a")), "images are an array"),
        (archive(images=np.zeros((2, 4, 4)), labels=np.int64(1)), "labels one of"),
    ],
)
def test_an_archive_that_holds_no_images_is_refused(tmp_path, data, sentence):
    path = tmp_path / "site.npz"
    path.write_bytes(data)
    with pytest.raises(CoreshotError, match=sentence):
        read_records(path, PIXELS, ILL)


def folder_of(tmp_path, files):
    for name, image in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        image.save(tmp_path / name)
    return tmp_path


def test_images_of_sixteen_bits_are_refused_and_not_cut_off_at_white(tmp_path):
    deep = Image.fromarray(np.full((4, 4), 40_000, np.uint16))
    with pytest.raises(CoreshotError, match=r"a\.png: has pixels of kind I;16, not 0 to 255; convert it to 8 bits"):
        read_records(folder_of(tmp_path, {"no/a.png": deep}), PIXELS, ILL)


def test_an_image_beside_the_classes_is_named(tmp_path):
    flat = Image.fromarray(np.zeros((4, 4), np.uint8))
    with pytest.raises(CoreshotError, match=r"lost\.png: lies beside the folders of the classes"):
        read_records(folder_of(tmp_path, {"no/a.png": flat, "lost.png": flat}), PIXELS, ILL)


def test_a_fit_that_fails_leaves_nothing_in_the_way(coreshot, study_path, write_site, tmp_path):
    coreshot("distill", study_path, write_site("one"), "--out", "one.coreset")
    (tmp_path / "broken.coreset").write_bytes(b"what?")
    said = coreshot("fit", "one.coreset", "broken.coreset", "--study", study_path, "--out", "model", code=2)
    assert "broken.coreset: message of 5 bytes: not a coreshot message" in said
    assert not (tmp_path / "model").exists()
    coreshot("fit", "one.coreset", "--study", study_path, "--out", "model")
    coreshot("evaluate", "model", tmp_path / "one.csv", "--html", "same", "--picture", "same", code=2)
    coreshot("fit", "--add", "one.coreset", "model", "--out", "elsewhere", code=2)
    assert not (tmp_path / "same").exists()


def test_a_guessed_study_can_be_checked_whatever_its_names(coreshot, tmp_path):
    """Many different numbers are a quantity; a quotation mark in a name stays in the name."""
    lines = [f"{number / 7:.3f},{1_000_000 + 3.4567 * number:.4f}" for number in range(40)]
    (tmp_path / "columns.csv").write_text("\n".join(['"a ""b"" \\ c",price', *lines]) + "\n")
    coreshot("study", "new", "study.toml", "--from", "columns.csv", "--target", "price", "--guess")
    assert 'task = "regression"' in (tmp_path / "study.toml").read_text()
    coreshot("study", "check", "study.toml")
    coreshot("distill", "study.toml", "columns.csv", "--out", "site.coreset")
    (tmp_path / "empty.csv").write_text("a,price\n")
    coreshot("study", "new", "other.toml", "--from", "empty.csv", "--target", "price", "--guess", code=2)
    assert not (tmp_path / "other.toml").exists()


def test_a_study_that_would_fail_at_every_site_fails_its_check(coreshot, study_path):
    study_path.write_text(study_path.read_text().replace("dimension = 7", "dimension = 3"))
    coreshot("study", "check", study_path, code=2)
