"""`coreshot data`: from files to the store to a task; whatever is wrong with the files is one sentence."""

import hashlib
import io
import json
import re
import shutil

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from coreshot.config import decode_named
from coreshot.data import TASKS
from coreshot.errors import CoreshotError

# typer 0.20 asks click 8.5 for names that click 9 will not have; that is between the two of them.
pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CORESHOT_DATA", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def test_a_newcomers_path(call, tmp_path, home, three_clients, write_form):
    """Nothing, add, again, list, show with a picture, and the task finds its data."""
    code, out, _ = call("data", "list")
    assert code == 0
    assert "no data yet; add some with `coreshot data add NAME --from PATH`" in out

    (tmp_path / "leaf").mkdir()
    write_form[".json"](tmp_path / "leaf" / "all_data_0.json", three_clients)
    code, out, _ = call("data", "add", "emnist62", "--from", "leaf")
    assert code == 0
    assert "background: found to be white in the source, so pixels were inverted" in out
    assert "emnist62: 3 training clients with 24 images; `coreshot data show emnist62` shows it" in out
    assert sorted(path.name for path in (home / "emnist62").iterdir()) == ["index.json", "inputs.npy", "targets.npy"]
    assert [path.name for path in home.iterdir()] == ["emnist62"]

    code, out, _ = call("data", "add", "emnist62", "--from", "leaf")
    assert (code, out) == (0, "emnist62: is already there, from the same files\n")

    code, out, _ = call("data", "list")
    assert code == 0
    assert "emnist62" in out
    assert "all_data_0.json" in out

    code, out, _ = call("data", "show", "emnist62")
    assert code == 0
    for line in (
        "5 / 8 / 11",
        "classes: 13 of 62: 0123456789ABC",
        "source: all_data_0.json",
        "clients: as the source has them",
        "picture: emnist62.png",
    ):
        assert line in out
    with Image.open(tmp_path / "emnist62.png") as picture:
        assert picture.width > 200

    code, _, err = call("data", "show", "emnist62")
    assert code == 2
    assert (
        "emnist62.png: is already there, and nothing is overwritten; say where the picture goes with --picture."
        in err.replace("\n", " ")
    )
    assert call("data", "show", "emnist62", "--picture", "other.png")[0] == 0
    facts = json.loads(call("data", "show", "emnist62", "--picture", "third.png", "--json")[1])
    assert facts == {**json.loads(call("data", "list", "--json")[1])["sets"][0], "picture": "third.png"}
    again = json.loads(call("data", "add", "emnist62", "--from", "leaf", "--json")[1])
    assert again == {**{key: value for key, value in facts.items() if key != "picture"}, "is_new": False}
    assert (tmp_path / "other.png").read_bytes() == (tmp_path / "emnist62.png").read_bytes()

    task = decode_named(
        TASKS, {"name": "emnist62", "num_clients": 2, "train_fraction": 1.0, "num_test_clients": 1}, "test", "task"
    )
    data = task.make(0)
    assert list(data.clients) == list(three_clients)[:2]
    np.testing.assert_array_equal(
        np.asarray(data.test.x)[..., 0], three_clients["f0002_12"][0].astype(np.float32) / 255
    )


def test_a_file_of_any_shape_and_any_classes(call, tmp_path):
    """Colour images with named classes: add, show with a picture, list, and the general task finds them."""
    images = np.random.default_rng(0).integers(0, 256, (30, 7, 9, 3), np.uint8)
    labels, clients = np.arange(30) % 4, np.repeat(["north", "south", "west"], 10)
    names = np.array(["oak", "elm", "ash", "fir", "yew"])
    np.savez(tmp_path / "trees.npz", images=images, labels=labels, clients=clients, class_names=names)
    code, out, _ = call("data", "add", "trees", "--from", "trees.npz")
    assert (code, "background" in out) == (0, False)
    assert "trees: 3 training clients with 30 images" in out
    assert "images of 7 x 9 x 3" in call("data", "list")[1]
    code, out, _ = call("data", "show", "trees")
    assert code == 0
    for line in ("records: images of 7 x 9 x 3, stored as uint8, divided by 255", "4 of 5: oak, elm, ash, fir"):
        assert line in out
    with Image.open(tmp_path / "trees.png") as picture:
        assert picture.width > 200
    values = {"name": "federated", "data": "trees", "num_clients": 2, "num_test_clients": 1}
    task = decode_named(TASKS, values, "test", "task")
    assert (task.kind, task.input_shape, task.num_outputs) == ("classification", (7, 9, 3), 5)
    data = task.make(0)
    assert list(data.clients) == ["north", "south"]
    np.testing.assert_array_equal(np.asarray(data.test.x), images[20:].astype(np.float32) / np.float32(255))
    np.testing.assert_array_equal(np.asarray(data.test.y), np.eye(5)[labels[20:]])


def test_vectors_have_a_picture_of_who_holds_what(call, tmp_path):
    x, y = np.random.default_rng(0).normal(size=(12, 4)), np.array(["ill", "well"] * 6)
    np.savez(tmp_path / "wards.npz", x=x, y=y, clients=np.arange(12) % 3)
    assert "3 training clients with 12 vectors" in call("data", "add", "wards", "--from", "wards.npz")[1]
    code, out, _ = call("data", "show", "wards")
    assert (code, "picture: wards.png" in out, "classes: 2 of 2: ill, well" in out) == (0, True, True)
    facts = json.loads(call("data", "show", "wards", "--picture", "a.png", "--json")[1])
    assert (facts["input_shape"], facts["class_names"], facts["picture"]) == ([4], ["ill", "well"], "a.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "wards.png").read_bytes()


def test_a_task_of_handwriting_refuses_a_general_set(call, tmp_path, draw_handwriting):
    images, labels = draw_handwriting(0, 12)
    np.savez(tmp_path / "a.npz", images=images, labels=labels, clients=np.arange(12) % 3)
    assert call("data", "add", "plain", "--from", "a.npz")[0] == 0
    values = {"name": "emnist62", "source": "plain", "num_clients": 1, "train_fraction": 1.0, "num_test_clients": 1}
    with pytest.raises(CoreshotError, match=r"data set 'plain' was not added as handwriting; .* --as handwriting"):
        decode_named(TASKS, values, "test", "task").make(0)


def test_clients_are_made_where_there_are_none(call, tmp_path, draw_handwriting):
    images, labels = draw_handwriting(0, 60)
    np.savez(tmp_path / "plain.npz", images=images, labels=labels)
    code, out, _ = call(
        "data", "add", "plain", "--from", "plain.npz", "--partition", "iid", "--set", "num_partitions=4"
    )
    assert code == 0
    assert "4 training clients with 60 images" in out
    assert "clients: name = iid, num_partitions = 4, shuffle = True, seed = 42" in call("data", "show", "plain")[1]


def test_writers_in_training_and_test_are_said_to_be(call, tmp_path, three_clients, write_form):
    for part in ("train", "test"):
        half = {
            client: (images[part == "test" :: 2], labels[part == "test" :: 2])
            for client, (images, labels) in three_clients.items()
        }
        write_form[".h5"](tmp_path / f"fed_emnist_{part}.h5", half)
    assert call("data", "add", "tff", "--from", ".")[0] == 0
    assert (
        "test images: of 3 clients that also train (the source is split by image, not by client)"
        in call("data", "show", "tff")[1]
    )


# Bad input: each makes a file from three clients and returns its path.


def truncated_json(folder, clients, write_form):
    write_form[".json"](folder / "a.json", clients)
    whole = (folder / "a.json").read_text()
    (folder / "a.json").write_text(whole[: whole.index('"f0001_11": {') + 200])
    return folder / "a.json"


def leaf_with(change):
    def make(folder, clients, write_form):
        write_form[".json"](folder / "a.json", clients)
        content = json.loads((folder / "a.json").read_text())
        change(content)
        (folder / "a.json").write_text(json.dumps(content))
        return folder  # also: a folder is read as its files are

    return make


def tff_with(change):
    def make(folder, clients, write_form):
        write_form[".h5"](folder / "a.h5", clients)
        with h5py.File(folder / "a.h5", "a") as file:
            change(file)
        return folder / "a.h5"

    return make


def parquet_with(change):
    def make(folder, clients, write_form):
        write_form[".parquet"](folder / "a.parquet", clients)
        table = pyarrow.parquet.read_table(folder / "a.parquet")
        lines = table.to_pylist()
        change(lines)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(lines, table.schema), folder / "a.parquet")
        return folder / "a.parquet"

    return make


def npz_with(**changes):
    def make(folder, clients, write_form):
        images, labels = (np.concatenate(parts) for parts in zip(*clients.values(), strict=True))
        arrays = {"images": images, "labels": labels, "clients": np.repeat([0, 1, 2], [5, 8, 11]), **changes}
        np.savez(folder / "a.npz", **{name: array for name, array in arrays.items() if array is not None})
        return folder / "a.npz"

    return make


def cut(suffix):
    def make(folder, clients, write_form):
        write_form[suffix](folder / f"a{suffix}", clients)
        whole = (folder / f"a{suffix}").read_bytes()
        (folder / f"a{suffix}").write_bytes(whole[: len(whole) // 2])
        return folder / f"a{suffix}"

    return make


def small_png(lines):
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((30, 28), np.uint8)).save(buffer, "PNG")
    lines[3]["image"] = {"bytes": buffer.getvalue(), "path": None}


def change_pixels(writer, shape):
    def change(file):
        del file[f"examples/{writer}/pixels"]
        file[f"examples/{writer}/pixels"] = np.ones(shape, np.float32)

    return change


def no_rows(file):
    for key, shape in (("pixels", (0, 28, 28)), ("label", (0,))):
        del file[f"examples/f0000_10/{key}"]
        file[f"examples/f0000_10/{key}"] = np.zeros(shape, np.float32)


def without_images(content):
    content["user_data"]["f0001_11"] = {"x": [], "y": []}
    content["num_samples"][1] = 0


def one_array(folder, clients, write_form):
    np.save(folder / "a.npy", np.zeros(3))
    return (folder / "a.npy").rename(folder / "a.npz")


def single_values(file):
    for key in ("pixels", "label"):
        del file[f"examples/f0000_10/{key}"]
        file[f"examples/f0000_10/{key}"] = 1.0


def twice(folder, clients, write_form):
    write_form[".json"](folder / "a.json", clients)
    shutil.copy(folder / "a.json", folder / "b.json")
    return folder


def two_forms(folder, clients, write_form):
    write_form[".json"](folder / "a.json", clients)
    write_form[".h5"](folder / "a.h5", clients)
    return folder


def nothing_to_read(folder, clients, write_form):
    (folder / "femnist.tar.gz").write_bytes(b"x")
    return folder


BAD = {
    "truncated JSON": (
        truncated_json,
        r"a.json: not valid JSON at character \d+ of \d+, in the data of client f0001_11 "
        r".*it may be cut short: get it again",
    ),
    "JSON of something else": (
        leaf_with(lambda content: content.pop("num_samples")),
        r"a.json: the key 'num_samples' is missing; a LEAF file has users",
    ),
    "LEAF client without data": (
        leaf_with(lambda content: content["user_data"].pop("f0002_12")),
        r"a.json, client f0002_12: user_data has no lists x and y",
    ),
    "LEAF client with no images": (
        leaf_with(without_images),
        r"a.json, client f0001_11: there are no records; leave this client out or give it records",
    ),
    "LEAF number of samples": (
        leaf_with(lambda content: content["num_samples"].__setitem__(0, 7)),
        r"a.json, client f0000_10: num_samples is 7, but there are 5 records and 5 labels",
    ),
    "LEAF lists of unequal length": (
        leaf_with(lambda content: content["users"].append("x")),
        r"a.json: 4 users but 3 num_samples",
    ),
    "LEAF images of another size": (
        leaf_with(lambda content: content["user_data"]["f0001_11"]["x"][2].pop()),
        r"a.json, client f0001_11: record 2 has 783 numbers, not 784; mend or remove it",
    ),
    "LEAF with 63 labels": (
        leaf_with(lambda content: content["user_data"]["f0001_11"]["y"].__setitem__(3, 62)),
        r"a.json, client f0001_11: label 62 of image 3 is none of the 62 classes "
        r"\(0-9 are the digits, 10-35 A to Z, 36-61 a to z\); relabel",
    ),
    "LEAF client in two files": (
        twice,
        r"b.json, client f0000_10: this client was already in a.json, client f0000_10; "
        r"point --from at files that have each client once",
    ),
    "HDF5 without examples": (
        tff_with(lambda file: file.move("examples", "clients")),
        r"a.h5: there is no group 'examples', only clients",
    ),
    "HDF5 with a missing group": (
        tff_with(lambda file: file.__delitem__("examples/f0001_11/label")),
        r"a.h5, client f0001_11: there is no 'label' in examples/f0001_11, only pixels; get the file again",
    ),
    "HDF5 images of another size": (
        tff_with(change_pixels("f0002_12", (11, 32, 32))),
        r"a.h5, client f0002_12: images have 32 x 32 pixels, and handwriting has images of 28 x 28; resize them",
    ),
    "HDF5 client with no images": (
        tff_with(no_rows),
        r"a.h5, client f0000_10: there are no records",
    ),
    "HDF5 with labels missing": (
        tff_with(change_pixels("f0000_10", (4, 28, 28))),
        r"client f0000_10: pixels have shape \(4, 28, 28\) but label has \(5,\)",
    ),
    "HDF5 with 63 labels": (
        tff_with(lambda file: file["examples/f0000_10/label"].__setitem__(1, 62)),
        r"a.h5, client f0000_10: label 62 of image 1",
    ),
    "HDF5 cut short": (cut(".h5"), r"a.h5: not a readable HDF5 file .* it may be cut short"),
    "parquet with a null writer": (
        parquet_with(lambda lines: lines[6].update(writer_id=None)),
        r"a.parquet: writer_id of line 6 is null, so its record belongs to no client; fill or remove that line",
    ),
    "parquet with a null label": (
        parquet_with(lambda lines: lines[0].update(character=None)),
        r"client f0000_10: character of line 0 is null",
    ),
    "parquet images of another size": (
        parquet_with(small_png),
        r"client f0001_11, line 3: the record is 30 x 28 x 1, the others are 28 x 28 x 1; resize it",
    ),
    "parquet with a broken image": (
        parquet_with(lambda lines: lines[3].update(image={"bytes": b"PNG?", "path": None})),
        r"a.parquet, client f0001_11, line 3: not a readable image",
    ),
    "parquet without its images": (
        parquet_with(lambda lines: lines[3].update(image={"bytes": None, "path": "x.png"})),
        r"line 3: the image is only named",
    ),
    "parquet with 63 labels": (
        parquet_with(lambda lines: lines[3].update(character=62)),
        r"a.parquet, client f0001_11: label 62 has no name among the 62 that the file gives",
    ),
    "parquet cut short": (cut(".parquet"), r"a.parquet: not a readable parquet file .* it may be cut short"),
    "npz cut short": (cut(".npz"), r"a.npz: not a readable npz file"),
    "npz without labels": (
        npz_with(labels=None),
        r"a.npz: no array or column is called labels, label, y or the like; there are clients, images; "
        r"say which has the labels with --labels NAME",
    ),
    "npz with fewer labels": (
        npz_with(labels=np.zeros(3, int)),
        r"a.npz: 24 records but 3 labels; give one for each record",
    ),
    "npz with 63 labels": (
        npz_with(labels=np.arange(24) + 39),
        r"a.npz, client-2: label 62 of image 10 is none of the 62 classes",
    ),
    "npz images of another size": (
        npz_with(images=np.zeros((24, 32, 32), np.uint8)),
        r"a.npz, client-0: images have 32 x 32 pixels, and handwriting has images of 28 x 28",
    ),
    "npz of objects": (
        npz_with(clients=np.array([None] * 24)),
        r"a.npz: not a readable npz file \(Object arrays cannot be loaded",
    ),
    "npz split": (
        npz_with(split=np.full(24, 3)),
        r"a.npz: split of record 0 is 3; 0 is a training client, 1 a test client, 2 an extra one",
    ),
    "npz without clients": (npz_with(clients=None), r"a.npz: says nothing of clients .*--partition dirichlet"),
    "npz without images": (
        npz_with(images=np.zeros((0, 28, 28)), labels=np.zeros(0), clients=np.zeros(0)),
        r"a.npz: there are no images in it",
    ),
    "npz that is one array": (one_array, r"a.npz: it is a single array, .*save it with numpy.savez"),
    "JSON of another shape": (
        leaf_with(lambda content: content.update(users=3)),
        r"a.json: users and num_samples are not lists",
    ),
    "LEAF labels in lists": (
        leaf_with(lambda content: content["user_data"]["f0001_11"]["y"].__setitem__(3, [1, 2])),
        r"client f0001_11: label '\[1, 2\]'",
    ),
    "LEAF pixels of text": (
        leaf_with(lambda content: content["user_data"]["f0001_11"]["x"][0].__setitem__(3, "a")),
        r"f0001_11: inputs are not numbers",
    ),
    "HDF5 with a single pixel": (tff_with(single_values), r"a.h5, client f0000_10: a single value in place of records"),
    "grey borders": (
        npz_with(images=np.full((24, 28, 28), 128, np.uint8)),
        r"a.npz: the background is ambiguous: .* say --background black or --background",
    ),
    "two forms": (two_forms, r"holds files of several forms \(leaf, tff\); say which with --form"),
    "nothing to read": (
        nothing_to_read,
        r"no data that coreshot can read; it reads .json \(leaf\), .* Unpack an archive first",
    ),
}


def is_one_line(text):
    return text.startswith("coreshot: ") and text.count("\n") == 1 and text.endswith(".\n")


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, call, tmp_path, home, three_clients, write_form):
    make, complaint = BAD[case]
    (tmp_path / "source").mkdir()
    path = make(tmp_path / "source", three_clients, write_form)
    code, _, errors = call("data", "add", "mine", "--from", path, "--as", "handwriting")
    assert code == 2
    assert is_one_line(errors)
    assert re.search(complaint, errors), errors
    assert not home.exists() or list(home.iterdir()) == []


MISTAKES = {
    "no such file": (
        ("add", "mine", "--from", "nowhere.npz"),
        "nowhere.npz: there is no such file or folder; check the path.",
    ),
    "no such form": (
        ("add", "mine", "--from", "a.json", "--form", "lef"),
        "--form: form 'lef' does not exist (did you mean 'leaf'?)",
    ),
    "another form": (("add", "mine", "--from", "a.json", "--form", "tff"), "a.json: not a readable HDF5 file"),
    "bad name": (("add", "../mine", "--from", "a.json"), "data set name '../mine': a name has at most 64 letters"),
    "bad background": (
        ("add", "mine", "--from", "a.json", "--background", "grey"),
        "--background: background 'grey' does not exist; there are black, white.",
    ),
    "background of general data": (
        ("add", "mine", "--from", "a.json", "--as", "general", "--background", "black"),
        "--background black: only handwriting has a background; leave it out, or add --as handwriting.",
    ),
    "no such preparation": (
        ("add", "mine", "--from", "a.json", "--as", "handwritting"),
        "--as: preparation 'handwritting' does not exist (did you mean 'handwriting'?)",
    ),
    "transposed vectors": (
        ("add", "mine", "--from", "a.json", "--as", "general", "--transpose"),
        "--transpose: the records are vectors",
    ),
    "no such partition": (("add", "mine", "--from", "a.json", "--partition", "dirichle"), "did you mean 'dirichlet'?"),
    "setting without partition": (
        ("add", "mine", "--from", "a.json", "--set", "alpha=1"),
        "say which with --partition",
    ),
    "partition without its number": (
        ("add", "mine", "--from", "a.json", "--partition", "iid"),
        "--partition iid: how many clients? Say it with --clients, for example --clients 10.",
    ),
    "partition that cannot be": (
        ("add", "mine", "--from", "a.json", "--partition", "iid", "--set", "num_partitions=25"),
        "24 records are fewer than the 25 that the partitions need",
    ),
    "partition by nothing": (
        ("add", "mine", "--from", "a.json", "--partition", "natural_id", "--set", "partition_by=site"),
        "partition_by = 'site': the data has no such column; it has label.",
    ),
    "show of nothing": (("show", "mine"), "data set 'mine' is not in the store"),
    "no checksum": (("get", "http://127.0.0.1:1/a.npz", "--sha256", "abc"), "a SHA-256 has 64 hexadecimal digits"),
    "no address": (("get", "a.npz", "--sha256", "0" * 64), "a.npz: not the address of a file"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_sentence_and_leaves_nothing(case, call, tmp_path, home, three_clients, write_form):
    write_form[".json"](tmp_path / "a.json", three_clients)
    arguments, words = MISTAKES[case]
    code, _, errors = call("data", *arguments)
    assert (code, is_one_line(errors)) == (2, True)
    assert words in errors
    assert not home.exists() or list(home.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir() if path != home) == ["a.json"]


def test_get_knows_what_is_already_there(call, tmp_path):
    (tmp_path / "a.npz").write_bytes(b"abc")
    code, said, errors = call("data", "get", "http://127.0.0.1:1/a.npz", "--sha256", hashlib.sha256(b"abc").hexdigest())
    assert (code, said, errors) == (0, "a.npz: is already there, its SHA-256 is right\n", "")


def test_a_folder_in_the_way_is_left_alone(call, tmp_path, home, three_clients, write_form):
    (home / "mine").mkdir(parents=True)
    write_form[".json"](tmp_path / "a.json", three_clients)
    code, _, errors = call("data", "add", "mine", "--from", "a.json")
    assert (code, is_one_line(errors)) == (2, True)
    assert "is in the way, and is no data set; move it, or use another name." in errors
    assert list((home / "mine").iterdir()) == []


def test_a_store_that_cannot_be_written(call, tmp_path, home, three_clients, write_form):
    home.write_text("a file, not a folder")
    write_form[".json"](tmp_path / "a.json", three_clients)
    code, _, errors = call("data", "add", "mine", "--from", "a.json")
    assert (code, is_one_line(errors)) == (2, True)
    assert "data set 'mine': cannot be written (" in errors
    assert home.read_text() == "a file, not a folder"


def test_a_full_disk_leaves_nothing(call, tmp_path, home, three_clients, write_form, monkeypatch):
    from coreshot.data import convert

    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(convert, "_write_targets", no_room)
    write_form[".json"](tmp_path / "a.json", three_clients)
    code, _, errors = call("data", "add", "mine", "--from", "a.json")
    assert (code, is_one_line(errors)) == (2, True)
    assert "No space left on device" in errors
    assert list(home.iterdir()) == []
