"""A client cannot count for more than the study allows, whatever its message says."""

import jax.numpy as jnp
import numpy as np
import pytest

from coreshot.api import distill
from coreshot.errors import CoreshotError
from coreshot.fitted.model import read_messages
from coreshot.study import Study
from coreshot.study.file import read_study
from coreshot.wire.messages import Message, decode_message, encode_message

BASE = {
    "task": "forged",
    "kind": "classification",
    "input_shape": [2],
    "num_outputs": 2,
    "prior_precision": 1.0,
    "network": {"name": "mlp", "hidden": [4], "activation": "relu"},
}
PRIVACY = {"epsilon": 8.0, "delta": 1e-5}
PRIVATE_DM = {
    "name": "private_dm",
    "num_networks": 1,
    "records_each": 50.0,
    "num_points": 4,
    "num_updates": 1,
    "step_size_x": 0.1,
    "init_scale": 0.1,
    "privacy": PRIVACY,
}
SUBSET = {"name": "random_subset", "num_points": 4}
PRIVATE_FED_AVG = {
    "name": "private_fed_avg",
    "num_rounds": 1,
    "local_steps": 1,
    "batch_size": 4,
    "sampling_rate": 1.0,
    "clip_norm": 1.0,
    "client_optimizer": {"name": "sgd", "step_size": 0.1},
    "server_optimizer": {"name": "sgd", "step_size": 1.0},
    "privacy": PRIVACY,
}
FED_AVG = {
    key: value for key, value in PRIVATE_FED_AVG.items() if key not in ("sampling_rate", "clip_norm", "privacy")
} | {"name": "fed_avg"}
SPECTRAL = {"name": "spectral", "features": {"name": "identity", "dimension": 2}}
GLM = {"name": "glm", "dimension": 5}


def coreset(count=50.0, num_points=4, size=1.0):
    arrays = {
        "x": jnp.full((num_points, 2), size, jnp.float32),
        "labels": jnp.zeros(num_points, jnp.int32),
        "num_examples": jnp.asarray([count], jnp.float32),
    }
    return Message("coreset", 0, arrays)


def read(study, message):
    data = encode_message(message, study_hash=study.hash, client="thief")
    return study.read("thief", decode_message(data, study_hash=study.hash))


def records(count=40):
    draws = np.random.default_rng(0)
    x = draws.normal(size=(count, 2)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(int)


@pytest.mark.parametrize("count", [1e30, 51.0, 49.0, 1.0])
def test_where_all_count_alike_the_number_is_the_study_s(count):
    study = Study.from_dict({**BASE, "learner": PRIVATE_DM})
    read(study, coreset())
    with pytest.raises(CoreshotError, match="counts every client as 50; distill it again"):
        read(study, coreset(count))


def test_the_number_of_points_is_the_study_s():
    study = Study.from_dict({**BASE, "learner": SUBSET})
    read(study, coreset())
    with pytest.raises(CoreshotError, match="has 400 points, and every client of the study sends 4"):
        read(study, coreset(num_points=400))


def test_the_number_of_records_has_a_public_limit():
    study = Study.from_dict({**BASE, "learner": SUBSET})
    read(study, coreset(1e7))
    with pytest.raises(CoreshotError, match=r"speaks for 1e\+30 records, and .* max_records = 10,000,000"):
        read(study, coreset(1e30))
    narrow = Study.from_dict({**BASE, "max_records": 100, "learner": SUBSET})
    assert narrow.hash != study.hash
    with pytest.raises(CoreshotError, match="max_records = 100;"):
        read(narrow, coreset(101.0))
    with pytest.raises(CoreshotError, match="client a: has 101 records, and the study's max_records is 100"):
        distill(narrow, *records(101), client="a")


def test_points_have_a_public_limit(study_path):
    study = Study.from_dict({**BASE, "max_input": 3.0, "learner": SUBSET})
    read(study, coreset(size=3.0))
    with pytest.raises(CoreshotError, match=r"its points go up to 3\.5, and the study's limit is 3"):
        read(study, coreset(size=3.5))
    assert Study.from_dict({**BASE, "learner": SUBSET}).largest_input == 1e6
    assert read_study(study_path).largest_input == 10.0, "a table is scaled to -1 to 1"


def test_rounds_count_each_client_once():
    """One client with num_examples = 1e30 took all of the weight of private_fed_avg."""
    study, plain = (Study.from_dict({**BASE, "method": method}) for method in (PRIVATE_FED_AVG, FED_AVG))

    def delta(count):
        shapes = {"Dense_0/kernel": (2, 4), "Dense_0/bias": (4,), "Dense_1/kernel": (4, 2), "Dense_1/bias": (2,)}
        arrays = {f"delta/{name}": jnp.zeros(shape) for name, shape in shapes.items()}
        return Message("delta", 0, {**arrays, "num_examples": jnp.asarray([count], jnp.float32)})

    read(study, delta(1.0))
    with pytest.raises(CoreshotError, match=r"counts itself as 1e\+30 clients, and in this study each counts as one"):
        read(study, delta(1e30))
    read(plain, delta(1e6))
    with pytest.raises(CoreshotError, match="max_records"):
        read(plain, delta(1e30))


@pytest.mark.parametrize("method", [SPECTRAL, GLM], ids=["spectral", "glm"])
def test_a_message_scaled_up_is_refused(method):
    """Sums of a million times the records, in a message that is right in all else."""
    study = Study.from_dict({**BASE, "max_records": 100, "method": method})
    honest = distill(study, *records(), client="a")
    contents = read_messages(study, [honest])
    assert study.method.claim(contents["a"]).num_records == pytest.approx(40, rel=1e-3)
    larger = Study.from_dict({**BASE, "method": method})
    many = distill(larger, *(np.tile(part, (100, 1)[: part.ndim]) for part in records()), client="a")
    message = decode_message(many, study_hash=larger.hash)
    with pytest.raises(CoreshotError, match="max_records = 100;"):
        study.read("a", message)


@pytest.mark.parametrize("method", [SPECTRAL, GLM], ids=["spectral", "glm"])
def test_a_site_with_exactly_as_many_records_as_allowed_can_send(method):
    """Its number is a sum of rounded numbers, and may come out a little larger."""
    claims = []
    for number in range(991, 1001):
        study = Study.from_dict({**BASE, "max_records": number, "method": method})
        message = distill(study, *records(number), client="a")
        claims.append(study.method.claim(read_messages(study, [message])["a"]).num_records - number)
    assert method is not GLM or max(claims) > 0, "negative control: one of them is larger"
    with pytest.raises(CoreshotError, match="client a: has 1,001 records, and the study's max_records is 1,000"):
        distill(study, *records(1001), client="a")


def test_rows_that_do_not_fit_their_number_are_refused():
    study = Study.from_dict({**BASE, "method": SPECTRAL})
    message = decode_message(distill(study, *records(), client="a"), study_hash=study.hash)
    study.read("a", message)
    scaled = {**message.arrays, "rows": message.arrays["rows"] * 1000}
    with pytest.raises(CoreshotError, match=r"its rows are those of \d+,\d+,\d+ records, and it says that it has 40"):
        study.read("a", Message("spectral", 0, scaled))


def test_a_fit_of_glm_that_claims_more_weight_than_its_records_is_refused():
    study = Study.from_dict({**BASE, "method": GLM})
    arrays = decode_message(distill(study, *records(), client="a"), study_hash=study.hash).arrays
    study.read("a", Message("glm", 0, arrays))
    with pytest.raises(CoreshotError, match="its fit has more weight than 40 records give"):
        study.read("a", Message("glm", 0, {**arrays, "gradient": arrays["gradient"] + 1000.0}))


def test_sums_with_noise_have_the_limit_of_their_records():
    method = {"name": "private_spectral", "features": {"name": "identity", "dimension": 2}, "privacy": PRIVACY}
    study = Study.from_dict({**BASE, "max_records": 1000, "method": method})
    message = decode_message(distill(study, *records(), client="a"), study_hash=study.hash)
    study.read("a", message)
    scaled = {**message.arrays, "gram_step": message.arrays["gram_step"] * 10_000}
    with pytest.raises(CoreshotError, match="max_records = 1,000;"):
        study.read("a", Message(message.kind, 0, scaled))


def test_fit_names_the_largest_share(coreshot, study_path, write_site):
    for name, count in (("north", 40), ("south", 160)):
        coreshot("distill", study_path, write_site(name, count=count), "--out", f"{name}.coreset")
    said = coreshot("fit", "north.coreset", "south.coreset", "--study", study_path, "--out", "model")
    assert "south has 80% of the records, by its own count: the largest share" in said
