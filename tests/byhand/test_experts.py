"""Expert checkpoints: which steps are kept, that each is what so many steps by hand give, and that none aliases
another.
"""

import errno
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from coreshot.errors import CoreshotError
from coreshot.keys import fold_each
from coreshot.learners.experts import Experts, bytes_needed, drawable_steps
from coreshot.learners.loop import distill
from coreshot.models.training import ascend, draw_batch, make_optimizer
from coreshot.privacy.guarded_records import Records, guard_records

STEPS = [0, 2, 4, 6, 8, 10]  # of the small learner: 10 steps, every second saved, chains of 4
NUM_STARTS = 4  # 0, 2, 4 and 6


def init(learner, keys, model, points, shared_key):
    return learner.init(keys, model, Records(points, learner.releases(model)), shared_key)


def experts(num_steps, save_interval, **changes):
    return Experts(num_trajectories=2, num_steps=num_steps, save_interval=save_interval, step_size=0.1, **changes)


def test_every_saved_step_is_drawable_where_starts_and_ends_meet():
    """T = 300, L = 150: starts 0, 5, ..., 150 and ends 150, 155, ..., 300 cover everything."""
    assert drawable_steps(experts(300, 5), 150) == list(range(0, 301, 5))


def test_steps_in_the_middle_are_not_kept_where_they_cannot_be_drawn():
    """T = 20, L = 14: starts 0, 2, 4, 6 and ends 14, 16, 18, 20; 8, 10 and 12 are neither."""
    assert drawable_steps(experts(20, 2), 14) == [0, 2, 4, 6, 14, 16, 18, 20]


def test_steps_after_the_last_full_interval_are_not_kept():
    """T = 11, L = 4, every 4th: starts 0 and 4, since 8 + 4 > 11; ends 4 and 8."""
    assert drawable_steps(experts(11, 4), 4) == [0, 4, 8]


def test_steps_before_the_first_are_not_kept():
    """T = 20, L = 4, every 2nd, from 10 on: starts 10, 12, 14, 16 and ends 14, 16, 18, 20."""
    assert drawable_steps(experts(20, 2, first_step=10), 4) == [10, 12, 14, 16, 18, 20]


def test_steps_between_the_last_start_and_the_end_are_not_kept():
    """T = 21, L = 4, every 2nd, chains from 0 to 2: starts 0 and 2, ends 4 and 6, and the last full interval, 20."""
    assert drawable_steps(experts(21, 2, last_step=3), 4) == [0, 2, 4, 6, 20]
    assert drawable_steps(experts(20, 2, last_step=40), 4) == drawable_steps(experts(20, 2), 4)  # no limit at all


def test_a_chain_as_long_as_the_experts_has_one_start():
    assert drawable_steps(experts(10, 5), 10) == [0, 10]


def test_bytes_by_hand():
    """3 clients, 2 trajectories, 8 steps, 7 weights, 4 bytes a weight."""
    assert bytes_needed(experts(20, 2), 14, num_clients=3, num_params=7) == 3 * 2 * 8 * 7 * 4


@pytest.fixture(scope="module")
def model(make_model):
    return make_model("regression")


@pytest.fixture(scope="module")
def points(sample_points):
    return sample_points("regression", 0, 9)  # more than a batch of 8, so batches are drawn


@pytest.fixture(scope="module")
def keys():
    return jax.random.split(jax.random.key(3), 1)


@pytest.fixture(scope="module")
def shared_key():
    return jax.random.key(4)


@pytest.fixture(scope="module")
def store(make_bpc, model, points, keys, shared_key):
    return init(
        make_bpc(), keys, model, jax.tree.map(lambda array: array[None], points), shared_key
    ).local.value.experts


def test_shape_of_the_store(store, model):
    assert store.checkpoints.shape == (1, 3, len(STEPS), model.num_params())
    assert store.ends.tolist() == [2, 3, 4, 5]  # two saved steps after starts 0, 1, 2, 3


def test_with_a_last_step_chains_are_early_and_the_experts_learn_on(make_bpc, store, model, points, keys, shared_key):
    """What is drawn are early checkpoints of the same trajectories, and what gives labels is their end."""
    group = jax.tree.map(lambda array: array[None], points)
    early = init(make_bpc({"last_step": 2}), keys, model, group, shared_key).local.value.experts
    kept = [STEPS.index(step) for step in (0, 2, 4, 6, 10)]
    np.testing.assert_array_equal(early.checkpoints, store.checkpoints[:, :, kept])
    np.testing.assert_array_equal(early.last(), store.last())
    assert early.ends.tolist() == [2, 3]  # of chains of 4 steps from 0 and 2
    with pytest.raises(CoreshotError, match=r"last_step 2 is for stored experts"):
        init(make_bpc({"last_step": 2, "store": "replay", "pool": 2}), keys, model, group, shared_key)


def test_trajectories_start_at_the_shared_initial_weights(store, model, shared_key):
    for index in range(3):
        first = ravel_pytree(model.init(jax.random.fold_in(shared_key, index)))[0]
        np.testing.assert_allclose(store.checkpoints[0, index, 0], first, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("position", range(1, len(STEPS)))
def test_checkpoint_equals_so_many_steps_by_hand(store, model, points, keys, shared_key, make_bpc, position):
    """To 1e-5: the same steps as one loop in place of nested ones, so sums may be split differently."""
    learner, trajectory = make_bpc(), 1
    key = jax.random.fold_in(fold_each(keys, 0)[0], trajectory)
    step_keys = jax.random.split(key, (5, 2)).reshape(-1)[: STEPS[position]]
    solver = make_optimizer(learner.chain_optimizer, learner.experts.step_size)

    def log_density(key, params):
        batch = draw_batch(key, points, learner.batch_size)
        return (model.log_prior(params) + model.log_prob(params, batch)) / points.num_points

    @jax.jit
    def by_hand(params, keys):
        return ravel_pytree(ascend(solver, log_density, params, solver.init(params), keys)[0])[0]

    expected = by_hand(model.init(jax.random.fold_in(shared_key, trajectory)), step_keys)
    np.testing.assert_allclose(store.checkpoints[0, trajectory, position], expected, atol=1e-5)
    assert (
        np.max(np.abs(store.checkpoints[0, trajectory, position - 1] - expected)) > 1e-3
    )  # the one before does not pass


def test_consecutive_checkpoints_differ(store):
    """The published code's checkpoints all alias the live weights: every one equals the last."""
    assert np.all(np.max(np.abs(np.diff(store.checkpoints, axis=2)), axis=-1) > 0)
    assert np.all(
        np.max(np.abs(np.diff(store.checkpoints, axis=1)), axis=-1) > 0
    )  # and trajectories differ from each other


def test_changing_what_was_drawn_does_not_change_the_store(store, keys):
    before = store.checkpoints.copy()
    starts, ends, _ = store.sample(keys, 1, 5)
    for drawn in (np.asarray(starts), np.asarray(ends)):
        assert not np.shares_memory(drawn, store.checkpoints)
    (starts + 1.0).block_until_ready()
    jax.jit(lambda array: array * 0, donate_argnums=0)(starts).block_until_ready()
    np.testing.assert_array_equal(store.checkpoints, before)


def test_drawn_pairs_are_a_chain_apart(store, keys):
    """Each start is some checkpoint r of some trajectory and its end is r + 4 steps of the same trajectory; all of
    them come up.
    """
    starts, ends = (np.asarray(drawn)[0, 0] for drawn in store.sample(keys, 1, 200)[:2])
    seen = set()
    for start, end in zip(starts, ends, strict=True):
        trajectory, position = (int(index[0]) for index in np.nonzero((store.checkpoints[0] == start).all(axis=-1)))
        np.testing.assert_array_equal(end, store.checkpoints[0, trajectory, position + 2])
        seen.add((trajectory, position))
    assert seen == {(trajectory, start) for trajectory in range(3) for start in range(NUM_STARTS)}


def by_replay(make_bpc, model, points, keys, shared_key, **changes):
    learner = make_bpc(num_trajectories=2, experts={"store": "replay", "pool": 2, **changes})
    return init(learner, keys, model, jax.tree.map(lambda array: array[None], points), shared_key).local.value.experts


def test_replay_draws_the_very_pairs_that_a_store_holds(make_bpc, model, points, keys, shared_key, store):
    """To 1e-6, as compiled differently. In 40 draws all 3 trajectories x 4 starts come up, in order, and over again
    after the last.
    """
    pool = by_replay(make_bpc, model, points, keys, shared_key)
    seen = []
    for update in range(20):
        starts, ends, after = pool.sample(fold_each(keys, update), 1, 2)
        trajectory, start = pool.trajectory, pool.start
        drawn = [
            slot
            for slot in range(2)
            if (after.start[0, slot], after.trajectory[0, slot]) != (start[0, slot], trajectory[0, slot])
        ]
        assert drawn == [0, 1]  # two of two
        found = {(int(trajectory[0, slot]), int(start[0, slot])) for slot in drawn}
        for early, late in zip(np.asarray(starts)[0, 0], np.asarray(ends)[0, 0], strict=True):
            distance = np.abs(store.checkpoints[0] - early).max(axis=-1)
            where = tuple(int(index) for index in np.unravel_index(distance.argmin(), distance.shape))
            assert distance[where] < 1e-6
            assert where in found
            np.testing.assert_allclose(late, store.checkpoints[0, where[0], where[1] + 2], atol=1e-6)
            assert (
                np.max(np.abs(late - store.checkpoints[0, where[0], where[1] + 1])) > 1e-4
            )  # one save before is told apart
            seen.append(where)
        pool = after
    assert set(seen) == {(trajectory, start) for trajectory in range(3) for start in range(NUM_STARTS)}


def test_replay_in_several_updates_is_replay_one_by_one(make_bpc, model, points, keys, shared_key):
    pool = by_replay(make_bpc, model, points, keys, shared_key)
    starts, ends, after = pool.sample(keys, 3, 2)
    again, _, same_after = pool.sample(keys, 3, 2)
    assert starts.shape == ends.shape == (1, 3, 2, model.num_params())
    np.testing.assert_array_equal(
        starts, again
    )  # a pool is not changed by drawing: a chunk that diverged is done again from it
    np.testing.assert_array_equal(after.start, same_after.start)
    assert not np.array_equal(starts[0, 0], starts[0, 1])


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_coreset_from_replay_is_finite_and_about_where_the_store_puts_it(
    make_bpc, model, points, shared_key, optimizer
):
    """Other draws of the same experts, so not the same; but nothing like a coreset of other data."""
    results = [
        learned(make_bpc(num_trajectories=2, chain_optimizer=optimizer, experts=experts), model, points, shared_key)
        for experts in ({"store": "memory"}, {"store": "replay", "pool": 2})
    ]
    assert np.all(np.isfinite(results[1].points.x))
    np.testing.assert_allclose(results[0].points.x, results[1].points.x, atol=0.3)


def test_a_pool_smaller_than_a_draw_is_refused(make_bpc, model, points, shared_key):
    with pytest.raises(CoreshotError, match=r"draws 3 trajectories, but replay holds 2; raise experts\.pool \(now 2\)"):
        learned(make_bpc(num_trajectories=3, experts={"store": "replay", "pool": 2}), model, points, shared_key)


def test_half_precision_errs_by_at_most_a_2048th_of_the_way_from_the_start(
    make_bpc, model, points, keys, shared_key, store
):
    learner = make_bpc(experts={"coding": "float16"})
    coded = init(learner, keys, model, jax.tree.map(lambda array: array[None], points), shared_key).local.value.experts
    assert coded.checkpoints.nbytes == store.checkpoints.nbytes // 2
    way = np.abs(store.checkpoints - store.checkpoints[:, :, :1]).reshape(-1, model.num_params())
    every = np.indices(store.checkpoints.shape[1:3]).reshape(2, 1, -1)
    decoded = np.asarray(coded._read(every[0], every[1]))[0]
    error = np.abs(decoded - store.checkpoints.reshape(-1, model.num_params()))
    # 2^-11 of the way, 2^-25 where that underflows, and float32's own rounding when the start is added again.
    assert np.all(error <= 2.0**-11 * way + 2.0**-25 + 1e-6)
    assert error.max() > 0  # it is coded
    plain = np.abs(store.checkpoints.astype(np.float16).astype(np.float32) - store.checkpoints)
    assert (
        error[1:3].max() < plain[0, 0, 1:3].max()
    )  # early on the way is short: better than rounding the weights themselves


def test_bytes_of_the_papers_emnist_setting():
    """100 trajectories x 151 checkpoints x 1,206,590 weights x 4 bytes = 72.9 GB; replay's pool of 20 is 0.26 %
    of it.
    """
    settings = {"num_trajectories": 100, "num_steps": 750, "save_interval": 5, "step_size": 1e-2}
    full, half, pool = (
        bytes_needed(Experts(**settings, **changes), 200, 1, 1_206_590)
        for changes in ({}, {"coding": "float16"}, {"store": "replay"})
    )
    assert full == 100 * 151 * 1_206_590 * 4 == 72_878_036_000
    assert half == full // 2
    assert pool == 20 * 2 * 1_206_590 * 4
    assert pool / full < 0.003


def test_a_full_disk_is_one_sentence(make_bpc, model, points, shared_key, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(
        CoreshotError, match=r"1,224 bytes of checkpoints do not fit on the disk .* continues with the others"
    ):
        learned(make_bpc(experts={"store": "disk"}), model, points, shared_key)


def test_the_file_on_disk_has_its_size_from_the_beginning(make_bpc, model, points, keys, shared_key, monkeypatch):
    """Reserved in one piece: it never grows."""
    reserved = []
    monkeypatch.setattr(
        os, "posix_fallocate", lambda file, start, size: reserved.append(size) or os.ftruncate(file, size)
    )
    learner = make_bpc(experts={"store": "disk"})
    on_disk = init(
        learner, keys, model, jax.tree.map(lambda array: array[None], points), shared_key
    ).local.value.experts
    assert reserved == [on_disk.checkpoints.nbytes] == [bytes_needed(learner.experts, 4, 1, model.num_params())]


def learned(learner, model, points, shared_key):
    return distill(
        model, learner, guard_records({"a": points}, learner.releases(model)), {"a": jax.random.key(5)}, shared_key
    )["a"].coreset


def test_memory_and_disk_give_the_same_bits(make_bpc, model, points, shared_key, same):
    in_memory, on_disk = (
        learned(make_bpc(experts={"store": store}), model, points, shared_key) for store in ("memory", "disk")
    )
    assert same(in_memory, on_disk)


def test_disk_store_is_a_memory_map(make_bpc, model, points, keys, shared_key, store):
    on_disk = init(
        make_bpc(experts={"store": "disk"}), keys, model, jax.tree.map(lambda array: array[None], points), shared_key
    ).local.value.experts
    assert isinstance(on_disk.checkpoints, np.memmap)
    assert not isinstance(store.checkpoints, np.memmap)
    np.testing.assert_array_equal(on_disk.checkpoints, store.checkpoints)


def test_more_bytes_than_the_budget_is_an_error_that_says_so(make_bpc, model, points, shared_key):
    """1 client x 3 trajectories x 6 steps x 17 weights x 4 bytes = 1,224; one less is not enough, as many are."""
    assert model.num_params() == 17
    with pytest.raises(
        CoreshotError,
        match=r"1 clients x 3 trajectories need 1,224 bytes .* budget is 1,223\. Raise experts\.byte_budget",
    ) as error:
        learned(make_bpc(experts={"byte_budget": 1223}), model, points, shared_key)
    assert "\n" not in str(error.value)
    learned(make_bpc(experts={"byte_budget": 1224}), model, points, shared_key)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"data_chain_length": 12},
            r"data_chain_length 12.* longer than the experts' 10 steps; lower it or raise experts\.num_steps",
        ),
        ({"data_chain_length": 5}, r"data_chain_length 5 .*multiples? of experts\.save_interval 2.*change one"),
    ],
)
def test_chains_that_do_not_fit_the_experts_are_refused(make_bpc, model, points, shared_key, changes, words):
    with pytest.raises(CoreshotError, match=words):
        learned(make_bpc(**changes), model, points, shared_key)


def test_ascend_with_sgd_is_gradient_ascent_by_hand():
    """log density -(p - 3)^2, step 0.1: p <- p + 0.2 (3 - p), so from 0: 0.6, 1.08, 1.464."""
    solver, params = make_optimizer("sgd", 0.1), {"p": jnp.array(0.0)}
    found, _ = ascend(
        solver,
        lambda _, params: -((params["p"] - 3) ** 2),
        params,
        solver.init(params),
        jax.random.split(jax.random.key(0), 3),
    )
    assert float(found["p"]) == pytest.approx(1.464, rel=1e-6)
