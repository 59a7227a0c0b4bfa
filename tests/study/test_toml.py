"""TOML that coreshot writes: every name survives, whatever characters it has."""

import tomllib

import pytest

from coreshot.errors import CoreshotError
from coreshot.fitted.folder import _write_values
from coreshot.study.draft import Draft, DraftColumn, DraftTarget, LeftOut
from coreshot.study.file import read_study
from coreshot.study.template import image_template, table_template

NAMES = [
    'a "quoted" name',
    "back\\slash \\n",
    "été 年齢 🙂",
    "# no comment",
    "it's [x]",
]
STEERING = ["two\nlines\tand a tab", "\x7f\x01"]  # they are written as they are, and refused on reading


@pytest.mark.parametrize("name", NAMES)
def test_a_table_study_keeps_every_name(tmp_path, name):
    path = tmp_path / "study.toml"
    values = (f"{name}0", f"{name}1")
    columns = (
        DraftColumn("age", "number", (0.0, 1.5)),
        LeftOut(name, f"looks like {name}"),
        DraftColumn(name, "category", values=values, missing_words=(f"no {name}",)),
    )
    words = {"no": ["0"], name: ["1", f"{name}!"]}
    target = DraftTarget("ill", classes=("no", name), values=words, questions=(name,))
    path.write_text(table_template(Draft(name, target, columns)), encoding="utf-8")
    study = read_study(path)
    assert study.agreement.task == name
    assert [column.name for column in study.inputs.columns] == ["age", name]
    assert study.inputs.columns[1].values == values
    assert study.inputs.columns[1].missing_words == (f"no {name}",)
    assert study.target.classes == ("no", name)
    assert study.target.values[name] == ("1", f"{name}!")
    path.write_text(table_template(Draft("s", DraftTarget(name, "regression", range=(0, 9)), columns[:1])))
    assert read_study(path).target.name == name


@pytest.mark.parametrize("name", NAMES)
def test_an_image_study_keeps_every_name(tmp_path, name):
    path = tmp_path / "study.toml"
    path.write_text(image_template(name, [12, 12, 1], ["a", name]))
    study = read_study(path)
    assert (study.agreement.task, study.target.classes) == (name, ("a", name))


@pytest.mark.parametrize("name", STEERING)
def test_a_name_that_could_steer_a_terminal_is_refused_on_reading(tmp_path, name):
    path = tmp_path / "study.toml"
    target = DraftTarget("ill", classes=("no", "yes"))
    for text in (
        image_template(name, [12, 12, 1], ["a", "b"]),
        image_template("s", [12, 12, 1], ["a", name]),
        table_template(Draft("s", target, (DraftColumn(name, "number", (0.0, 1.5)),))),
    ):
        path.write_text(text)
        with pytest.raises(CoreshotError, match="holds the control character"):
            read_study(path)


@pytest.mark.parametrize("name", [*NAMES, *STEERING])
def test_a_model_file_keeps_every_name_and_leaves_out_what_has_no_value(name, tmp_path):
    standing = {"verdict": "agrees", "words": f"of {name}", "agreement": 0.5, "error": 0.125}
    inference = {"name": "hmc", "step_size": 1e-7, "is_adapted": True, "path": None, "inner": {"a": [1, 2], "b": None}}
    written = {"inference": inference, "standing": {name: standing, "b": standing}, "roster": None}
    _write_values(tmp_path, {"clients": [name, "b"], **written})
    values = tomllib.loads((tmp_path / "model.toml").read_text())
    assert values["clients"] == [name, "b"]
    assert "roster" not in values
    assert values["standing"] == {name: standing, "b": standing}
    assert values["inference"] == {"name": "hmc", "step_size": 1e-7, "is_adapted": True, "inner": {"a": [1, 2]}}
