"""A site's budget: what leaves is in the ledger first, the same study has the same answer, a total is not passed."""

import json
import stat
from pathlib import Path

import pytest

from coreshot.privacy.release_ledger import ReleaseLedger


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


def values(arrays):
    return {name: array.tobytes() for name, array in arrays.items()}


@pytest.fixture
def other_study(private_path):
    """Another agreement about the same columns."""
    path = private_path.with_name("other.toml")
    path.write_text(private_path.read_text().replace('name = "small"', 'name = "other"'))
    return path


def test_the_same_study_on_the_same_records_is_the_same_file(coreshot, private_path, write_site, tmp_path):
    site = write_site("a")
    coreshot("distill", private_path, site, "--out", "a.coreset")
    told = coreshot("distill", private_path, site, "--out", "again/a.coreset", "--seed", 5)
    assert "no new noise was drawn" in told
    first = (tmp_path / "a.coreset").read_bytes()
    assert (tmp_path / "again" / "a.coreset").read_bytes() == first
    lines = site.read_text().splitlines()
    (tmp_path / "sorted.csv").write_text("\n".join([lines[0], *sorted(lines[1:])]) + "\n")
    coreshot("distill", private_path, "sorted.csv", "--out", "b.coreset", "--client", "a")
    assert (tmp_path / "b.coreset").read_bytes() == first, "the same records in another order"
    facts = json.loads(coreshot("budget", "show", "--json"))
    assert len(facts["releases"]) == 1
    assert len(facts["sums"]) == 2, "a file and its sorted copy are one data set; and all together"
    assert [one["epsilon"] for one in facts["sums"]] == [pytest.approx(2.0, abs=0.01)] * 2


def test_another_name_gets_the_same_numbers_and_other_records_get_others(coreshot, private_path, write_site, tmp_path):
    from coreshot.wire.messages import unpack

    site = write_site("a")
    coreshot("distill", private_path, site, "--out", "a.coreset")
    coreshot("distill", private_path, site, "--out", "b.coreset")
    coreshot("distill", private_path, write_site("c", seed=1), "--out", "c.coreset")
    (header, arrays), (renamed, same), (_, others) = (unpack((tmp_path / f"{n}.coreset").read_bytes()) for n in "abc")
    assert renamed == {**header, "client": "b"}
    assert values(arrays) == values(same)
    assert values(arrays) != values(others), "negative control"


def test_a_second_study_over_the_total_is_refused_with_the_numbers(
    coreshot, private_path, other_study, write_site, tmp_path
):
    site = write_site("a")
    coreshot("budget", "set", "--epsilon", 2.5, "--delta", 1e-5)
    told = coreshot("distill", private_path, site, "--out", "a.coreset")
    assert "epsilon 2 of this site's total of 2.5 at delta 1e-05" in told
    told = coreshot("distill", other_study, site, "--out", "b.coreset", code=2)
    assert "from epsilon 2 to 2.9" in told
    assert "this site's total is 2.5" in told
    assert not (tmp_path / "b.coreset").exists()
    # What was released before is sent again: it costs nothing.
    coreshot("distill", private_path, site, "--out", "again.coreset", "--client", "a")
    coreshot("budget", "set", "--epsilon", 3)
    coreshot("distill", other_study, site, "--out", "b.coreset")


def test_a_total_of_one_data_set_leaves_others_alone(coreshot, private_path, other_study, write_site):
    one, two = write_site("one"), write_site("two", seed=1)
    coreshot("budget", "set", "--epsilon", 2.5, "--data", one)
    coreshot("distill", private_path, one, "--out", "a.coreset")
    coreshot("distill", other_study, two, "--out", "b.coreset")
    coreshot("distill", private_path, two, "--out", "c.coreset")
    assert "of this data set" in coreshot("distill", other_study, one, "--out", "d.coreset", code=2)
    coreshot("budget", "remove", "--data", one)
    coreshot("distill", other_study, one, "--out", "d.coreset")
    assert "there is no such total" in coreshot("budget", "remove", code=2)


def test_exact_releases_are_noted_and_a_total_refuses_them(coreshot, study_path, write_site, ledger_path):
    site = write_site("a")
    coreshot("distill", study_path, site, "--out", "a.coreset")
    told = coreshot("budget", "show")
    assert "exact: no bound" in told
    assert "released without noise: 1" in told
    coreshot("budget", "set", "--epsilon", 10)
    assert "no epsilon is a bound" in coreshot("distill", study_path, site, "--out", "b.coreset", code=2)
    content = ledger_path.read_bytes()
    assert b"a.csv" not in content
    assert b"north" not in content


def test_nothing_is_released_where_the_ledger_cannot_be_written(coreshot, private_path, write_site, tmp_path):
    (tmp_path / "file").write_text("")
    site = write_site("a")
    told = coreshot("distill", private_path, site, "--out", "a.coreset", "--ledger", "file/ledger.sqlite", code=2)
    assert "so nothing is released" in told
    told = coreshot("distill", private_path, site, "--out", "a.coreset", "--ledger", site, code=2)
    assert "its key a.csv.key is not beside it" in told
    assert not (tmp_path / "a.coreset").exists()
    coreshot("budget", "show", "--ledger", "mine.sqlite")
    (tmp_path / "mine.sqlite.key").unlink()
    assert "restore the key" in coreshot("budget", "show", "--ledger", "mine.sqlite", code=2)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [("0", "1e-5"), ("-1", "1e-5"), ("nan", "1e-5"), ("inf", "1e-5"), ("1", "0.5")]
)
def test_a_total_that_means_nothing_is_refused(coreshot, epsilon, delta):
    assert "change it" in coreshot("budget", "set", "--epsilon", epsilon, "--delta", delta, code=2)


def test_files_are_for_their_owner_alone(coreshot, study_path, private_path, write_site, ledger_path, tmp_path):
    coreshot("distill", private_path, write_site("a"), "--out", "a.coreset")
    coreshot("distill", study_path, write_site("b"), "--out", "b.coreset")
    coreshot("fit", "b.coreset", "--study", study_path, "--out", "model")
    for path in ("a.coreset", "b.coreset", "model/coresets/b.coreset", ledger_path, f"{ledger_path}.key"):
        assert mode(tmp_path / path) == 0o600, path
    assert mode(ledger_path.parent) == 0o700
    ledger_path.chmod(0o644)
    ReleaseLedger(ledger_path)
    assert mode(ledger_path) == 0o600, "a ledger that was copied with another mode"
    assert mode(tmp_path / "model" / "model.toml") != 0o600, "negative control: the mode is not that of the umask"


def test_a_delta_above_one_in_so_many_records_is_a_warning(coreshot, private_path, write_site):
    loose = private_path.read_text().replace("delta = 1e-05", "delta = 0.02")
    private_path.write_text(loose)
    assert "warning: delta is 0.02, above 1 / 60" in coreshot("distill", private_path, write_site("a"), "--out", "a.x")
    assert "warning" not in coreshot("distill", private_path, write_site("b", count=40), "--out", "b.x")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('outside = "clip"', 'outside = "refuse"', "cell in 'age'"),
        ('values = ["f", "m"]\noutside = "missing"', 'values = ["f", "m"]', "cell in 'sex'"),
        ('missing = "indicator"', 'missing = "refuse"', "missing cells"),
    ],
)
def test_a_private_study_refuses_no_single_record(coreshot, private_path, study_path, write_site, old, new, named):
    text = private_path.read_text()
    assert old in text
    changed = text.replace(old, new)
    private_path.write_text(changed.replace("dimension = 7", "dimension = 4") if "missing cells" in named else changed)
    site = write_site("a")
    for command in (("study", "check", private_path), ("distill", private_path, site, "--out", "a.coreset")):
        told = coreshot(*command, code=2)
        assert f"a site would refuse one record's {named}" in told
    coreshot("study", "check", study_path)  # an exact study may
