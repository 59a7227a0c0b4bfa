"""Audits with a known answer: Gaussians, copies, classes of one record. A killed audit continues; no record is kept."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from one_round import audit_noise

from coreshot.audit import run as audit_run
from coreshot.audit.attack import (
    Attack,
    Scores,
    auc,
    is_shadow,
    log_likelihood_ratio,
    measure_success,
    roc,
    run_attack,
    true_positives_at,
)
from coreshot.audit.bound import any_epsilon, gaussian_mean, lower_bound
from coreshot.audit.canaries import make_canary
from coreshot.audit.confidence import lower_limit, upper_limit, wilson_interval
from coreshot.audit.distances import between_records, compare_distances, single_record_classes, to_records
from coreshot.audit.run import plan_audit, run_audit
from coreshot.audit.subject import make_subject
from coreshot.audit.trial import run_trial
from coreshot.config import decode_named
from coreshot.data import FederatedData
from coreshot.errors import CoreshotError
from coreshot.methods import METHODS
from coreshot.privacy.gaussian import gaussian_epsilon
from coreshot.privacy.releases import Release
from coreshot.study import Study
from coreshot.types import make_points

CLASS_MEAN = {"name": "class_mean", "num_points": 4}
SUBSET = {"name": "random_subset", "num_points": 4}
FEATURES = {"name": "random_vector", "dimension": 6}
PRIVATE = {"name": "private_spectral", "features": FEATURES, "privacy": {"epsilon": 4.0, "delta": 1e-5}}
NUM = 45  # trials, where more would tell nothing


def gaussians(seed, mean, num):
    """Scores that differ by the mean and by nothing else."""
    draws = np.random.default_rng(seed)
    return Scores(draws.normal(mean, 1, num), draws.normal(0, 1, num))


def halves(seed, mean, num):
    return Attack(gaussians(2 * seed, mean, num), gaussians(2 * seed + 1, mean, num))


# Intervals


@pytest.mark.parametrize(("successes", "num"), [(0, 10), (1, 10), (7, 30), (10, 10), (499, 500)])
def test_limits_are_clopper_and_pearsons(successes, num):
    for limit, side, name in ((lower_limit, "greater", "low"), (upper_limit, "less", "high")):
        expected = getattr(scipy.stats.binomtest(successes, num, alternative=side).proportion_ci(0.975), name)
        assert limit(successes, num, 0.975) == pytest.approx(expected, abs=1e-9)


def test_an_area_of_one_is_not_certain():
    assert wilson_interval(1.0, 10, 0.95).high == 1
    assert wilson_interval(1.0, 10, 0.95).low == pytest.approx(0.722, abs=1e-3)
    assert wilson_interval(1.0, 1000, 0.95).low > 0.99


# The attack


@pytest.mark.parametrize("mean", [0.0, 0.5, 2.0])
def test_area_and_share_found_are_those_of_two_gaussians(mean):
    """Phi(mean / sqrt(2)), and Phi(mean - q) at the threshold q that one in a hundred passes."""
    scores = gaussians(0, mean, 40_000)
    assert auc(scores) == pytest.approx(scipy.stats.norm.cdf(mean / math.sqrt(2)), abs=4 * 0.5 / 200)
    expected = scipy.stats.norm.cdf(mean - scipy.stats.norm.isf(0.01))
    assert true_positives_at(scores, 0.01).value == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("mean", [0.3, 2.0])
def test_intervals_hold_what_they_should_as_often_as_they_say(mean):
    """Of 300 at 95 %: 285 expected, deviation 4; both are conservative."""
    area, share = scipy.stats.norm.cdf(mean / math.sqrt(2)), scipy.stats.norm.cdf(mean - scipy.stats.norm.isf(0.01))
    found = [measure_success(gaussians(seed, mean, 500)) for seed in range(300)]
    assert sum(one.auc.low <= area <= one.auc.high for one in found) >= 270
    assert sum(one.found_at_one_percent.low <= share <= one.found_at_one_percent.high for one in found) >= 270
    assert not any(one.auc.low <= area + 0.2 <= one.auc.high for one in found)  # and they are not all of [0, 1]


def test_too_few_trials_say_nothing_about_one_in_a_hundred():
    few, many = (Scores(np.ones(num), np.zeros(num)) for num in (200, 500))
    assert (true_positives_at(few, 0.01).value, true_positives_at(few, 0.01).low) == (1.0, 0.0)
    assert true_positives_at(many, 0.01).low > 0.98


def test_equal_scores_are_guessing():
    same = Scores(np.zeros(50), np.zeros(70))
    assert auc(same) == 0.5
    assert true_positives_at(same, 0.01).value == 0
    assert roc(same)[0].tolist() == roc(same)[1].tolist() == [0, 1]


def test_area_and_curve_are_those_of_their_definitions():
    """The rank-sum form of the area, and shares counted threshold by threshold; with ties and unequal sizes."""
    draws = np.random.default_rng(0)
    scores = Scores(draws.integers(0, 9, 70) + 0.5, draws.integers(-2, 7, 50) + 0.5)
    pairs = scores.inside[:, None] - scores.outside
    assert auc(scores) == pytest.approx(np.mean((pairs > 0) + 0.5 * (pairs == 0)), abs=1e-12)
    thresholds = np.unique(np.concatenate([scores.inside, scores.outside]))[::-1]
    for found, part in zip(roc(scores), (scores.outside, scores.inside), strict=True):
        np.testing.assert_allclose(found, [0.0, *(np.mean(part >= one) for one in thresholds)], atol=1e-12)


def test_shadow_trials_do_not_count():
    inside, outside = np.arange(9.0)[:, None], np.arange(12.0)[:, None]
    seen = run_attack(inside, outside)
    assert seen.shadow.inside.tolist() == [0, 3, 6]
    assert seen.held_out.outside.tolist() == [1, 2, 4, 5, 7, 8, 10, 11]
    assert np.array_equal(is_shadow(12)[:9], is_shadow(9)), "with more trials none changes sides"


def test_the_ratio_of_two_gaussians_finds_a_difference_of_mean_or_of_spread_and_no_other():
    draws = np.random.default_rng(0)

    def area(inside, outside):
        return auc(run_attack(inside, outside).held_out)

    def statistics(mean=0.0, deviation=1.0):
        return np.column_stack([draws.normal(size=3000), draws.normal(mean, deviation, 3000), np.full(3000, 7.0)])

    assert area(statistics(mean=1.0), statistics()) == pytest.approx(scipy.stats.norm.cdf(1 / math.sqrt(2)), abs=0.03)
    assert area(statistics(deviation=4.0), statistics()) > 0.8
    assert area(statistics(), statistics()) == pytest.approx(0.5, abs=0.04)


def test_messages_without_randomness():
    one, other = np.tile([1.0, 2.0], (30, 1)), np.tile([1.0, 2.001], (30, 1))
    assert auc(run_attack(one, other).held_out) == 1
    assert auc(run_attack(one, one).held_out) == 0.5
    assert np.all(log_likelihood_ratio(one, one, one) == 0)


# The bound


@pytest.mark.parametrize("mean", [0.3, 1.0, 3.0])
def test_bounds_are_below_the_truth_as_often_as_they_say(mean):
    """Of 200 at 95 %: at most 10 above it expected, deviation 3; and they are not all 0."""
    truth = gaussian_epsilon(mean, 1e-5)
    tight = [gaussian_mean(halves(seed, mean, 2000), 0.95) for seed in range(200)]
    loose = [any_epsilon(halves(seed, mean, 2000), 1e-5, 0.95) for seed in range(200)]
    assert sum(one > mean for one in tight) <= 19
    assert sum(one > truth for one in loose) <= 19
    assert np.median(tight) > mean - 0.2
    # Without the shape of the claim, no more can be shown than the logarithm of the number of trials.
    assert mean < 1 or np.median(loose) > min(0.3 * truth, 4)


def test_negative_control_a_claim_of_half_the_mean_is_refuted():
    found = [gaussian_mean(halves(seed, 1.0, 1000), 0.999) for seed in range(20)]
    assert all(one > 0.5 for one in found)


def test_a_threshold_chosen_on_what_is_counted_would_be_too_sure():
    """Why trials are split: with no difference at all, the best of 400 thresholds shows one more often than the
    confidence allows.
    """
    seen = [gaussians(seed, 0.0, 1000) for seed in range(200)]
    assert sum(gaussian_mean(Attack(one, one), 0.8) > 0 for one in seen) > 40
    assert sum(gaussian_mean(halves(seed, 0.0, 1000), 0.8) > 0 for seed in range(200)) <= 40


def test_the_shape_of_a_bound_is_that_of_the_claim():
    noisy, exact = Release("a", "b", "gaussian", 1.0, 1.0, delta=1e-6), Release("c", "d")
    sampled = replace(noisy, mechanism="dp_sgd", num_steps=10, sampling_rate=0.1)
    seen = halves(0, 1.0, 300)
    assert (lower_bound(seen, [noisy]).shape, lower_bound(seen, [noisy]).delta) == ("gaussian", 1e-6)
    assert lower_bound(seen, [noisy, noisy]).shape == "gaussian"
    assert {lower_bound(seen, releases).shape for releases in ([exact], [noisy, exact], [sampled], [])} == {"any"}


def test_a_perfect_attack_is_bounded_by_its_number_of_trials():
    """By denials as well as by accusations."""
    perfect = Scores(np.ones(500), np.zeros(500))
    limit = 0.025 ** (1 / 500)
    assert any_epsilon(Attack(perfect, perfect), 1e-5, 0.95) == pytest.approx(math.log(limit / (1 - limit)), abs=0.01)
    never_wrong_when_it_denies = Scores(np.ones(500), np.arange(500) % 2 * 1.0)
    assert any_epsilon(Attack(never_wrong_when_it_denies, never_wrong_when_it_denies), 1e-5, 0.95) > 3


# Records, canaries, distances


def test_distances_by_hand():
    records = make_points([[0.0, 0.0], [3.0, 4.0], [3.0, 5.0], [3.0, 5.0]], np.eye(3)[[0, 1, 2, 2]])
    assert between_records(records).tolist() == [5, 1, 0, 0]
    assert to_records(np.array([[0.0, 1.0], [3.0, 4.0]]), records).tolist() == [1, 0]
    assert single_record_classes(records) == {0: 0, 1: 1}
    assert between_records(make_points([[1.0]], [[1.0]])).tolist() == [math.inf]


def test_copies_are_counted_and_points_of_their_own_are_not():
    real = np.linspace(1, 2, 101)
    found = compare_distances([0.0, 1.01, 1.5], real)
    assert (found.num_points, found.num_copies, found.num_near) == (3, 1, 2)
    assert found.records_to_records[found.quantiles.index(0.5)] == 1.5


def test_a_canary_is_far_off_and_of_the_rarest_class():
    points = make_points([[0.0, 5.0], [0.1, 1.0], [1.0, 4.9]], np.eye(3)[[0, 0, 1]])
    planted = make_canary(points, "classification")
    assert np.asarray(planted.x).tolist() == [[1.0, 1.0]]
    assert np.asarray(planted.y).tolist() == [[0, 0, 1]]
    assert np.asarray(
        make_canary(make_points([[0.0], [1.0], [1.0]], [[-3.0], [1.0], [1.0]]), "regression").y
    ).tolist() == [[-3.0]]


@pytest.fixture(scope="module")
def data(sample_points):
    """Client a has one record of class 1; client b is like any other."""
    lonely = sample_points("classification", 0, 24)
    label = np.zeros(24, int)
    label[5] = 1
    other = sample_points("classification", 1, 24)
    return FederatedData("classification", {"a": make_points(lonely.x, np.eye(2)[label]), "b": other}, other, None)


@pytest.fixture(scope="module")
def make_method(make_study):
    def make(settings, **changes):
        plain = make_study("classification")
        return Study(
            plain.agreement, plain.network, method=decode_named(METHODS, {**settings, **changes}, "test", "method")
        )

    return make


def test_sets_differ_by_the_record_and_by_the_canary(make_study, data):
    subject = make_subject(make_study(learner=CLASS_MEAN), data, "b")
    held, less, more = (np.asarray(subject.sets[which].x) for which in ("all", "without", "planted"))
    assert np.array_equal(np.insert(less, subject.record, np.asarray(subject.target_record.x)[0], axis=0), held)
    assert np.array_equal(np.concatenate([held, subject.target_canary.x]), more)
    assert subject.others == {}


def test_the_most_exposed_record_is_the_one_of_its_class(make_method, data):
    subject = make_subject(make_method({"name": "spectral", "features": FEATURES}), data)
    assert (subject.client, subject.record, subject.single_record_classes) == ("a", 5, {1: 5})


# Learners and methods: does it find what is there?


def test_a_record_alone_in_its_class_is_found_in_class_means(make_study, data, tmp_path):
    """One of two means is the record itself. (Its class is then gone from the other set, which a learner refuses,
    so there are three classes.)
    """
    plain = make_study(learner=CLASS_MEAN)
    study = replace(plain, agreement=replace(plain.agreement, num_outputs=3))
    label = np.arange(24) % 2
    label[5] = 2
    points = make_points(data.clients["b"].x, np.eye(3)[label])
    found = run_audit(make_subject(study, replace(data, clients={"b": points})), NUM, tmp_path)
    assert found.record == 5
    assert found.membership.auc.value > 0.99
    assert found.membership.auc.low > 0.8
    assert found.claimed_epsilon is None
    assert found.bound.epsilon > 1
    assert found.distances.num_copies >= 1
    assert found.classes_of_one == {"2": pytest.approx(0, abs=1e-6)}
    assert "Nothing is promised" in found.verdict


def test_negative_control_without_a_difference_there_is_nothing_to_find(make_study, data, tmp_path):
    subject = make_subject(make_study(learner=SUBSET), data, "b")
    blind = replace(subject, sets={**subject.sets, "without": subject.sets["all"], "planted": subject.sets["all"]})
    found = run_audit(blind, NUM, tmp_path)
    assert found.membership.auc.low < 0.5 < found.membership.auc.high
    assert found.bound.epsilon < 0.3


def test_a_random_subset_gives_a_record_away_as_often_as_it_holds_it(make_study, data, tmp_path):
    """4 of 24; and all it sends are copies."""
    found = run_audit(make_subject(make_study(learner=SUBSET), data, "b"), 90, tmp_path)
    assert found.membership.found_at_one_percent.value == pytest.approx(4 / 24, abs=4 * 0.373 / math.sqrt(60))
    assert found.membership.found_at_one_percent.value > 0.02
    assert (found.distances.num_copies, found.distances.num_points) == (4, 4)


def test_exact_moments_give_every_record_away(make_method, data, tmp_path):
    found = run_audit(make_subject(make_method({"name": "spectral", "features": FEATURES}), data), NUM, tmp_path)
    assert found.membership.auc.value == found.canary.auc.value == 1
    assert found.distances is None
    assert found.classes_of_one == {"1": None}


def test_private_moments_through_the_wire(make_method, data, tmp_path):
    found = audit_noise(make_method(PRIVATE), data, tmp_path, relative=0.2)
    assert found.claimed_epsilon == pytest.approx(4, rel=1e-2)
    assert found.bound.shape == "gaussian"
    assert not found.is_refuted
    assert "stands as far as these trials can tell" in found.verdict


def test_noise_that_is_left_out_is_caught(make_method, data, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "coreshot.privacy.gaussian_moments.rounded_gaussian", lambda deviation, shape: np.zeros(shape, np.int64)
    )
    found = run_audit(make_subject(make_method(PRIVATE), data), NUM, tmp_path)
    assert found.is_refuted
    assert "The promise of epsilon = 4 is broken" in found.verdict


def test_where_noise_is_shared_the_sum_is_what_is_audited(make_method, data):
    subject = make_subject(make_method(PRIVATE, num_sharers=2), data)
    assert set(subject.others) == {"b"}
    assert len(run_trial(subject, "all", 0, 0).record) == 1


# The directory


def numbers_of(value):
    if isinstance(value, dict | list):
        return [one for item in (value.values() if isinstance(value, dict) else value) for one in numbers_of(item)]
    return [value] if isinstance(value, float) else []


@pytest.fixture(scope="module")
def done(make_study, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit") / "run"
    subject = make_subject(make_study(learner=SUBSET), data, "b")
    return subject, folder, run_audit(subject, NUM, folder)


def test_a_second_run_does_no_trial_and_says_the_same(done, monkeypatch):
    subject, folder, found = done
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(audit_run, "run_trial", lambda *_: pytest.fail("a trial was done again"))
    assert run_audit(subject, NUM, folder) == found
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert set(before) == {"config.json", "trials.jsonl", "audit.json"}


def test_a_run_that_was_killed_goes_on(done, tmp_path, monkeypatch):
    """With a line that was cut off; learners draw from the seed, so it comes to the same."""
    subject, folder, found = done
    lines = (folder / "trials.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    (tmp_path / "trials.jsonl").write_text("".join(lines[:120]) + lines[120][:20])
    numbers = []
    monkeypatch.setattr(
        audit_run, "run_trial", lambda *arguments: numbers.append(arguments[1:3]) or run_trial(*arguments)
    )
    assert run_audit(subject, NUM, tmp_path) == found
    assert len(numbers) == len(lines) - 120
    assert sorted((tmp_path / "trials.jsonl").read_text().splitlines()) == sorted(line.strip() for line in lines)


def test_trials_can_be_added(done, tmp_path):
    subject, folder, _ = done
    for name in ("config.json", "trials.jsonl"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    assert plan_audit(subject, NUM + 3, tmp_path).num_done == 3 * NUM
    assert run_audit(subject, NUM + 3, tmp_path).num_trials == NUM + 3
    assert len((tmp_path / "trials.jsonl").read_text().splitlines()) == 3 * (NUM + 3)
    assert run_audit(subject, NUM, tmp_path).num_trials == NUM


def test_no_record_is_in_what_is_written(done):
    """A random subset sends records as they are; not one of their numbers is in the directory."""
    subject, folder, _ = done
    secret = np.asarray(subject.sets["planted"].x).ravel()
    texts = [(folder / name).read_text() for name in ("trials.jsonl", "audit.json", "config.json")]
    written = np.array(
        numbers_of([json.loads(line) for line in texts[0].splitlines()] + [json.loads(text) for text in texts[1:]])
    )
    assert len(written) > 500
    assert not np.isin(written.astype(np.float32), secret.astype(np.float32)).any()
    assert np.isin(
        np.array(numbers_of({"leak": secret.tolist()})).astype(np.float32), secret
    ).all()  # the check would see it


def test_another_audit_in_the_same_directory_is_refused(done, make_study, data):
    subject, folder, _ = done
    with pytest.raises(
        CoreshotError, match="holds an audit of another seed; choose another --out, nothing was changed"
    ):
        run_audit(subject, NUM, folder, seed=1)
    with pytest.raises(CoreshotError, match="another study and record"):
        run_audit(make_subject(make_study(learner=CLASS_MEAN), data, "b", 7), NUM, folder)


def test_directories_of_something_else_are_refused(done, tmp_path):
    subject, folder, _ = done
    (tmp_path / "mine").write_text("mine")
    for out, words in (
        (tmp_path, "is not empty and holds no audit"),
        (tmp_path / "mine", "is a file, not a directory"),
    ):
        with pytest.raises(CoreshotError, match=words):
            run_audit(subject, NUM, out)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_bytes((folder / "config.json").read_bytes())
    (tmp_path / "run" / "trials.jsonl").write_text('{"which": "all"}\n')
    with pytest.raises(CoreshotError, match="has a line that is no trial"):
        run_audit(subject, NUM, tmp_path / "run")


def test_a_state_that_nobody_has_described_is_refused(make_study, data):
    from coreshot.audit.statistics import record_statistics

    subject = make_subject(make_study(learner=SUBSET), data, "b")
    with pytest.raises(CoreshotError, match="there are no statistics for a dict"):
        record_statistics(subject, {}, subject.target_record)


def test_regression_has_an_audit_too(make_study, sample_points, tmp_path):
    points = sample_points("regression", 0, 20)
    data = FederatedData("regression", {"a": points}, points, None)
    found = run_audit(make_subject(make_study("regression", learner=CLASS_MEAN), data), 30, tmp_path)
    assert found.classes_of_one == {}
    assert found.distances.num_points == 4
    x = np.asarray(points.x)
    assert found.record == np.argmax(np.linalg.norm(x - x.mean(axis=0), axis=1))
