"""The same handwriting in every format that coreshot reads becomes the same data set of the store."""

import json

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from coreshot.data import convert
from coreshot.data.convert import add_data_set
from coreshot.data.handwriting.labels import CHARACTERS, code_labels
from coreshot.data.handwriting.pixels import BorderVote, as_pixels
from coreshot.data.store import open_data_set
from coreshot.errors import CoreshotError

pytestmark = pytest.mark.usefixtures("store_home")


def add(name, path, **options):
    return add_data_set(name, path, preparation="handwriting", **options)


@pytest.fixture
def store_home(tmp_path, monkeypatch):
    monkeypatch.setenv("CORESHOT_DATA", str(tmp_path / "store"))
    return tmp_path / "store"


def contents(data, *roles):
    return {
        holder.name: (data.inputs[holder.rows, ..., 0].tolist(), data.targets[holder.rows].tolist())
        for holder in data.of_role(*(roles or ("train", "extra")))
    }


def as_lists(clients):
    return {client: (images.tolist(), labels.tolist()) for client, (images, labels) in clients.items()}


def sort_lines(clients):
    """A parquet file keeps no order within a client that others could not shuffle."""
    return {client: sorted(zip(labels, images, strict=True)) for client, (images, labels) in clients.items()}


@pytest.mark.parametrize("suffix", [".json", ".h5", ".npz", ".parquet"])
def test_every_form_becomes_the_same_set(suffix, three_clients, write_form, tmp_path):
    write_form[suffix](tmp_path / f"data{suffix}", three_clients)
    data, is_new = add("set", tmp_path / f"data{suffix}")
    assert is_new
    assert list(contents(data)) == list(three_clients)
    assert sort_lines(contents(data)) == sort_lines(as_lists(three_clients))
    if suffix != ".parquet":
        assert contents(data) == as_lists(three_clients)
    assert data.description.notes["background_of_source"] == ("black" if suffix == ".npz" else "white")
    assert data.inputs.dtype == data.targets.dtype == np.uint8
    assert isinstance(data.inputs, np.memmap)


@pytest.mark.parametrize("suffix", [".json", ".h5", ".parquet"])
def test_a_folder_of_several_files(suffix, three_clients, write_form, tmp_path):
    """Each client in a file of its own; what a path calls test is for testing."""
    for stage in ("train", "test", "all_data"):
        (tmp_path / "data" / stage).mkdir(parents=True)
    write_form[suffix](
        tmp_path / "data" / "all_data" / f"all{suffix}", three_clients
    )  # LEAF's former stage, which is not read again
    *training, tester = three_clients
    for client in training:
        write_form[suffix](tmp_path / "data" / "train" / f"{client}{suffix}", {client: three_clients[client]})
    write_form[suffix](tmp_path / "data" / "test" / f"some{suffix}", {tester: three_clients[tester]})
    data, _ = add("set", tmp_path / "data")
    assert list(contents(data)) == training
    assert list(contents(data, "test")) == [tester]
    assert [source["file"] for source in data.index["sources"]] == [
        f"test/some{suffix}",
        *(f"train/{client}{suffix}" for client in training),
    ]


def test_a_split_by_image_keeps_both_parts_of_a_client(three_clients, write_form, tmp_path):
    """As TFF does it: the test file has the same writers."""
    halves = [
        {client: (images[part::2], labels[part::2]) for client, (images, labels) in three_clients.items()}
        for part in (0, 1)
    ]
    for half, name in zip(halves, ("fed_emnist_train.h5", "fed_emnist_test.h5"), strict=True):
        write_form[".h5"](tmp_path / name, half)
    data, _ = add("set", tmp_path)
    assert contents(data) == as_lists(halves[0])
    assert contents(data, "test") == as_lists(halves[1])


def test_a_test_file_alone_is_somebodys_data(three_clients, write_form, tmp_path):
    write_form[".h5"](tmp_path / "fed_emnist_test.h5", three_clients)
    assert contents(add("set", tmp_path / "fed_emnist_test.h5")[0]) == as_lists(three_clients)


def test_a_client_of_parquet_may_lie_in_two_files(three_clients, write_form, tmp_path):
    for part in (0, 1):
        write_form[".parquet"](
            tmp_path / f"train-0000{part}-of-00002.parquet",
            {client: (images[part::2], labels[part::2]) for client, (images, labels) in three_clients.items()},
        )
    data, _ = add("set", tmp_path)
    assert sort_lines(contents(data)) == sort_lines(as_lists(three_clients))


@pytest.mark.parametrize("as_text", [False, True])
def test_parquet_with_lists_of_numbers(as_text, three_clients, tmp_path):
    """Whole numbers 0 to 255 on black; labels may be characters; client numbers get the name of their column."""
    lines = [
        {
            "pixels": image.reshape(-1).tolist(),
            "client_id": number,
            "label": CHARACTERS[label] if as_text else int(label),
        }
        for number, (images, labels) in enumerate(three_clients.values())
        for image, label in zip(images, labels, strict=True)
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(lines), tmp_path / "lists.parquet")
    data, _ = add("set", tmp_path / "lists.parquet")
    assert contents(data) == {f"client-{index}": one for index, one in enumerate(as_lists(three_clients).values())}


def test_class_names_of_a_parquet_file_are_followed(three_clients, tmp_path):
    """A file that counts lower case first says so, and is translated."""
    swapped = CHARACTERS[:10] + CHARACTERS[36:] + CHARACTERS[10:36]
    (images, labels), *_ = three_clients.values()
    labels = labels + 30
    lines = [
        {"image": image.reshape(-1).tolist(), "writer_id": "w", "character": swapped.index(CHARACTERS[label])}
        for image, label in zip(images, labels, strict=True)
    ]
    metadata = {"huggingface": json.dumps({"info": {"features": {"character": {"names": list(swapped)}}}})}
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist(lines).replace_schema_metadata(metadata), tmp_path / "a.parquet"
    )
    assert add("set", tmp_path / "a.parquet")[0].targets.tolist() == labels.tolist()


def test_npz_with_test_images_that_nobody_holds(draw_handwriting, tmp_path):
    images, labels = draw_handwriting(0, 12)
    clients = np.array([3, 0, 65535, 3, 0, 65535, 3, 0, 0, 0, 0, 3], np.uint16)
    np.savez(tmp_path / "a.npz", images=images, labels=labels, clients=clients)
    data, _ = add("set", tmp_path / "a.npz")
    assert contents(data) == {
        f"client-{client}": (images[clients == client].tolist(), labels[clients == client].tolist())
        for client in (0, 3)
    }
    assert contents(data, "test") == {"nobody": (images[clients == 65535].tolist(), labels[clients == 65535].tolist())}


def test_without_clients_a_partition_makes_them_and_test_images_stay(draw_handwriting, tmp_path):
    from coreshot.data.partition import Iid

    images, labels = draw_handwriting(0, 12)
    np.savez(tmp_path / "a.npz", images=images, labels=labels, split=np.repeat([0, 1], [9, 3]))
    with pytest.raises(CoreshotError, match=r"a.npz: says nothing of clients .* --partition dirichlet"):
        add("set", tmp_path / "a.npz")
    data, _ = add("set", tmp_path / "a.npz", partitioner=Iid(num_partitions=2))
    assert [(holder.name, holder.role, holder.count) for holder in data.holders] == [
        ("client-0", "train", 5),
        ("client-1", "train", 4),
        ("nobody", "test", 3),
    ]
    assert contents(data, "test")["nobody"][0] == images[9:].tolist()
    assert sorted(data.inputs[:9, ..., 0].tolist()) == sorted(images[:9].tolist())
    assert data.index["options"]["partition"] == {"name": "iid", "num_partitions": 2, "shuffle": True, "seed": 42}


def test_a_partition_by_a_column_of_the_source(draw_handwriting, tmp_path):
    from coreshot.data.partition import NaturalId

    images, labels = draw_handwriting(0, 6)
    sites = np.array([1, 0, 1, 0, 2, 2])
    np.savez(tmp_path / "a.npz", images=images, labels=labels, writers=np.arange(6), sites=sites)
    data, _ = add("set", tmp_path / "a.npz", partitioner=NaturalId(partition_by="sites"))
    assert contents(data) == {
        f"site-{site}": (images[sites == site].tolist(), labels[sites == site].tolist()) for site in range(3)
    }


def test_names_become_names_of_files(three_clients, write_form, tmp_path):
    images = next(iter(three_clients.values()))
    write_form[".json"](tmp_path / "a.json", {"../Émile": images, "ok": images})
    assert list(contents(add("set", tmp_path / "a.json")[0])) == ["_.__mile", "ok"]
    write_form[".json"](tmp_path / "b.json", {"a b": images, "a/b": images})
    with pytest.raises(CoreshotError, match=r"clients 'a b' and 'a/b' would both be called 'a_b'"):
        add("other", tmp_path / "b.json")


def test_transposed_images_are_turned(draw_handwriting, tmp_path):
    images, labels = draw_handwriting(0, 3)
    np.savez(tmp_path / "a.npz", images=images.transpose(0, 2, 1), labels=labels, clients=np.zeros(3, int))
    data, _ = add("set", tmp_path / "a.npz", transpose=True)
    np.testing.assert_array_equal(data.inputs[..., 0], images)


def test_many_images_are_put_in_order_in_pieces(draw_handwriting, tmp_path, monkeypatch):
    monkeypatch.setattr(convert, "BYTES_AT_ONCE", 4 * 784)
    images, labels = draw_handwriting(0, 11)
    np.savez(tmp_path / "a.npz", images=255 - images, labels=labels, clients=np.arange(11)[::-1])
    np.testing.assert_array_equal(add("set", tmp_path / "a.npz")[0].inputs[..., 0], images[::-1])


def test_labels_in_every_coding():
    assert code_labels([0, 9, 10, 35, 36, 61], "here").tolist() == [0, 9, 10, 35, 36, 61]
    assert code_labels(list("09AZaz"), "here").tolist() == [0, 9, 10, 35, 36, 61]
    assert code_labels(["7", "61", b"a"], "here").tolist() == [7, 61, 36]
    assert code_labels(np.array([3.0, 61.0]), "here").dtype == np.uint8
    for bad, complaint in [
        ([0, 62], "label 62 of image 1"),
        ([-1], "label -1 of image 0"),
        ([1.5], "label 1.5"),
        (["é"], "label 'é'"),
        ([np.nan], "nan"),
    ]:
        with pytest.raises(CoreshotError, match=f"^here: .*{complaint}"):
            code_labels(bad, "here")


def test_pixels_in_every_scale():
    whole = np.arange(784).reshape(1, 28, 28) % 256
    for values in (
        whole,
        whole.astype(np.int64),
        (whole / 255).astype(np.float32),
        (whole / 255).tolist(),
        whole.reshape(1, 784),
        whole[..., None],
    ):
        np.testing.assert_array_equal(as_pixels(values, "here"), whole)
    for bad, complaint in [
        (whole.astype(float), r"pixel of image 0 is 2, outside 0 to 1"),
        (whole - 1, r"is -1, outside 0 to 255"),
        (np.full((1, 28, 28), np.nan), r"is nan"),
        (np.zeros((2, 32, 32)), r"images have 32 x 32 pixels, and handwriting has images of 28 x 28"),
        ([[0.0] * 784, [0.0] * 783], r"record 1 has 783 numbers, not 784"),
        ([["a"] * 784], r"pixels are of type"),
    ]:
        with pytest.raises(CoreshotError, match=f"^here: .*{complaint}"):
            as_pixels(bad, "here")


def test_the_background_is_found_or_refused(draw_handwriting):
    images, _ = draw_handwriting(0, 20)
    for black, white, decision in [(20, 0, "black"), (0, 20, "white"), (19, 1, "black"), (10, 10, None)]:
        vote = BorderVote()
        vote.count(images[:black])
        vote.count(255 - images[:white])
        if decision:
            assert vote.decide("here") == decision
        else:
            with pytest.raises(
                CoreshotError,
                match=r"here: the background is ambiguous: of 20 images 10 have a dark border and 10 a light one",
            ):
                vote.decide("here")
    grey = BorderVote()
    grey.count(np.full((4, 28, 28), 128, np.uint8))
    with pytest.raises(CoreshotError, match="ambiguous"):
        grey.decide("here")


def test_a_set_is_added_once_and_never_replaced(three_clients, write_form, tmp_path):
    write_form[".h5"](tmp_path / "a.h5", three_clients)
    first, _ = add("set", tmp_path / "a.h5")
    assert not add("set", tmp_path / "a.h5")[1]
    with pytest.raises(CoreshotError, match=r"'set' is already in the store, from other files or with other options"):
        add("set", tmp_path / "a.h5", transpose=True)
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["examples/f0000_10/label"][0] = 5
    with pytest.raises(CoreshotError, match="already in the store"):
        add("set", tmp_path / "a.h5")
    assert contents(open_data_set("set")) == contents(first)


def test_a_damaged_set_is_refused(three_clients, write_form, tmp_path, store_home):
    write_form[".h5"](tmp_path / "a.h5", three_clients)
    add("set", tmp_path / "a.h5")
    whole = (store_home / "set" / "inputs.npy").read_bytes()
    (store_home / "set" / "inputs.npy").write_bytes(whole[:-100])
    with pytest.raises(CoreshotError, match=r"inputs.npy: cannot be read .* remove its folder and add the data anew"):
        open_data_set("set")
    np.save(store_home / "set" / "inputs.npy", np.zeros((2, 28, 28, 1), np.uint8))
    with pytest.raises(CoreshotError, match=r"the index says 24 records of .* the files hold 2"):
        open_data_set("set")
    index = json.loads((store_home / "set" / "index.json").read_text())
    (store_home / "set" / "index.json").write_text(json.dumps({**index, "version": 99}))
    with pytest.raises(CoreshotError, match="layout version 99"):
        open_data_set("set")
