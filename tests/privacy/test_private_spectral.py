"""The private spectral method: what arrives is the records' moments plus the declared noise; sums, secure sums, and
what cannot be pretended.
"""

import json
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import one_round
import pytest
from one_round import received

from coreshot.api import distill
from coreshot.config import decode_named
from coreshot.errors import CoreshotError
from coreshot.fitted.inspection import inspect_message
from coreshot.fitted.model import fit
from coreshot.methods import METHODS
from coreshot.methods.private_spectral import CROSS_SHARE, moment_rows
from coreshot.privacy.accounting import noise_multiplier
from coreshot.privacy.gaussian_moments import deviations
from coreshot.runtime.simulate import simulate
from coreshot.spectral.private_posterior import denoise_gram, fit_private_posterior
from coreshot.wire.ledger import Ledger
from coreshot.wire.messages import decode_message, encode_message, read_header

NAMES = tuple("abcd")
PRIVATE = {
    "name": "private_spectral",
    "features": {"name": "random_vector", "dimension": 20},
    "privacy": {"epsilon": 2.0, "delta": 1e-5},
}
EXACT = {"name": "spectral", "features": {"name": "random_vector", "dimension": 20}}


@pytest.fixture(scope="module")
def make_private(make_study):
    def make(settings=PRIVATE, **changes):
        return replace(
            make_study("classification"),
            method=decode_named(METHODS, {**settings, **changes}, "test", "method"),
        )

    return make


@pytest.fixture(scope="module")
def clients(sample_points):
    return {name: sample_points("classification", seed, 30 + seed) for seed, name in enumerate(NAMES)}


replies_of = partial(one_round.replies_of, used={"statistics"})


def exact_sums(study, clients):
    drawn = study.method.draw_public(study.model, study.shared_key)
    rows, labels = (
        np.concatenate(parts)
        for parts in zip(*[moment_rows(drawn, points) for points in clients.values()], strict=True)
    )
    return rows.T @ rows, rows.T @ labels


@pytest.mark.parametrize("num_sharers", [None, 4])
def test_the_sum_is_the_records_sum_plus_the_noise_that_the_server_reckons_with(make_private, clients, num_sharers):
    study = make_private(num_sharers=num_sharers)
    gram, cross = exact_sums(study, clients)
    num_noises = 4 / 3 if num_sharers else len(clients)  # three of four sharers' parts are enough
    expected = deviations(noise_multiplier(study.method.privacy), CROSS_SHARE, num_noises)
    off = np.triu_indices(len(gram), 1)
    errors = []
    for key in range(12):
        state = received(study, replies_of(study, clients, key))
        errors.append(((state.gram - gram)[off], np.diag(state.gram - gram), (state.cross - cross).ravel()))
    of_gram, of_diagonal, of_cross = (np.concatenate(parts) for parts in zip(*errors, strict=True))
    assert np.std(of_gram) == pytest.approx(expected.off_diagonal, rel=0.06)
    assert np.std(of_diagonal) == pytest.approx(expected.diagonal, rel=0.2)
    assert np.std(of_cross) == pytest.approx(expected.cross, rel=0.15)
    assert abs(np.mean(of_gram)) < 4 * expected.off_diagonal / np.sqrt(of_gram.size)


def test_two_runs_with_the_same_seeds_differ_and_without_noise_they_do_not(make_private, clients):
    study, exact = make_private(), make_private(EXACT)
    for one, same in ((study, False), (exact, True)):
        first, second = (replies_of(one, clients)["a"].arrays for _ in range(2))
        assert all(np.array_equal(first[name], second[name]) for name in first) == same


def test_order_and_lateness_do_not_matter_and_a_client_can_leave(make_private, clients):
    study = make_private()
    replies = replies_of(study, clients)
    state = received(study, replies)
    backwards = received(study, dict(reversed(replies.items())))
    assert np.array_equal(state.gram, backwards.gram)
    without = received(study, {name: replies[name] for name in "abc"})
    left = study.method.forget(study.model, state, "d", study.method.read(study.model, "d", replies["d"]))
    assert np.allclose(left.gram, without.gram, atol=1e-9)
    assert left.clients == without.clients
    assert np.allclose(fit_of(study, left).mean, fit_of(study, without).mean, atol=1e-6)
    with pytest.raises(CoreshotError, match="client d: is in the sums already"):
        study.method.receive(
            jax.random.key(0), study.model, state, {"d": study.method.read(study.model, "d", replies["d"])}
        )


def fit_of(study, state):
    return study.method.posterior(jax.random.key(0), study.model, state)[0]


def test_a_masked_message_looks_like_noise_and_the_sum_does_not_need_it_to(make_private, clients):
    """Each number of a masked message is uniform over all words: 256 bins of its highest byte."""
    study = make_private(num_sharers=4)
    replies = replies_of(study, clients)
    high = np.concatenate([np.asarray(message.arrays["masked"]).view(np.uint32) >> 24 for message in replies.values()])
    counts = np.bincount(high, minlength=256)
    assert (
        np.sum((counts - counts.mean()) ** 2 / counts.mean()) < 400
    )  # chi-squared of 255 degrees: mean 255, deviation 23
    total = (
        sum(np.asarray(message.arrays["masked"]).view(np.uint32).astype(np.uint64) for message in replies.values())
        % 2**32
    )
    counts = np.bincount((total >> np.uint64(24)).astype(int), minlength=256)
    assert np.sum((counts - counts.mean()) ** 2 / counts.mean()) > 400  # the sum of all is no longer hidden


def test_without_all_sharers_there_is_no_sum(make_private, clients):
    study = make_private(num_sharers=4)
    replies = replies_of(study, clients)
    with pytest.raises(CoreshotError, match="3 of 4 sharers answered"):
        received(study, {name: replies[name] for name in "abc"})
    with pytest.raises(CoreshotError, match="in a secure sum, from which nobody can take it"):
        study.method.forget(
            study.model, received(study, replies), "d", study.method.read(study.model, "d", replies["d"])
        )
    with pytest.raises(CoreshotError, match="num_sharers is 4, but there are 3 clients"):
        replies_of(study, {name: clients[name] for name in "abc"})


def test_one_file_alone_cannot_be_part_of_a_secure_sum(make_private, sample_points):
    points = sample_points("classification", 0, 30)
    with pytest.raises(CoreshotError, match="is simulated with all of them at once"):
        distill(make_private(num_sharers=4), np.asarray(points.x), np.argmax(np.asarray(points.y), axis=1), client="a")


def test_through_the_simulator_and_bytes(make_private, clients):
    for num_sharers in (None, 4):
        study = make_private(num_sharers=num_sharers)
        state = simulate(jax.random.key(0), study, clients, Ledger())
        assert state.clients == set(NAMES)


def test_with_little_noise_it_is_the_ridge_head_of_all_records(make_private, sample_points):
    """Epsilon 20 and many records: next to no noise, so the head of pooled records, exactly summed, comes out."""
    study = make_private(privacy={"epsilon": 20.0, "delta": 1e-3})
    clients = {name: sample_points("classification", seed, 2000) for seed, name in enumerate(NAMES)}
    state = received(study, replies_of(study, clients))
    gram, cross = exact_sums(study, clients)
    noise = deviations(noise_multiplier(study.method.privacy), CROSS_SHARE, 4)
    assert noise.cross < 1
    exactly = fit_private_posterior(state.map, gram, cross, noise)
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    noisy = fit_of(study, state)
    assert np.allclose(noisy.predict(x).mean, exactly.predict(x).mean, atol=0.1)
    test = sample_points("classification", 9, 400)
    right = np.argmax(noisy.predict(np.asarray(test.x)).mean, axis=1) == np.argmax(np.asarray(test.y), axis=1)
    assert np.mean(right) > 0.9


def test_denoising_finds_the_size_along_what_is_seen():
    """Against the truth that only a simulation knows: u^T G u of the noisy matrix's eigenvectors. Raw eigenvalues
    fail the same test.
    """
    draws = np.random.default_rng(0)
    size, deviation = 300, 1.0
    basis = np.linalg.qr(draws.normal(size=(size, size)))[0]
    truth = (basis * np.concatenate([np.linspace(50, 300, 20), np.full(size - 20, 2.0)])) @ basis.T
    noise = np.triu(draws.normal(size=(size, size)), 1)
    noise = deviation * (noise + noise.T + np.diag(np.sqrt(2) * draws.normal(size=size)))
    found = denoise_gram(truth + noise, deviation)
    along = np.einsum("di,de,ei->i", found.vectors, truth, found.vectors)
    values = np.linalg.eigvalsh(truth + noise)
    assert np.mean((found.sizes - along) ** 2) < 0.05 * np.mean((values - along) ** 2)
    only_noise = denoise_gram(noise, deviation)
    assert np.mean(only_noise.sizes) < 0.1 * np.max(np.linalg.eigvalsh(noise))


def test_a_message_says_what_is_promised_and_cannot_say_more(make_private, sample_points):
    private, exact = make_private(), make_private(EXACT)
    points = sample_points("classification", 0, 30)
    x, y = np.asarray(points.x), np.argmax(np.asarray(points.y), axis=1)
    honest, plain = (distill(study, x, y, client="a") for study in (private, exact))
    sentence = inspect_message(honest, "a").promise
    assert "epsilon = 2 and delta = 1e-05" in sentence
    assert "one record added or removed" in sentence
    assert sentence.count(". ") == 0, "one sentence that can be quoted"
    assert "No promise of privacy is made" in inspect_message(plain, "a").promise
    # Somebody writes the private study's releases into a message without noise.
    message = decode_message(plain, study_hash=exact.hash)
    forged = encode_message(message, study_hash=exact.hash, client="a", releases=private.releases)
    with pytest.raises(CoreshotError, match="declares other releases of its records than the study"):
        fit(exact, [forged])
    with pytest.raises(CoreshotError, match="belongs to study"):
        fit(private, [forged])
    silent = encode_message(message, study_hash=exact.hash, client="a")
    with pytest.raises(CoreshotError, match="declares other releases"):
        fit(exact, [silent])
    assert "No promise" in inspect_message(silent, "a").promise


def test_promises_are_computed_from_the_noise_not_from_a_name(make_private):
    """A release that is called gaussian but has half the noise is worth what it has."""
    (release,) = make_private().releases
    from coreshot.privacy.promise import promise

    assert "epsilon = 2 " in promise([release])
    weaker = promise([replace(release, noise_multiplier=release.noise_multiplier / 2)])
    assert "epsilon = 2 " not in weaker
    assert "No promise" in promise([replace(release, mechanism="exact")])
    assert "No promise" in promise([replace(release, delta=None)])
    shared = promise([replace(release, num_sharers=4)])
    assert "nothing but its sum with those of 3 other clients" in shared


def test_the_header_carries_every_release(make_private, sample_points):
    points = sample_points("classification", 0, 30)
    data = distill(make_private(), np.asarray(points.x), np.argmax(np.asarray(points.y), axis=1), client="a")
    (release,) = read_header(data)["releases"]
    assert release["mechanism"] == "gaussian"
    assert release["sensitivity"] == 1.0
    assert json.dumps(release)


def test_regression_is_refused(make_study):
    study = replace(make_study("regression"), method=decode_named(METHODS, PRIVATE, "test", "method"))
    with pytest.raises(CoreshotError, match="use a classification study"):
        study.method.init(jax.random.key(0), study.model, study.shared_key)


@pytest.mark.parametrize(
    "change",
    [
        {"noise_multiplier": 1e-9},
        {"noise_multiplier": "much"},
        {"num_steps": 10**12},
        {"delta": None},
        {"mechanism": "trust me"},
        {"more": 1},
    ],
)
def test_a_list_of_releases_that_makes_no_sense_is_refused_at_once(make_private, sample_points, change):
    """Before anybody computes with it: noise of 1e-9 would keep an accountant busy for hours."""
    study, points = make_private(), sample_points("classification", 0, 30)
    data = distill(study, np.asarray(points.x), np.argmax(np.asarray(points.y), axis=1), client="a")
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    inner = json.loads(header["__metadata__"]["coreshot"])
    inner["releases"][0] |= change
    header["__metadata__"]["coreshot"] = json.dumps(inner)
    text = json.dumps(header).encode()
    hostile = len(text).to_bytes(8, "little") + text + data[8 + length :]
    with pytest.raises(CoreshotError, match="list of releases cannot be read"):
        inspect_message(hostile, "a")
    with pytest.raises(CoreshotError, match="list of releases cannot be read"):
        fit(study, [hostile])
