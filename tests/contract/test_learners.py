"""Every learner of the registry keeps the learners' contract: shapes, determinism, and a coreset that depends on its
own client alone.
"""

import jax
import numpy as np
import pytest

from coreshot.config import decode_named, encode_named
from coreshot.errors import CoreshotError
from coreshot.keys import client_key
from coreshot.learners import LEARNERS
from coreshot.learners.descent import run_updates
from coreshot.learners.expert_store import _trajectories
from coreshot.learners.loop import distill
from coreshot.methods.one_shot import coreset_message, message_coreset
from coreshot.privacy.guarded_records import guard_records, stacked

NUM_POINTS = 3
DESCENT = {"num_points": NUM_POINTS, "num_updates": 25, "step_size_x": 0.05, "init_scale": 0.5}
RECORDS_EACH = 30.0
PRIVATE = {"privacy": {"epsilon": 6.0, "delta": 1e-4}, "records_each": RECORDS_EACH}
SETTINGS = {
    "bpc_fkl": {},  # filled from the shared small settings, as the next three
    "bpc_rkl": {},
    "bpc_w": {},
    "fbpc": {},
    "vbpc": {**DESCENT, "step_size_y": 0.01, "num_networks": 2, "network_updates": 6, "batch_size": 5},
    "dm": DESCENT,
    "gradient_matching": {**DESCENT, "batch_size": 4, "network_updates": 3, "network_steps": 2},
    "everything": {},
    "random_subset": {"num_points": NUM_POINTS},
    "raw_images": {"max_bytes": 2 * NUM_POINTS, "coding": {"bits": 8}},  # of two numbers each
    "class_mean": {"num_points": NUM_POINTS},
    "noise": {"num_points": NUM_POINTS, "init_scale": 0.5},
    "start_only": {"num_points": NUM_POINTS, "init_scale": 0.5},
    "private_bpc_fkl": {**PRIVATE, "sampling_rate": 0.3, "clip_norm": 1.0},  # and the shared small settings
    "private_dm": {**DESCENT, **PRIVATE, "num_networks": 2},
}
NOISY = {"private_bpc_fkl", "private_dm"}  # no key repeats their noise, and they do not tell how many records there are
USES_NO_KEY = {"everything"}
KINDS = ("classification", "regression")
OF_CLASSES = {"vbpc", "dm", "gradient_matching"}
BPC = {"bpc_fkl", "bpc_rkl", "bpc_w", "fbpc", "private_bpc_fkl"}
LEARNED = (BPC | OF_CLASSES) - NOISY
PAIRS = [
    (name, kind) for name in SETTINGS for kind in KINDS if not (name in OF_CLASSES | NOISY and kind == "regression")
]
# Learned points agree to 1e-5 between groups of other sizes, not bit by bit: XLA splits sums differently for other
# shapes, and training carries that on. The same holds for a mean over all records of a padded client.
MOVES_IN_THE_LAST_BITS = {*((name, "classification") for name in LEARNED), ("class_mean", "regression")}
# Learned groups compile for ten seconds each, and regression differs from classification in its likelihood only.
IN_GROUPS = [
    (name, kind)
    for name, kind in PAIRS
    if (name, kind) == ("bpc_fkl", "classification") or name not in LEARNED | NOISY or name in OF_CLASSES
]


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_every_learner_is_tested(name):
    assert name in SETTINGS, f"add a tiny example of {name!r} to SETTINGS in {__file__}"


@pytest.fixture(scope="module")
def make_learner(bpc_settings):
    def make(name):
        values = {**(bpc_settings if name in BPC else {}), **SETTINGS[name], "name": name}
        return decode_named(LEARNERS, values, "test", "learner")

    return make


@pytest.fixture(scope="module")
def make_clients(sample_points):
    """Clients of different sizes, all larger than a batch: in a group all but the largest are padded."""
    return lambda kind: {
        name: sample_points(kind, seed, size) for seed, (name, size) in enumerate({"a": 9, "b": 12, "c": 16}.items())
    }


@pytest.fixture
def learn(make_learner, make_model, one_group):
    def run(name, kind, clients, seed=0):
        keys = {client: client_key(jax.random.key(seed), 0, client) for client in clients}
        learner, model = make_learner(name), make_model(kind)
        return distill(model, learner, guard_records(clients, learner.releases(model)), keys, jax.random.key(9))

    return run


def agree(name, kind, one, other):
    tolerance = 1e-5 if (name, kind) in MOVES_IN_THE_LAST_BITS else 0.0
    return all(
        np.allclose(a, b, rtol=0, atol=tolerance)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_shapes_determinism_and_keys(learn, make_learner, make_clients, make_model, same, name, kind):
    model, clients = make_model(kind), make_clients(kind)
    learned, again, other = learn(name, kind, clients), learn(name, kind, clients), learn(name, kind, clients, seed=1)
    for client, distilled in learned.items():
        points = distilled.coreset.points
        size = NUM_POINTS if name == "raw_images" else make_learner(name).num_points or clients[client].num_points
        assert points.x.shape == (size, *model.input_shape)
        assert points.y.shape == (size, model.num_outputs)
        assert points.weight.shape == (size,)
        assert all(
            np.all(np.isfinite(leaf)) and leaf.dtype == np.float32 for leaf in jax.tree.leaves(distilled.coreset)
        )
        told = RECORDS_EACH if name in NOISY else clients[client].num_points
        assert float(distilled.coreset.num_examples) == told
        assert distilled.notes == []
        is_same = same(distilled.coreset, again[client].coreset)
        assert is_same == (name not in NOISY), "the same key must give the same bits, but never the same noise"
        assert same(distilled.coreset, other[client].coreset) == (name in USES_NO_KEY)
        arrived = message_coreset(coreset_message(distilled.coreset, model, 0), model, client)
        assert same(arrived, distilled.coreset), "what was learned must survive its message"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), IN_GROUPS)
def test_does_not_depend_on_the_others_in_the_group(learn, make_clients, name, kind):
    """In groups of one, two and three, in another order, and padded: the second and third client are larger."""
    clients = make_clients(kind)
    alone = learn(name, kind, {"a": clients["a"]})["a"].coreset
    for others in ("ab", "bac"):
        assert agree(name, kind, learn(name, kind, {other: clients[other] for other in others})["a"].coreset, alone)
    stranger = learn(name, kind, {"a": clients["a"]}, seed=1)["a"].coreset
    assert agree(name, kind, stranger, alone) == (name in USES_NO_KEY)  # the tolerance tells keys apart


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), IN_GROUPS)
@pytest.mark.parametrize("num_cores", [1, 2])
def test_on_any_number_of_cores_and_beside_anyone_the_bits_are_the_same(
    make_learner, make_model, make_clients, monkeypatch, same, name, kind, num_cores
):
    """As clients are grouped when nobody asks otherwise: the same bits as alone, and answers in the order of the
    question.
    """
    clients = dict(reversed(make_clients(kind).items()))
    keys = {client: client_key(jax.random.key(0), 0, client) for client in clients}
    learner, model = make_learner(name), make_model(kind)
    clients = guard_records(clients, learner.releases(model))
    alone = distill(model, learner, {"a": clients["a"]}, keys, jax.random.key(9))["a"].coreset
    monkeypatch.setattr("coreshot.models.parallel.os.cpu_count", lambda: num_cores)
    together = distill(model, learner, clients, keys, jax.random.key(9))
    assert same(together["a"].coreset, alone)
    assert list(together) == ["c", "b", "a"]


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_uses_what_it_declares_and_nothing_else(make_learner, make_model, make_clients, name, kind):
    learner, model = make_learner(name), make_model(kind)
    asked = guard_records(make_clients(kind), learner.releases(model))
    group = stacked(list(asked.values()), 16)
    learner.init(jax.random.split(jax.random.key(0), len(asked)), model, group, jax.random.key(9))
    assert group.used == {release.name for release in learner.releases(model)}
    for release in learner.releases(model):
        fewer = stacked(
            list(
                guard_records(make_clients(kind), [one for one in learner.releases(model) if one != release]).values()
            ),
            16,
        )
        with pytest.raises(CoreshotError, match=f"asks for its client's records as '{release.name}'"):
            learner.init(jax.random.split(jax.random.key(0), len(asked)), model, fewer, jax.random.key(9))


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_survive_encoding(make_learner, name):
    learner = make_learner(name)
    decoded = decode_named(LEARNERS, encode_named(LEARNERS, learner), "test", "learner")
    assert decoded == learner
    assert hash(decoded) == hash(learner)


@pytest.mark.parametrize("compiled", [run_updates, _trajectories], ids=["run_updates", "_trajectories"])
def test_second_client_does_not_compile_again(compiled, make_bpc, make_model, sample_points, one_group):
    def run(seed):
        learner, model = (
            make_bpc(),
            make_model("classification"),
        )  # made anew: equal settings must be found in the cache
        clients = guard_records({"z": sample_points("classification", seed, 9)}, learner.releases(model))
        return distill(model, learner, clients, {"z": jax.random.key(seed)}, jax.random.key(0))

    first = run(0)
    before = compiled._cache_size()
    second = run(1)
    assert compiled._cache_size() == before > 0
    assert not np.array_equal(first["z"].coreset.points.x, second["z"].coreset.points.x)
