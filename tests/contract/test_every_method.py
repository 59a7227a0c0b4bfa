"""The whole registry of methods keeps the protocol: a new line in METHODS is tested by an example here, or fails.

What the methods of many rounds promise beyond it is in test_methods.py, of the others in test_spectral_method.py
and in tests/privacy.
"""

import itertools

import jax
import numpy as np
import pytest

from coreshot.config import decode_named, encode_named
from coreshot.errors import CoreshotError
from coreshot.inference.map_estimate import MapEstimate
from coreshot.methods import METHODS, OneShot
from coreshot.methods.protocol import PointInference
from coreshot.privacy.guarded_records import guard_records
from coreshot.runtime.simulate import simulate
from coreshot.study import Agreement, Study
from coreshot.wire.ledger import Ledger
from coreshot.wire.messages import Message, decode_message, encode_message

SGD = {"name": "sgd", "step_size": 0.1}
ROUNDS = {"num_rounds": 2, "local_steps": 2, "batch_size": 4}
FED_AVG = {**ROUNDS, "client_optimizer": SGD, "server_optimizer": SGD}
FEATURES = {"name": "random_vector", "dimension": 12}
PRIVACY = {"epsilon": 4.0, "delta": 1e-5}
FEW_STEPS = {"optimizer": "sgd", "step_size": 0.1, "num_steps": 5}
EXAMPLES = {
    "dosfl": {
        "distill_steps": 2,
        "distill_epochs": 1,
        "distill_batch_size": 2,
        "num_updates": 2,
        "batch_size": 4,
        "init_scale": 0.5,
        "initial_step_size": 0.1,
        "x_optimizer": SGD,
        "step_size_optimizer": SGD,
        "soft_reset_scale": 0.1,
    },
    "fed_avg": FED_AVG,
    "fed_avg_head": {**FED_AVG, "features": FEATURES},
    "fed_cgs": {"features": FEATURES},
    "fed_cof": {"features": FEATURES},
    "fed_ncm": {"features": FEATURES},
    "fed_pft": {"features": FEATURES, "num_components": 2},
    "fed_ridge": {"features": FEATURES},
    "fed_pa": {**FED_AVG, "num_samples": 2, "shrinkage": 0.1, "burn_in_rounds": 1},
    "glm": {"dimension": 5},
    "mime": {**ROUNDS, "base_optimizer": SGD, "server_step_size": 1.0, "gradient_batch_size": 3},
    "one_shot": {"learner": {"name": "class_mean", "num_points": 2}},
    "private_fed_avg": {**FED_AVG, "privacy": PRIVACY, "sampling_rate": 0.3, "clip_norm": 1.0},
    "private_pooled_dm": {
        "privacy": PRIVACY,
        "num_networks": 2,
        "points_per_class": 2,
        "num_updates": 25,
        "step_size_x": 0.05,
        "inference": FEW_STEPS,
    },
    "private_spectral": {"features": FEATURES, "privacy": PRIVACY},
    "spectral": {"features": FEATURES, "max_bytes": 400},
}
INFERENCE = PointInference(MapEstimate(**FEW_STEPS))  # for the methods that send points
NAMES = tuple("abc")
SUBSETS = [subset for size in (1, 2, 3) for subset in itertools.combinations(NAMES, size)]
KEY = jax.random.key(0)


@pytest.fixture(scope="module", params=sorted(METHODS))
def study(request, make_model):
    if request.param not in EXAMPLES:
        pytest.fail(f"add a tiny example of {request.param!r} to EXAMPLES in {__file__}")
    model = make_model("classification")
    sizes = {"input_shape": model.input_shape, "num_outputs": model.num_outputs}
    terms = Agreement(task="test", kind="classification", prior_precision=model.prior_precision, **sizes)
    method = decode_named(METHODS, {"name": request.param, **EXAMPLES[request.param]}, "test", "method")
    return Study(terms, model.network, method)


def test_no_example_is_of_a_method_that_is_gone():
    assert EXAMPLES.keys() <= METHODS.keys()


@pytest.fixture(scope="module")
def clients(sample_points):
    return {name: sample_points("classification", seed, 24 + seed) for seed, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def start(study):
    return study.method.init(KEY, study.model, study.shared_key)


@pytest.fixture(scope="module")
def replies(study, start, clients):
    """The messages of the first exchange; each says what its method declares, and has gone through bytes."""
    invitation = study.method.send(KEY, study.model, start, NAMES)
    assert set(invitation.clients) == set(NAMES)
    asked = guard_records(clients, study.releases)
    answers = study.method.reply(
        KEY, study.model, asked, [invitation.message], study.shared_key, lambda num_clients: None
    )
    assert answers.keys() == set(NAMES)
    if not isinstance(study.method, OneShot):  # whose learners stack the records: test_learners.py looks there
        assert all(records.used == {release.name for release in study.releases} for records in asked.values())
    return {name: through_bytes(study, name, message) for name, (message, _) in answers.items()}


def through_bytes(study, name, message):
    data = encode_message(message, study_hash=study.hash, client=name, releases=study.releases)
    return decode_message(data, study_hash=study.hash, client=name, releases=study.releases)


def receive(study, start, replies, names):
    """The server's state after these replies, read in this order."""
    contents = {name: study.method.read(study.model, name, replies[name]) for name in names}
    return study.method.receive(KEY, study.model, start, contents)


def infer(study, state):
    return study.method.posterior(KEY, study.model, state, INFERENCE)[0]


def probabilities(posterior, points):
    found = np.asarray(posterior.predict(points.x).mean)
    assert found.shape == (points.num_points, 2)
    assert np.all(np.isfinite(found))
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    return found


@pytest.fixture(scope="module")
def posterior(study, clients):
    """Of a whole run, all rounds of it."""
    return infer(study, simulate(KEY, study, clients, Ledger()))


def test_a_run_predicts_and_its_posterior_survives_its_file(study, clients, posterior):
    read = study.method.load_posterior(study.model, study.shared_key, posterior.arrays())
    np.testing.assert_array_equal(probabilities(read, clients["a"]), probabilities(posterior, clients["a"]))
    log_predictive = np.asarray(posterior.log_predictive(clients["a"]))
    assert log_predictive.shape == (clients["a"].num_points,)
    assert np.all(log_predictive <= 1e-6)  # of classes


def test_the_same_key_gives_the_same_answer_unless_noise_must_not_be_repeated(study, clients, posterior):
    again = probabilities(infer(study, simulate(KEY, study, clients, Ledger())), clients["a"])
    is_exact = all(release.is_exact for release in study.releases)
    assert np.array_equal(again, probabilities(posterior, clients["a"])) == is_exact


@pytest.mark.parametrize("names", SUBSETS, ids="".join)
def test_any_subset_of_replies_is_accepted_in_any_order(study, start, replies, clients, names):
    there, back = (infer(study, receive(study, start, replies, order)) for order in (names, names[::-1]))
    np.testing.assert_array_equal(probabilities(there, clients["a"]), probabilities(back, clients["a"]))


def test_no_reply_at_all_is_an_error(study, start):
    with pytest.raises(CoreshotError, match=r"round 0: no client"):
        study.method.receive(KEY, study.model, start, {})


def test_a_reply_that_does_not_fit_is_refused_by_the_name_of_its_client(study, replies):
    message = replies["b"]
    broken = [
        Message(message.kind, message.round, {}),
        *(
            Message(message.kind, message.round, {key: array for key, array in message.arrays.items() if key != name})
            for name in message.arrays
            if name != "weight"  # the only part that may be left out
        ),
    ]
    for one in broken:
        with pytest.raises(CoreshotError, match="client b, round 0"):
            study.method.read(study.model, "b", one)


def test_settings_and_study_survive_their_dictionary(study):
    assert decode_named(METHODS, encode_named(METHODS, study.method), "test", "method") == study.method
    assert hash(study.method) == hash(decode_named(METHODS, encode_named(METHODS, study.method), "test", "method"))
    assert Study.from_dict(study.to_dict()) == study
    assert Study.from_dict(study.to_dict()).hash == study.hash
