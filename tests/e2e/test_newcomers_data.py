"""A file that nobody here has made a task for: `data add`, `new-preset`, `run` and the page, without code."""

import csv
import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from coreshot.config import decode_named
from coreshot.data import TASKS

pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")
TINY = {
    "learner.bpc.num_updates": 1,
    "learner.bpc.data_chain_length": 3,
    "learner.bpc.coreset_chain_length": 2,
    "learner.bpc.experts.num_trajectories": 3,
    "learner.bpc.experts.num_steps": 30,
    "learner.bpc.experts.save_interval": 3,
    "inference.adam.num_steps": 30,
    "method.fed_avg.num_rounds": 2,
    "method.fed_avg.local_steps": 2,
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CORESHOT_DATA", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_pictures(path):
    """Ten classes of colour, in three parks; each class has a colour of its own."""
    draws = np.random.default_rng(0)
    y, colours = np.arange(150) % 10, draws.random((10, 1, 1, 3))
    x = np.clip(colours[y] + 0.05 * draws.normal(size=(150, 8, 8, 3)), 0, 1)
    kind, park = np.array(list("abcdefghij"))[y], np.array(["north", "south", "east"])[np.arange(150) // 10 % 3]
    np.savez(path, pictures=(255 * x).astype(np.uint8), kind=kind, park=park)


def make_task(name, **settings):
    return decode_named(TASKS, {"name": "federated", "data": name, **settings}, "test", "task")


def test_colour_images_of_three_clients_run_without_code(call, folder):
    write_pictures(folder / "pics.npz")
    words = ("--inputs", "pictures", "--labels", "kind", "--clients", "park", "--test-fraction", 0.3)
    code, out, err = call("data", "add", "pics", "--from", "pics.npz", *words)
    assert code == 0, err
    assert "3 training clients with 105 images, 3 holders of test images with 45 images" in out
    code, out, _ = call("new-preset", "pics", "--out", "own.toml")
    assert (code, "arms: spectral, FedAvg, BPC-FL, random subset, class mean, noise, pooled" in out) == (0, True)
    written = (folder / "own.toml").read_bytes()
    code, _, err = call("new-preset", "pics", "--out", "own.toml")
    assert (code, "is already there, and nothing is overwritten" in err) == (2, True)
    assert (folder / "own.toml").read_bytes() == written

    changes = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]
    code, out, err = call("run", "own.toml", *changes)
    assert code == 0, err
    assert call("report", "runs/own")[0] == 0
    page = (folder / "runs" / "own" / "report.html").read_text()
    assert all(arm in page for arm in ("spectral", "FedAvg", "BPC-FL", "random subset", "pooled"))
    row = json.loads((folder / "runs/own/arms/own/spectral/seed-0/row.json").read_text())
    assert row["accuracy"] > 0.9, "ten colours; chance is 0.1"


def test_folders_of_images(call, folder):
    draws = np.random.default_rng(0)
    for park in ("north", "south"):
        for tree in ("elm", "oak"):
            (folder / "trees" / park / tree).mkdir(parents=True)
            for number in range(3):
                image = Image.fromarray(draws.integers(0, 256, (5, 4, 3), np.uint8))
                image.save(folder / "trees" / park / tree / f"{number}.png")
    code, out, _ = call("data", "add", "trees", "--from", "trees", "--test-clients", 1)
    assert (code, "1 training clients with 6 images, 1 holders of test images with 6" in out) == (0, True), out
    task = make_task("trees")
    assert (task.input_shape, task.num_outputs) == ((5, 4, 3), 2)
    [name] = task.make(0).clients
    first = np.asarray(Image.open(folder / "trees" / name / "elm" / "0.png")) / np.float32(255)
    np.testing.assert_array_equal(np.asarray(task.make(0).clients[name].x)[0], first)
    Image.new("RGB", (9, 9)).save(folder / "trees" / "north" / "elm" / "9.png")
    code, _, err = call("data", "add", "more", "--from", "trees")
    assert (code, "--size" in err, "9.png" in err) == (2, True, True), err
    assert call("data", "add", "more", "--from", "trees", "--size", "6x6", "--channels", 1)[0] == 0
    assert make_task("more").input_shape == (6, 6, 1)


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_table_with_quantities_to_predict(call, folder, form):
    number, part = np.arange(60), np.where(np.arange(60) % 5, "train", "test")
    columns = {"age": 20.0 + number, "bmi": 20 + number % 7, "stay": number / 4, "ward": number % 3, "part": part}
    if form == "parquet":
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / "stay.parquet")
    else:
        with (folder / "stay.csv").open("w", newline="") as file:
            csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
    words = ("--labels", "stay", "--clients", "ward", "--test", "part", "--task", "regression")
    code, out, err = call("data", "add", "stay", "--from", f"stay.{form}", "--inputs", "all", *words)
    assert (code, "48 vectors" in out) == (0, True), err
    task = make_task("stay")
    assert (task.kind, task.input_shape, task.num_outputs) == ("regression", (2,), 1)
    data = task.make(0)
    assert sorted(len(records.x) for records in data.clients.values()) == [16, 16, 16]
    assert len(data.test.x) == 12
    code, out, _ = call("new-preset", "stay", "--out", "stay.toml")
    assert (code, "arms: spectral, FedAvg, BPC-FL" in out) == (0, True)


def test_clients_for_data_that_has_none(call, folder):
    draws = np.random.default_rng(0)
    np.savez(folder / "plain.npz", x=draws.normal(size=(300, 3)), y=np.arange(300) % 3)
    words = ("--partition", "dirichlet", "--alpha", 0.2, "--clients", 6, "--test-fraction", 0.2)
    assert call("data", "add", "plain", "--from", "plain.npz", *words)[0] == 0
    data = make_task("plain").make(0)
    assert (len(data.clients), sum(len(one.x) for one in data.clients.values()), len(data.test.x)) == (6, 240, 60)
    shares = [np.asarray(one.y).mean(axis=0).max() for one in data.clients.values()]
    assert np.mean(shares) > 0.6, "alpha 0.2 is far from equal shares of a third"


FAULTS = {
    "no such label": (("--labels", "kind"), "--labels kind: there is no such array or column; there are x, y"),
    "no clients": ((), "says nothing of clients"),
    "no such clients": (("--clients", "ward"), "there is no such array or column"),
    "no alpha": (("--partition", "dirichlet", "--clients", 2), "'alpha' is missing"),
    "an unknown partition": (("--partition", "zipf", "--clients", 2), "zipf"),
    "too many clients": (("--partition", "iid", "--clients", 99), "99"),
    "two ways of testing": (("--test-fraction", 0.2, "--test-clients", 1), "give one of them"),
    "a share above 1": (("--partition", "iid", "--clients", 2, "--test-fraction", 1.2), "a share above 0 and below 1"),
    "an unknown task": (("--partition", "iid", "--clients", 2, "--task", "ranking"), "ranking"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_one_sentence_for_each_fault(call, folder, fault):
    words, sentence = FAULTS[fault]
    np.savez(folder / "plain.npz", x=np.zeros((12, 3)), y=np.arange(12) % 3)
    code, out, err = call("data", "add", "plain", "--from", "plain.npz", *words)
    assert (code, out.removeprefix("reading plain.npz: done in 0 s\n")) == (2, "")
    assert sentence in err.replace("\n", " "), err
    assert err.startswith("coreshot: ")
    assert "plain" not in call("data", "list")[1]


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": np.full((4, 2), np.nan), "y": np.arange(4) % 2}, "record 0 has a value that is not a finite float32"),
        ({"x": np.zeros((4, 2)), "y": np.arange(3)}, "4 records but 3 y"),
        ({"x": np.array([{}, {}], object), "y": np.arange(2)}, "x"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0, int)}, "there are no x in it"),
    ],
)
def test_arrays_that_are_no_data(call, folder, arrays, sentence):
    np.savez(folder / "odd.npz", **arrays)
    code, _, err = call("data", "add", "odd", "--from", "odd.npz", "--partition", "iid", "--clients", 2)
    assert (code, sentence in err) == (2, True), err
    assert "Traceback" not in err
    assert not (folder / "home" / "odd").exists()
