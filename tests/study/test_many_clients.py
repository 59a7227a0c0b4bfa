"""Models of many clients in shards: one more, one less and sums of several machines give the bytes of a fit from
scratch. Four groups instead of 64 make nine clients many."""

from types import SimpleNamespace

import numpy as np
import pytest
import tomli_w

from coreshot.api import distill
from coreshot.errors import CoreshotError
from coreshot.fitted import shard_workers
from coreshot.fitted.folder import change, merge, open_model, write_model
from coreshot.fitted.model import compare_clients, fit, read_messages
from coreshot.fitted.sharded_folder import write_part
from coreshot.study.file import parse_study
from coreshot.wire.messages import pack, unpack

NUM_CLIENTS = 9
COLUMNS = [{"name": name, "kind": "number", "range": [-1.0, 1.0], "outside": "clip"} for name in "uv"]


def study_text(kind):
    target = {"name": "y", "classes": ["no", "yes"]} if kind == "classes" else {"name": "y", "range": [-3.0, 3.0]}
    method = {"name": "glm", "dimension": 5, "winsorise": True}
    task = "classification" if kind == "classes" else "regression"
    first = {"format": 1, "name": "test", "task": task}
    return tomli_w.dumps({**first, "target": target, "method": method, "table": {"missing": "mean", "column": COLUMNS}})


@pytest.fixture(autouse=True)
def _four_groups(monkeypatch):
    monkeypatch.setattr("coreshot.glm.received.NUM_GROUPS", 4)


@pytest.fixture(scope="module", params=["classes", "quantity"])
def many(request):
    """The third client has no cell of the second column: it is filled in with the mean of the others."""
    file = parse_study(study_text(request.param), "test")
    messages = {}
    for seed in range(NUM_CLIENTS):
        draws = np.random.default_rng(seed)
        x = draws.uniform(-1, 1, size=(60, 2)).astype(np.float32)
        score = x[:, 0] - x[:, 1] + 0.3 * draws.normal(size=60)
        missing = np.zeros((60, 2), np.float32)
        if seed == 3:
            x[:, 1], missing[:, 1] = 0.0, 1.0
        y = (score > 0).astype(int) if request.param == "classes" else score[:, None] / 3
        messages[f"site-{seed}"] = distill(file.study, np.c_[x, missing], y, client=f"site-{seed}")
    return SimpleNamespace(file=file, messages=messages, x=np.c_[x, missing])


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def write(many, path, names):
    write_model(path, many.file, {name: many.messages[name] for name in names}, None, "mass", 0)
    return contents(path)


def test_who_comes_and_who_leaves(many, tmp_path):
    every = list(many.messages)
    whole = write(many, tmp_path / "whole", every)
    assert any(name.startswith("shards/") for name in whole)
    write(many, tmp_path / "late", every[:-1])
    change(open_model(tmp_path / "late"), {every[-1]: many.messages[every[-1]]})
    assert contents(tmp_path / "late") == whole
    fewer = write(many, tmp_path / "fewer", [name for name in every if name != "site-3"])
    change(open_model(tmp_path / "late"), {}, ["site-3"])
    assert contents(tmp_path / "late") == fewer
    assert fewer.keys() != whole.keys(), "negative control"


def test_shards_of_several_processes(many, tmp_path, monkeypatch):
    alone = write(many, tmp_path / "alone", many.messages)
    monkeypatch.setattr(shard_workers, "MESSAGES_EACH", 4)
    monkeypatch.setattr(shard_workers, "num_cores", lambda: 2)
    counted = []
    monkeypatch.setattr(shard_workers, "_ask", lambda *job, ask=shard_workers._ask: counted.append(1) or ask(*job))
    # Their program has 64 groups: the number of a group is not its business.
    assert write(many, tmp_path / "together", many.messages) == alone
    assert counted, "the worker did nothing"
    header, arrays = unpack(many.messages["site-0"])
    bad = pack({**header, "client": "other"}, {**arrays, "loss": np.asarray([-1.0], np.float32)})
    with pytest.raises(CoreshotError, match=r"client other.* out of range"):
        write_model(tmp_path / "new", many.file, {**many.messages, "other": bad}, None, "mass", 0)
    assert not (tmp_path / "new").exists()


def test_down_to_few_clients_and_back(many, tmp_path):
    every = list(many.messages)
    few, whole = write(many, tmp_path / "few", every[:4]), write(many, tmp_path / "whole", every)
    change(open_model(tmp_path / "whole"), {}, every[4:])
    assert contents(tmp_path / "whole") == few
    change(open_model(tmp_path / "whole"), {name: many.messages[name] for name in every[4:]})
    assert contents(tmp_path / "whole") == whole


def test_parts_of_several_machines(many, tmp_path):
    whole = write(many, tmp_path / "whole", many.messages)
    study = many.file.study
    for part in range(2):
        write_part(tmp_path / f"part-{part}", study, many.messages, part, 2, None)
    merge([tmp_path / "part-1", tmp_path / "part-0"], many.file, tmp_path / "merged", 0)
    assert contents(tmp_path / "merged") == whole
    # Other clients in each part: a shard that both have is made again.
    for part in range(2):
        some = {name: data for place, (name, data) in enumerate(many.messages.items()) if place % 2 == part}
        write_part(tmp_path / f"half-{part}", study, some, 0, 1, None)
    merge([tmp_path / "half-0", tmp_path / "half-1"], many.file, tmp_path / "joined", 0)
    assert contents(tmp_path / "joined") == whole
    with pytest.raises(CoreshotError, match="a client is in two parts"):
        merge([tmp_path / "half-0", tmp_path / "half-0"], many.file, tmp_path / "twice", 0)


def test_the_model_and_the_standings_are_those_of_a_fit_in_memory(many, tmp_path):
    write(many, tmp_path / "whole", many.messages)
    opened, study = open_model(tmp_path / "whole"), many.file.study
    model = fit(study, many.messages.values())
    np.testing.assert_allclose(opened.load().predict(many.x).mean, model.predict(many.x).mean, atol=1e-9)
    assert dict(opened.coresets()) == many.messages
    told = compare_clients(study, read_messages(study, many.messages.values()))
    for name, standing in told.items():
        assert opened.standings[name]["verdict"] == standing.verdict
        if standing.agreement is not None:
            # Of more than MANY_CLIENTS the others' heads are fitted with the judged one; of these nine, without.
            assert opened.standings[name]["agreement"] == pytest.approx(standing.agreement, abs=0.1)


@pytest.mark.parametrize("wrong", ["copy", "damaged", "another study"])
def test_a_message_that_cannot_be_used_leaves_no_trace(many, wrong, tmp_path):
    header, arrays = unpack(many.messages["site-0"])
    if wrong == "damaged":
        arrays = {**arrays, "loss": np.asarray([-1.0], np.float32)}
    study = "0" * 64 if wrong == "another study" else header["study"]
    bad = pack({**header, "client": "other", "study": study}, arrays)
    words = {"copy": "holds the same numbers", "damaged": "out of range", "another study": "belongs to study"}[wrong]
    with pytest.raises(CoreshotError, match=words):
        write_model(tmp_path / "new", many.file, {**many.messages, "other": bad}, None, "mass", 0)
    assert not (tmp_path / "new").exists()
    before = write(many, tmp_path / "model", many.messages)
    with pytest.raises(CoreshotError, match=words):
        change(open_model(tmp_path / "model"), {"other": bad})
    assert contents(tmp_path / "model") == before


def test_a_near_copy_is_told(many, tmp_path):
    header, arrays = unpack(many.messages["site-0"])
    changed = {**arrays, "loss": arrays["loss"] * np.float32(1.01)}
    copy = pack({**header, "client": "copy"}, changed)
    write_model(tmp_path / "model", many.file, {**many.messages, "copy": copy}, None, "mass", 0)
    standings = open_model(tmp_path / "model").standings
    assert standings["site-0"]["copy_of"] == "copy"
    assert not any("copy_of" in standings[name] for name in many.messages if name != "site-0"), "negative control"
