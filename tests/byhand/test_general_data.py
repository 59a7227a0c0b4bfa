"""Images of any shape, vectors, and any classes come out of the store as they went in; what is odd is one sentence."""

import json
import re

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from coreshot.data.convert import add_data_set
from coreshot.data.preparation import GeneralPreparation
from coreshot.data.readers.protocol import Batch
from coreshot.data.store import open_data_set
from coreshot.errors import CoreshotError

CLIENTS = np.array([2, 0, 2, 0, 1, 1])
ORDER = np.argsort(CLIENTS, kind="stable")


@pytest.fixture(autouse=True)
def store_home(tmp_path, monkeypatch):
    monkeypatch.setenv("CORESHOT_DATA", str(tmp_path / "store"))
    return tmp_path / "store"


def add_npz(folder, **arrays):
    np.savez(folder / "a.npz", **{"labels": np.array([0, 1, 2, 0, 1, 2]), "clients": CLIENTS, **arrays})
    return add_data_set("set", folder / "a.npz")[0]


def test_inputs_come_out_as_they_went_in(tmp_path):
    draws = np.random.default_rng(0)
    cases = {
        "bytes": (draws.integers(0, 256, (6, 5, 4, 3), np.uint8), (5, 4, 3), 255),
        "grey": (draws.integers(0, 256, (6, 5, 4)), (5, 4, 1), 255),
        "floats": (draws.normal(size=(6, 5, 4, 2)).astype(np.float32), (5, 4, 2), 1),
        "vectors": (draws.normal(size=(6, 7)).astype(np.float32), (7,), 1),
        "counts": (draws.integers(-5, 1000, (6, 3)), (3,), 1),
    }
    for name, (images, shape, scale) in cases.items():
        np.savez(tmp_path / f"{name}.npz", x=images, y=np.arange(6) % 2, clients=CLIENTS)
        data, is_new = add_data_set(name, tmp_path / f"{name}.npz")
        assert (is_new, data.description.input_shape, data.description.input_scale) == (True, shape, scale)
        points = data.points(np.arange(6))
        expected = images.reshape(6, *shape).astype(np.float32) / np.float32(scale)
        np.testing.assert_array_equal(np.asarray(points.x), expected[ORDER])
        np.testing.assert_array_equal(np.asarray(points.y), np.eye(2)[np.arange(6) % 2][ORDER])
        assert open_data_set(name).description == data.description


@pytest.mark.parametrize(
    ("labels", "class_names", "expected_names", "expected"),
    [
        ([7, 3, 7, 500, 3, 7], None, ("3", "7", "500"), [1, 0, 1, 2, 0, 1]),
        (["b", "a", "b", "c", "a", "b"], None, ("a", "b", "c"), [1, 0, 1, 2, 0, 1]),
        ([1.0, 0.0, 1.0, 2.0, 0.0, 1.0], None, ("0", "1", "2"), [1, 0, 1, 2, 0, 1]),
        ([1, 0, 1, 2, 0, 1], ["b", "a", "x", "c"], ("b", "a", "x", "c"), [1, 0, 1, 2, 0, 1]),
        (["b", "a", "b", "c", "a", "b"], ["c", "b", "a"], ("c", "b", "a"), [1, 2, 1, 0, 2, 1]),
    ],
)
def test_classes_are_the_labels_or_what_the_source_names(labels, class_names, expected_names, expected, tmp_path):
    arrays = {} if class_names is None else {"class_names": np.array(class_names)}
    data = add_npz(tmp_path, images=np.zeros((6, 2, 2), np.uint8), labels=np.array(labels), **arrays)
    assert data.description.class_names == expected_names
    assert data.targets.tolist() == np.array(expected)[ORDER].tolist()


def test_more_classes_than_a_byte_counts(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((300, 2)), y=np.arange(300), clients=np.zeros(300, int))
    data, _ = add_data_set("set", tmp_path / "a.npz")
    assert len(data.description.class_names) == 300
    np.testing.assert_array_equal(data.targets, np.arange(300))


def test_a_split_by_number_and_by_word(tmp_path):
    images = np.arange(24).reshape(6, 2, 2)
    for name, split in (("number", [0, 1, 2, 0, 1, 0]), ("word", ["train", "test", "extra", "train", "test", "train"])):
        lines = [
            {"x": image.tolist(), "y": row % 2, "client": f"c{row}", "split": part}
            for row, (image, part) in enumerate(zip(images, split, strict=True))
        ]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(lines), tmp_path / f"{name}.parquet")
        np.savez(
            tmp_path / f"{name}.npz", x=images, y=np.arange(6) % 2, clients=[f"c{row}" for row in range(6)], split=split
        )
        for suffix in ("parquet", "npz"):
            data, _ = add_data_set(f"{name}-{suffix}", tmp_path / f"{name}.{suffix}")
            assert {role: [one.name for one in data.of_role(role)] for role in ("train", "extra", "test")} == {
                "train": ["c0", "c3", "c5"],
                "extra": ["c2"],
                "test": ["c1", "c4"],
            }
            assert data.description.input_shape == (2, 2, 1)
            np.testing.assert_array_equal(data.inputs[0, ..., 0], images[0])


def test_transposed_images_change_their_shape(tmp_path):
    images = np.arange(6 * 2 * 3).reshape(6, 2, 3)
    np.savez(tmp_path / "a.npz", x=images, y=np.arange(6) % 2, clients=CLIENTS)
    data, _ = add_data_set("set", tmp_path / "a.npz", transpose=True)
    assert data.description.input_shape == (3, 2, 1)
    np.testing.assert_array_equal(data.inputs[..., 0], images.transpose(0, 2, 1)[ORDER])


FAULTS = {
    "one number a record": (
        {"images": np.zeros(6)},
        r"client-0: inputs are an array \[2\] of float64; save numbers as",
    ),
    "channels first": ({"images": np.zeros((6, 3, 32, 32), np.uint8)}, r"3 x 32 x 32 have their channels first"),
    "text": ({"images": np.full((6, 2), "a")}, r"inputs are an array \[2, 2\] of <U1; save numbers"),
    "no pixels": ({"images": np.zeros((6, 0, 4))}, r"inputs are an array \[2, 0, 4\]"),
    "not finite": (
        {"images": np.array([[0.0, np.nan]] * 6)},
        r"record 0 has a value that is not a finite float32 \(2 ",
    ),
    "too large": ({"images": np.full((6, 2), 1e300)}, r"not a finite float32"),
    "pixels beyond a byte": ({"images": np.full((6, 2, 2), 256)}, r"a pixel of image 0 is 256, outside 0 to 255"),
    "half a class": ({"labels": np.full(6, 0.5)}, r"label 0.5 of record 0 is not a whole number"),
    "rows of labels": ({"labels": np.zeros((6, 2))}, r"labels are an array \[2, 2\] of float64; give one whole number"),
    "one class": ({"labels": np.full(6, 4)}, r"all labels are '4'; a classification has at least two classes"),
    "class without a name": ({"class_names": np.array(["a", "b"])}, r"label 2 has no name among the 2 that the file"),
    "name that is no class": (
        {"labels": np.array(list("aabbcc")), "class_names": np.array(["a", "b"])},
        r"label 'c' is none of the classes that the source names",
    ),
    "split": ({"split": np.array(["train"] * 5 + ["dev"])}, r"split of record 5 is dev; 0 is a training client"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_one_sentence(case, tmp_path, store_home):
    changes, complaint = FAULTS[case]
    with pytest.raises(CoreshotError, match=complaint) as error:
        add_npz(tmp_path, **{"images": np.zeros((6, 2, 2), np.uint8), **changes})
    assert "\n" not in str(error.value)
    assert list(store_home.iterdir()) == []


@pytest.mark.parametrize(
    ("inputs", "labels", "class_names", "complaint"),
    [
        (np.zeros((2, 3)), [0, 1], None, r"b: records have shape \(3,\), but \(2,\) in a; make them the same"),
        (np.zeros((2, 2), np.uint8), [0, 1], None, r"b: inputs are stored as uint8, but float32 in a"),
        (np.zeros((2, 2)), ["x", "y"], None, r"b: labels are text, but numbers in a"),
        (np.zeros((2, 2)), [0, 1], ("x", "y"), r"b: class names are \('x', 'y'\), but None in a"),
    ],
)
def test_batches_must_agree(inputs, labels, class_names, complaint):
    preparation = GeneralPreparation()
    preparation.take(Batch("a", "one", "train", np.zeros((2, 2)), [0, 1]))
    with pytest.raises(CoreshotError, match=complaint):
        preparation.take(Batch("b", "two", "train", inputs, labels, class_names))


def test_a_set_of_layout_version_1_is_still_read(draw_handwriting, tmp_path, store_home):
    """Written here as version 1 wrote it: handwriting only, without a description."""
    images, labels = draw_handwriting(0, 6)
    (store_home / "old").mkdir(parents=True)
    np.save(store_home / "old" / "images.npy", images)
    np.save(store_home / "old" / "labels.npy", labels)
    index = {
        "version": 1,
        "name": "old",
        "image_shape": [28, 28],
        "num_classes": 62,
        "background_of_source": "white",
        "clients": [{"name": "client-0", "role": "train", "start": 0, "count": 6}],
        "sources": [{"file": "a.npz", "bytes": 3, "sha256": "0" * 64}],
        "options": {"form": "npz", "background": None, "transpose": False, "partition": None},
    }
    (store_home / "old" / "index.json").write_text(json.dumps(index))
    data = open_data_set("old")
    assert (data.description.input_shape, len(data.description.class_names)) == ((28, 28, 1), 62)
    assert data.description.notes == {"background_of_source": "white"}
    np.testing.assert_array_equal(
        np.asarray(data.points(np.arange(6)).x)[..., 0], images.astype(np.float32) / np.float32(255)
    )
    assert data.targets.tolist() == labels.tolist()


def test_a_description_that_was_changed_is_refused(tmp_path, store_home):
    add_npz(tmp_path, images=np.zeros((6, 2, 2), np.uint8))
    text = (store_home / "set" / "index.json").read_text()
    (store_home / "set" / "index.json").write_text(re.sub('"input_scale": [0-9.]+', '"input_scale": 0', text))
    with pytest.raises(CoreshotError, match=r"description: input_scale = 0.*greater than 0"):
        open_data_set("set")
