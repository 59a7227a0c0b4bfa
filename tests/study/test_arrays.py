"""Studies of arrays in one line: the default methods, as a new study file has them; and a site's file as arrays."""

import numpy as np
import pytest

import coreshot
from coreshot.privacy.promise import promised_epsilon
from coreshot.study.file import parse_study
from coreshot.study.template import image_template

HEAD = (
    'format = 1\nname = "t"\ntask = "regression"\n[target]\nname = "y"\nrange = [0, 1]\n[table]\nmissing = "refuse"\n'
)


def test_a_table_has_the_method_of_a_new_study_file():
    columns = "".join(f'[[table.column]]\nname = "{name}"\nkind = "number"\nrange = [-1, 1]\n' for name in "abc")
    method = '[method]\nname = "glm"\nwinsorise = true\n'
    written = parse_study(HEAD + columns + method, "study").study.method
    made = coreshot.table_study("t", 3).method
    assert type(made) is type(written)
    assert made.winsorise
    assert written.winsorise
    assert made.dimension == written.dimension
    model = coreshot.table_study("t", 3).model
    assert made.polynomials(model) == written.polynomials(model)


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 3)])
def test_images_have_the_method_of_a_new_study_file(shape):
    written = parse_study(image_template("t", shape, ["a", "b"]), "study").study
    assert coreshot.image_study("t", shape, 2).method == written.method
    assert coreshot.image_study("t", shape, 2, max_bytes=None).method.max_bytes is None


def test_a_quantity_is_learned_in_whatever_unit_its_columns_have():
    draws = np.random.default_rng(0)
    x = draws.uniform(-1, 1, (120, 3))
    y = x @ [1.0, -2.0, 0.0] + 0.01 * draws.normal(size=120)
    study = coreshot.table_study("plane", num_inputs=3, max_bytes=3_000)
    predicted = []
    for inputs in (x, 1000 * x + 500):
        files = [coreshot.distill(study, inputs[i::2], y[i::2], client=f"site-{i}") for i in range(2)]
        assert max(map(len, files)) < 5_000
        predicted.append(np.asarray(coreshot.fit(study, files).predict(inputs[:20]).mean)[:, 0])
    assert np.allclose(predicted[0], y[:20], atol=0.05)
    assert np.allclose(predicted[0], predicted[1], atol=0.01)
    assert not np.allclose(predicted[0], y[20:40], atol=0.05)


@pytest.mark.parametrize(
    "make",
    [
        lambda **more: coreshot.table_study("t", 4, 2, **more),
        lambda **more: coreshot.image_study("t", (8, 8, 1), 3, **more),
    ],
)
def test_a_promise_is_that_which_was_asked_for(make):
    assert promised_epsilon(make().releases) is None
    releases = make(epsilon=2.0, delta=1e-6).releases
    assert promised_epsilon(releases) == pytest.approx(2.0, rel=1e-3)
    assert {release.delta for release in releases} == {1e-6}
    assert make(epsilon=2.0).hash != make(epsilon=3.0).hash != make().hash


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: coreshot.table_study("t", 0, 2), "at least one column"),
        (lambda: coreshot.table_study("t", 3, 1), "at least two"),
        (lambda: coreshot.table_study("t", 3, 2, max_bytes=9_000, epsilon=1.0), "no max_bytes"),
        (lambda: coreshot.image_study("t", (8, 8), 2), "height, width and channels"),
        (lambda: coreshot.read_records(coreshot.table_study("t", 3), "a.csv"), "does not say how records become"),
    ],
)
def test_mistakes_get_a_sentence(make, sentence):
    with pytest.raises(coreshot.CoreshotError, match=sentence):
        make()


def test_a_file_becomes_the_arrays_that_the_command_distills(coreshot, study_path, write_site, tmp_path):
    import coreshot as program

    study = program.read_study(str(study_path))
    x, y = program.read_records(study, str(write_site("north")))
    assert x.shape == (60, *study.agreement.input_shape)
    coreshot("distill", study_path, tmp_path / "north.csv", "--out", "north.coreset")
    assert program.distill(study, x, y, client="north") == (tmp_path / "north.coreset").read_bytes()
    broken = write_site(
        "south", change=lambda lines: [lines[0], *(",".join([*line.split(",")[:2], "999,1"]) for line in lines[1:])]
    )
    with pytest.raises(program.CoreshotError, match="'pressure' is broken"):
        program.read_records(study, broken)
