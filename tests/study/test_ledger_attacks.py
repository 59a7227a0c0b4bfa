"""Ways around a site's ledger that a reviewer tried. Each test names what happened before its defence was there.

| way around | before | now |
|---|---|---|
| a study with a large delta, then others | a total of epsilon 2 let nine studies of epsilon 1 pass | refused |
| a copy of the file with other line ends or sorted | the file's total did not apply | it applies |
| another file, where only files have totals | no word | a warning |
| the ledger deleted, its key still there | an empty ledger, new noise | refused |
| a study whose release no ledger can read again | the ledger refused everything after it | refused first |
| delta = 1e-300 | a traceback | one sentence, exit code 2 |
| `coreshot.distill` in Python | new noise at each call | with `ledger=`, the same message |
"""

import numpy as np
import pytest

import coreshot
from coreshot.errors import CoreshotError
from coreshot.privacy import release_ledger
from coreshot.privacy.accounting import compute_epsilon
from coreshot.privacy.release_ledger import BudgetError, ReleaseLedger, Share, Total
from coreshot.privacy.releases import Release
from coreshot.study.file import read_study
from coreshot.study.site_records import read_points

STRICT = Release("sums", "sums", "gaussian", 1.0, 4.0, delta=1e-5)
LOOSE = Release("sums", "sums", "gaussian", 1.0, 4.0, delta=0.09)


def answer(ledger, number, release):
    share = Share("data", "records", f"{number:064}", f"study {number}", (release,))
    return ledger.answer(share, "", lambda taken: (b"message", {release.name: release.num_steps}))


def number_released(ledger):
    """How many studies of the same noise a total for two of them lets pass, after one with a large delta."""
    ledger.set_total(Total(compute_epsilon([STRICT] * 2, 1e-5)))
    number = 0
    try:
        for release in (LOOSE, *[STRICT] * 9):
            answer(ledger, number, release)
            number += 1
    except BudgetError:
        pass
    return number


def test_a_study_with_a_large_delta_opens_no_total(ledger_path, tmp_path, monkeypatch):
    assert number_released(ReleaseLedger(ledger_path)) == 2

    def at_the_largest(shares, delta=None):
        releases = [release for share in shares for release in share.releases]
        return compute_epsilon(releases, max(release.delta for release in releases)), 0.09

    monkeypatch.setattr(release_ledger, "private_epsilon", at_the_largest)
    assert number_released(ReleaseLedger(tmp_path / "old.sqlite")) == 10, "negative control"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data,
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.replace(b"\n", b"\r"),
        lambda data: b"\xef\xbb\xbf" + data.rstrip(b"\n"),
        lambda data: b"\n".join([data.splitlines()[0], *sorted(data.splitlines()[1:], reverse=True)]),
    ],
    ids=["copied", "CRLF", "CR", "byte order mark", "sorted"],
)
def test_a_total_of_a_file_is_that_of_its_copies(ledger_path, write_site, tmp_path, change):
    ledger, site = ReleaseLedger(ledger_path), write_site("a")
    (tmp_path / "copy.csv").write_bytes(change(site.read_bytes()))
    assert ledger.hash_file(tmp_path / "copy.csv") == ledger.hash_file(site)
    (tmp_path / "copy.csv").write_bytes(change(site.read_bytes()).replace(b"f", b"m", 1))
    assert ledger.hash_file(tmp_path / "copy.csv") != ledger.hash_file(site), "negative control: another record"
    (tmp_path / "twice.csv").write_bytes(site.read_bytes() + site.read_bytes().splitlines()[-1] + b"\n")
    assert ledger.hash_file(tmp_path / "twice.csv") != ledger.hash_file(site), "negative control: a record twice"


def test_a_file_without_a_total_beside_files_with_one_is_a_warning(coreshot, private_path, write_site):
    coreshot("budget", "set", "--epsilon", 3, "--data", write_site("a"))
    assert "warning" not in coreshot("distill", private_path, write_site("a"), "--out", "a.coreset")
    told = coreshot("distill", private_path, write_site("b", count=61), "--out", "b.coreset")
    assert "warning: this site has totals for other files and none for this one" in told


def test_a_ledger_that_was_deleted_is_missed(coreshot, private_path, write_site, ledger_path, tmp_path):
    site = write_site("a")
    coreshot("budget", "show")
    ledger_path.unlink()
    coreshot("budget", "show")  # nothing was in it
    coreshot("distill", private_path, site, "--out", "a.coreset")
    kept = ledger_path.read_bytes()
    for lose in (ledger_path.unlink, lambda: ledger_path.write_bytes(b"")):
        lose()
        told = coreshot("distill", private_path, site, "--out", "b.coreset", code=2)
        assert "says that answers were kept in it" in told
        assert not (tmp_path / "b.coreset").exists()
    ledger_path.write_bytes(kept)
    coreshot("distill", private_path, site, "--out", "b.coreset", "--client", "a")
    assert (tmp_path / "b.coreset").read_bytes() == (tmp_path / "a.coreset").read_bytes()


def test_nothing_leaves_where_the_key_cannot_be_marked(ledger_path):
    ledger = ReleaseLedger(ledger_path)
    ledger_path.with_name("ledger.sqlite.key").unlink()
    with pytest.raises(CoreshotError, match="so nothing is released"):
        answer(ledger, 0, STRICT)
    assert ledger.entries() == []


def test_no_study_makes_a_ledger_unreadable(ledger_path, monkeypatch):
    odd = Release("steps", "steps", "dp_sgd", 1e12, 4.0, 10, 0.5, 1e-5)
    ledger = ReleaseLedger(ledger_path)
    with pytest.raises(CoreshotError, match="beyond what is accounted for"):
        answer(ledger, 0, odd)
    answer(ledger, 1, STRICT)
    assert len(ledger.entries()) == 1
    monkeypatch.setattr(release_ledger, "check_releases", lambda releases, where: None)
    answer(ledger, 0, odd)
    with pytest.raises(CoreshotError, match="cannot be read"):
        ledger.entries()  # negative control


@pytest.mark.parametrize(("epsilon", "delta"), [("1e-3", "1e-300"), ("32", "1e-40")])
def test_a_promise_that_cannot_be_kept_is_one_sentence(coreshot, private_path, write_site, epsilon, delta):
    text = private_path.read_text().replace("epsilon = 2.0", f"epsilon = {epsilon}")
    private_path.write_text(text.replace("delta = 1e-05", f"delta = {delta}"))
    told = coreshot("distill", private_path, write_site("a"), "--out", "a.coreset", code=2)
    assert "change them" in told or "agree on other values" in told
    assert "Traceback" not in told


def test_the_function_distill_takes_a_ledger(private_path, write_site, ledger_path):
    study, site = read_study(private_path), write_site("a")
    points = read_points(study, site, "a")
    x, y = np.asarray(points.x), np.argmax(points.y, axis=1)
    first = coreshot.distill(study, x, y, client="a", ledger=ledger_path)
    assert coreshot.distill(study, x[::-1], y[::-1], client="a", seed=3, ledger=ledger_path) == first
    ReleaseLedger(ledger_path).set_total(Total(1.0))
    assert coreshot.distill(study, x, y, client="a", ledger=ledger_path) == first, "no new release"
    with pytest.raises(BudgetError, match="this site's total is 1"):
        coreshot.distill(study, x[:-1], y[:-1], client="a", ledger=ledger_path)
    assert coreshot.distill(study, x, y, client="a") != first, "negative control: without a ledger, new noise"
