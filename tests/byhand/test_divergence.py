"""Points that diverge: the learner goes back, halves the step, says so, gives up with advice, and leaves the
neighbours alone.
"""

import jax
import numpy as np
import pytest

from coreshot.errors import CoreshotError
from coreshot.learners.loop import MAX_RETRIES, distill
from coreshot.privacy.guarded_records import guard_records
from coreshot.types import Points


@pytest.fixture
def learn(make_bpc, make_model, one_group):
    """All clients in one group of the same shape, so everything here is one compiled program."""

    def run(clients, **changes):
        keys = {name: jax.random.key(index) for index, name in enumerate(clients)}
        learner, model = make_bpc(**changes), make_model("regression")
        return distill(
            model, learner, guard_records(clients, learner.releases(model)), keys, jax.random.key(9), where="round 3"
        )

    return run


@pytest.fixture(scope="module")
def calm(sample_points):
    return [sample_points("regression", seed, 9) for seed in (0, 1)]


def with_targets_times(points, factor):
    """The gradient grows with the targets, what the points may do does not: such a client diverges with steps
    that suit others.
    """
    return Points(points.x, points.y * factor, points.weight)


def test_a_client_that_diverges_goes_back_and_halves_and_says_so(learn, calm):
    learned = learn({"calm": calm[0], "wild": with_targets_times(calm[1], 2e5)})
    notes = learned["wild"].notes
    assert 1 <= len(notes) <= MAX_RETRIES
    for note in notes:
        assert note.startswith("pseudo-points diverged at update ")
        assert " of 3 (gradient norm " in note
        assert note.endswith("went back and halved its step sizes")
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(learned["wild"].coreset))


def test_a_healthy_neighbour_is_unchanged_bit_by_bit(learn, calm, same):
    undisturbed = learn({"calm": calm[0], "other": calm[1]})["calm"]
    disturbed = learn({"calm": calm[0], "other": with_targets_times(calm[1], 2e5)})
    assert disturbed["other"].notes
    assert disturbed["calm"].notes == undisturbed.notes == []
    assert same(disturbed["calm"].coreset, undisturbed.coreset)


def test_a_client_that_cannot_be_saved_is_an_error_with_client_update_and_advice(learn, calm):
    with pytest.raises(CoreshotError) as error:
        learn({"calm": calm[0], "hopeless": with_targets_times(calm[1], 1e15)})
    text = str(error.value)
    assert text.startswith("client hopeless, round 3, coreset: pseudo-points diverged at update 1 of 3 ")
    assert f"still after {MAX_RETRIES} halvings" in text
    assert "Lower step_size_x (now 0.05)" in text
    assert "calm" not in text


def test_an_absurd_step_size_is_halved_until_it_is_not(learn, calm):
    """Both clients, each with its own halvings; the points end within the radius that counts as not diverged."""
    learned = learn({"one": calm[0], "two": calm[1]}, step_size_x=300.0)
    assert all(one.notes for one in learned.values())
    assert all(np.max(np.abs(one.coreset.points.x)) < 1e3 for one in learned.values())


def test_an_impossible_step_size_is_an_error_that_names_it(learn, calm):
    with pytest.raises(
        CoreshotError, match=r"client one, round 3, coreset: .*update 1 of 3 .*Lower step_size_x \(now 1e\+30\)"
    ):
        learn({"one": calm[0], "two": calm[1]}, step_size_x=1e30)
