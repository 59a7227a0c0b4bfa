"""What nobody can pretend: arrays that are not the study's, a second promise beside the one that is read, a secure
sum over a network.
"""

import io
from dataclasses import replace

import jax
import numpy as np
import pytest

from coreshot.config import decode_named
from coreshot.errors import CoreshotError
from coreshot.experiments.preset import load_preset
from coreshot.fitted.inspection import inspect_message
from coreshot.methods import METHODS
from coreshot.privacy.guarded_records import guard_records
from coreshot.privacy.promise import promise
from coreshot.privacy.releases import Release
from coreshot.runtime.worker_main import answer_job
from coreshot.runtime.worker_process import read_frame
from coreshot.study.file import read_study
from coreshot.wire.messages import Message, decode_message, encode_message

STUDY = """
format = 1
name = "private"
task = "classification"

[target]
name = "ill"
classes = ["no", "yes"]

[table]
missing = "zero"

[[table.column]]
name = "age"
kind = "number"
range = [20, 100]

[privacy]
epsilon = 1.0
delta = 1e-5

[method]
name = "private_spectral"
features = { name = "identity", dimension = 1 }
"""

PRESET = """
base = "moons_quick"
seeds = [0]

[privacy]
epsilon = 1.0
delta = 1e-5

[method.private]
name = "private_spectral"
features = { name = "random_vector", dimension = 6 }
"""


@pytest.fixture
def study_path(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def test_records_under_a_private_study_s_name_are_not_vouched_for(call, study_path, tmp_path):
    """Right hash, right list of releases, and records in place of noisy moments."""
    study, path = read_study(study_path), tmp_path / "forged.coreset"
    message = Message("private_spectral", 0, {"x": np.ones((30, 1), np.float32)})
    path.write_bytes(encode_message(message, study_hash=study.hash, client="a", releases=study.releases))
    code, _, errors = call("inspect", path, "--study", study_path)
    assert code == 2
    assert "found x, the study wants cross" in " ".join(errors.split())
    assert inspect_message(path.read_bytes(), "forged").promise.startswith(
        "According to the releases that its header declares, "
    )


def test_a_second_promise_beside_the_first_is_refused(study_path, tmp_path):
    study_path.write_text(STUDY + "privacy = { epsilon = 30.0, delta = 0.05 }\n")
    with pytest.raises(CoreshotError, match=r"\[privacy\] and the method's own privacy are not the same"):
        read_study(study_path)
    path = tmp_path / "two.toml"
    path.write_text(PRESET + "privacy = { epsilon = 30.0, delta = 0.05 }\n")
    with pytest.raises(CoreshotError, match=r"\[privacy\] and the privacy of 'private_spectral' are not the same"):
        load_preset(str(path))


def test_no_site_answers_for_a_secure_sum(study_path, tmp_path):
    study_path.write_text(STUDY + "num_sharers = 3\n")
    (tmp_path / "a.csv").write_text("age,ill\n30,no\n40,yes\n")
    study, answers = read_study(study_path), io.BytesIO()
    key = np.asarray(jax.random.key_data(jax.random.key(0))).tolist()
    answer_job({"study": study.to_dict(), "client": "a", "key": key, "data": str(tmp_path / "a.csv")}, [], answers)
    answers.seek(0)
    head, parts = read_frame(answers)
    assert (head["kind"], parts) == ("unmasked", [])


def test_a_sharer_that_is_told_of_others_than_agreed_adds_no_part(make_study, sample_points):
    """A server that invites a client alone would get its share of the noise without a mask."""
    values = {
        "name": "private_spectral",
        "features": {"name": "random_vector", "dimension": 4},
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
    }
    study = replace(
        make_study("classification"),
        method=decode_named(METHODS, {**values, "num_sharers": 3}, "test", "method"),
    )
    for names in ('["a"]', '["a","b","b"]', '["b","c","d"]', '["a","b","c","d"]', "7", '{"a": 1}', "[1, 2, 3]", "no"):
        invitation = Message("invitation", 0, {"sharers": np.frombuffer(names.encode(), np.uint8)})
        asked = guard_records({"a": sample_points("classification", 0, 9)}, study.releases)
        with pytest.raises(CoreshotError, match="a secure sum of 3"):
            study.method.reply(jax.random.key(0), study.model, asked, [invitation], study.shared_key, lambda _: None)


def test_the_accountant_s_last_digits_on_another_machine_are_no_other_release(study_path):
    """They differ by some 1e-15 between processors; a thousandth less noise is another release."""
    study = read_study(study_path)
    (release,) = study.releases

    def sent(factor):
        declared = [replace(release, noise_multiplier=release.noise_multiplier * factor)]
        return encode_message(Message("private_spectral", 0, {}), study_hash=study.hash, client="a", releases=declared)

    for factor in (1 - 1e-12, 1.0, 1 + 1e-12):
        assert decode_message(sent(factor), study_hash=study.hash, releases=study.releases).kind == "private_spectral"
    with pytest.raises(CoreshotError, match="declares other releases"):
        decode_message(sent(0.999), study_hash=study.hash, releases=study.releases)


def test_the_noise_of_steps_is_promised_as_any_other():
    """Since it is added to whole numbers, nothing has to be said about its precision."""
    steps = Release("steps", "t", "dp_sgd", 1.0, 2.0, 10, 0.1, 1e-5)
    moments = Release("moments", "t", "gaussian", 1.0, 2.0, delta=1e-5)
    for release in (steps, moments):
        assert promise([release]).endswith("carries Gaussian noise made for that bound.")
