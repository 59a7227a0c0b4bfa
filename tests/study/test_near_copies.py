"""A copy of a coreset under another name with a few numbers changed: `fit` warns. And files of an earlier study."""

import json

import numpy as np
import pytest

from coreshot.errors import CoreshotError
from coreshot.fitted.near_copies import near_copies
from coreshot.wire.messages import pack, unpack
from coreshot.wire.signatures import check_sender, make_key, sign_message

HEADER = {"format": 1, "kind": "coreset", "round": 0, "study": "0" * 64}


def message(client, arrays):
    return pack({**HEADER, "client": client}, arrays)


def drawn(seed, count=400):
    draws = np.random.default_rng(seed)
    steps = draws.integers(0, 4, 200).astype(np.float32)  # two bits a number: many are equal by chance
    return {"sums": draws.normal(size=count).astype(np.float32), "steps": steps, "zero": np.zeros(5000, np.float32)}


def one_changed(path, out, client):
    header, arrays = unpack(path.read_bytes())
    changed = arrays["rows"].copy()
    changed[-1] ^= 1
    out.write_bytes(pack({**header, "client": client}, {**arrays, "rows": changed}))


def test_fit_warns_of_a_copy_with_one_number_changed(coreshot, study_path, write_site, tmp_path):
    for name, seed in (("a", 0), ("b", 1)):
        coreshot("distill", study_path, write_site(name, seed=seed), "--out", f"{name}.coreset")
    one_changed(tmp_path / "a.coreset", tmp_path / "copy.coreset", "c")
    told = coreshot("fit", "a.coreset", "b.coreset", "copy.coreset", "--study", study_path, "--out", "model")
    assert "of the numbers of c are those of a; ask both whose they are" in " ".join(told.split())
    told = coreshot("fit", "a.coreset", "b.coreset", "--study", study_path, "--out", "honest", "--json")
    assert not any("copy_of" in standing for standing in json.loads(told)["standings"].values()), "negative control"


@pytest.mark.parametrize(
    ("change", "is_found"),
    [
        (lambda x: np.where(np.arange(len(x)) % 20 == 0, x + 1, x), True),
        (lambda x: x * np.float32(1 + 1e-6), True),
        (lambda x: x + np.random.default_rng(9).normal(size=len(x)).astype(np.float32), False),  # not claimed
    ],
    ids=["one in twenty", "all by a millionth", "noise"],
)
def test_what_is_found_and_what_is_not(change, is_found):
    first, copy = drawn(0), drawn(0)
    copy["sums"] = change(copy["sums"]).astype(np.float32)
    found = near_copies({"a": first, "other": drawn(1), "b": copy})
    assert ("b" in found and found["b"][0] == "a") == is_found
    assert "other" not in found


def test_sites_of_many_records_from_one_population_are_no_copies():
    """Means over a million records each are as close as honest files get."""
    sums = [np.random.default_rng(seed).normal(1.0, 1e-3, 400).astype(np.float32) for seed in range(20)]
    assert near_copies({f"site-{seed}": (one,) for seed, one in enumerate(sums)}) == {}


def test_a_signed_file_of_an_earlier_study_cannot_be_used_in_a_new_one():
    """A file can be sent again within its study; a study with another name has another hash, and refuses it."""
    key = make_key()
    roster = {"a": key.public}
    old = sign_message(message("a", drawn(0)), key)
    check_sender(old, roster)
    header, arrays = unpack(old)
    with pytest.raises(CoreshotError, match="was not signed with the key"):
        check_sender(pack({**header, "study": "1" * 64}, arrays), roster)
