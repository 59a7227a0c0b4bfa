"""The ledger of releases: sums over studies, steps, two processes at once, and what the file tells."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, pld

from coreshot.errors import CoreshotError
from coreshot.privacy.accounting import compute_epsilon, make_dp_event
from coreshot.privacy.gaussian import gaussian_epsilon, gaussian_multiplier
from coreshot.privacy.guarded_records import Records
from coreshot.privacy.release_ledger import BudgetError, ReleaseLedger, Share, Total, default_path
from coreshot.privacy.releases import Release
from coreshot.storage import write_bytes, write_private

GAUSSIAN = Release("sums", "sums", "gaussian", 1.0, 4.0, delta=1e-5)
STEPS = Release("steps", "steps", "dp_sgd", 1.0, 5.0, 10, 0.5, 1e-5)
EXACT = Release("all", "all")


def share(number=0, *releases, data="d", records="r"):
    return Share(data, records, f"{number:064}", f"study {number}", releases or (GAUSSIAN,))


def no_steps(message, **steps):
    return lambda taken: (message, steps or {"sums": 1})


@pytest.fixture
def ledger(ledger_path):
    return ReleaseLedger(ledger_path)


# The accountant.


def by_dp_accounting(*releases):
    accountant = pld.PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    for release in releases:
        accountant.compose(make_dp_event(release))
    return accountant.get_epsilon(1e-5)


@pytest.mark.parametrize("noise", [0.7, 2.0, 9.0])
def test_the_closed_form_is_that_of_dp_accounting(noise):
    expected = by_dp_accounting(replace(GAUSSIAN, noise_multiplier=noise))
    assert gaussian_epsilon(1 / noise, 1e-5) == pytest.approx(expected, rel=2e-3)
    assert gaussian_epsilon(1 / noise, 1e-5) <= expected * (1 + 1e-6), "theirs is rounded up"
    assert gaussian_multiplier(expected, 1e-5) == pytest.approx(noise, rel=2e-3)
    assert gaussian_epsilon(1 / gaussian_multiplier(expected, 1e-5), 1e-5) <= expected


def test_the_closed_form_by_its_definition():
    """delta = Phi(r/2 - e/r) - exp(e) Phi(-r/2 - e/r), by the sum over a grid of max(0, p - exp(e) q)."""
    grid = np.linspace(-12, 13, 400_001)
    p, q = (np.exp(-((grid - mean) ** 2) / 2) / np.sqrt(2 * np.pi) for mean in (1.0, 0.0))
    epsilon = gaussian_epsilon(1.0, 1e-4)
    assert np.sum(np.maximum(0, p - math.exp(epsilon) * q)) * (grid[1] - grid[0]) == pytest.approx(1e-4, rel=1e-4)


def test_four_equal_releases_are_one_with_half_of_the_noise():
    assert compute_epsilon([GAUSSIAN] * 4, 1e-5) == pytest.approx(
        compute_epsilon([replace(GAUSSIAN, noise_multiplier=2.0)], 1e-5), rel=1e-6
    )
    assert compute_epsilon([GAUSSIAN] * 4, 1e-5) < 4 * compute_epsilon([GAUSSIAN], 1e-5), "better than the sum"
    assert compute_epsilon([GAUSSIAN] * 100_000, 1e-5) > 1_000, "in no time"


def test_sampled_steps_compose_too_and_what_is_exact_has_no_bound():
    both = compute_epsilon([GAUSSIAN, STEPS], 1e-5)
    assert both == pytest.approx(by_dp_accounting(GAUSSIAN, STEPS), rel=1e-3)
    assert both > max(compute_epsilon([GAUSSIAN], 1e-5), compute_epsilon([STEPS], 1e-5))
    assert compute_epsilon([GAUSSIAN, EXACT], 1e-5) == math.inf
    assert compute_epsilon([], 1e-5) == 0


# Answers.


def test_an_answer_is_kept_and_the_ledger_knows_it_after_it_was_opened_again(ledger, ledger_path):
    assert ledger.answer(share(), "", no_steps(b"first")) == (b"first", False)
    for opened in (ledger, ReleaseLedger(ledger_path)):
        assert opened.answer(share(), "", no_steps(b"second")) == (b"first", True)
    assert ledger.answer(share(records="others"), "", no_steps(b"second")) == (b"second", False)
    assert ledger.answer(share(1), "", no_steps(b"third")) == (b"third", False)
    assert [(entry.share.name, entry.num_answers) for entry in ledger.entries()] == [
        ("study 0", 1),
        ("study 0", 1),
        ("study 1", 1),
    ]


def test_what_fails_leaves_nothing_behind(ledger):
    def fail(taken):
        raise CoreshotError("it went wrong")

    with pytest.raises(CoreshotError, match="it went wrong"):
        ledger.answer(share(), "", fail)
    assert ledger.entries() == []


def test_of_many_who_compute_at_once_one_draw_is_kept(ledger_path):
    def answer(number):
        return ReleaseLedger(ledger_path).answer(share(), "", no_steps(b"%d" % number))[0]

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(answer, range(24)))) == 1


def test_a_key_that_is_marked_while_it_is_read_is_no_lost_ledger(ledger_path, monkeypatch):
    """Another process may create the ledger, and release, between two looks of this one."""
    looks = iter([False, True])
    ReleaseLedger(ledger_path).answer(share(), "", no_steps(b"first"))
    monkeypatch.setattr(ReleaseLedger, "_has_tables", lambda self: next(looks))
    assert ReleaseLedger(ledger_path).answer(share(), "", no_steps(b"second")) == (b"first", True)


def test_many_at_once_do_not_pass_the_total_together(ledger, ledger_path):
    each = compute_epsilon([GAUSSIAN], 1e-5)
    ledger.set_total(Total(2 * each, 1e-5))
    room = 4  # four compose to less than twice one of them

    def answer(number):
        try:
            return ReleaseLedger(ledger_path).answer(share(number), "", no_steps(b"x"))[1] is False
        except BudgetError:
            return False

    with ThreadPoolExecutor(8) as pool:
        released = sum(pool.map(answer, range(16)))
    spent = compute_epsilon([GAUSSIAN] * released, 1e-5)
    assert spent <= 2 * each < compute_epsilon([GAUSSIAN] * (released + 1), 1e-5)
    assert released <= room


def test_steps_are_counted_over_answers_and_end_at_what_was_declared(ledger):
    study, seen = share(0, STEPS), []

    def take(number):
        def compute(taken):
            seen.append(dict(taken))
            return b"x", {"steps": number}

        return compute

    ledger.answer(study, "round 0", take(4))
    ledger.answer(study, "round 1", take(4))
    assert seen == [{}, {"steps": 4}]
    with pytest.raises(BudgetError, match="declared 10 steps of 'steps', and this site has taken 8"):
        ledger.answer(study, "round 2", take(4))
    ledger.answer(study, "round 2", take(2))
    with pytest.raises(BudgetError, match="has taken 10"):
        ledger.answer(study, "round 3", take(0))
    assert len(seen) == 4, "the last was refused before anything was computed"


def test_records_know_the_steps_of_earlier_answers(sample_points):
    records = Records(sample_points("classification", 0, 4), (STEPS,), {"steps": 8})
    with pytest.raises(CoreshotError, match="of which 2 are left, not 3"):
        records.for_mechanism("steps", "dp_sgd", 3)
    records.for_mechanism("steps", "dp_sgd", 2)
    assert records.steps_taken == {"steps": 2}


def test_a_total_is_at_its_own_delta(ledger):
    ledger.set_total(Total(compute_epsilon([GAUSSIAN], 1e-5)))
    ledger.answer(share(), "", no_steps(b"x"))
    ledger.set_total(Total(compute_epsilon([GAUSSIAN] * 2, 1e-9) * 0.99, 1e-9))
    with pytest.raises(BudgetError, match="at delta 1e-09"):
        ledger.answer(share(1), "", no_steps(b"x"))


# What the file tells, and what happens to it.


def test_hashes_are_keyed_and_know_files_folders_and_records(ledger, tmp_path, sample_points):
    other = ReleaseLedger(tmp_path / "other.sqlite")
    folder = tmp_path / "images" / "a"
    folder.mkdir(parents=True)
    for name in ("1.png", "2.png"):
        (folder / name).write_bytes(name.encode())
    names = {
        ledger.hash_file(folder / "1.png"),
        ledger.hash_file(folder / "2.png"),
        ledger.hash_file(tmp_path / "images"),
    }
    assert len(names) == 3
    (folder / "1.png").rename(folder.parent / "1.png")
    assert ledger.hash_file(tmp_path / "images") not in names, "an image of another class is another data set"
    assert other.hash_file(folder / "2.png") not in names
    points = sample_points("classification", 0, 6)
    turned = replace(points, x=points.x[::-1], y=points.y[::-1])
    assert ledger.hash_records(turned) == ledger.hash_records(points)
    assert ledger.hash_records(replace(points, y=points.y[::-1])) != ledger.hash_records(points), "negative control"
    assert ledger.hash_records(points) != other.hash_records(points)


def test_a_ledger_with_the_key_of_another_and_a_damaged_one_are_refused(ledger, ledger_path, tmp_path):
    ReleaseLedger(tmp_path / "other.sqlite")
    key = ledger_path.with_name("ledger.sqlite.key")
    mine = key.read_bytes()
    key.write_bytes((tmp_path / "other.sqlite.key").read_bytes())
    with pytest.raises(CoreshotError, match="that of another ledger"):
        ReleaseLedger(ledger_path)
    key.write_bytes(mine)
    ReleaseLedger(ledger_path)
    ledger_path.write_bytes(b"no database" * 400)
    with pytest.raises(CoreshotError, match="so nothing is released"):
        ReleaseLedger(ledger_path)


def test_where_the_ledger_is(monkeypatch, tmp_path):
    monkeypatch.setenv("CORESHOT_LEDGER", str(tmp_path / "here"))
    assert default_path() == tmp_path / "here"
    monkeypatch.delenv("CORESHOT_LEDGER")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_path() == tmp_path / "coreshot" / "ledger.sqlite"


def test_private_files_are_private_from_their_first_byte(tmp_path, monkeypatch):
    import os

    seen, replaced = [], os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (seen.append(os.stat(old).st_mode & 0o777), replaced(old, new)))
    write_bytes(tmp_path / "public", b"x")
    (tmp_path / f".private.{os.getpid()}.tmp").write_bytes(b"of a killed process")
    write_private(tmp_path / "private", b"x")
    write_private(tmp_path / "public", b"x")
    assert seen[1:] == [0o600, 0o600]
    assert seen[0] != 0o600, "negative control"
    assert (tmp_path / "public").stat().st_mode & 0o777 == 0o600
