"""TOML that coreshot writes: every name survives, whatever characters it has."""

import tomllib

import pytest

from coreshot.data.files import read_columns
from coreshot.fitted.folder import _model_toml
from coreshot.study.file import read_study
from coreshot.study.template import csv_header, image_template, table_template

NAMES = [
    'a "quoted" name',
    "back\\slash \\n",
    "two\nlines\tand a tab",
    "été 年齢 🙂",
    "# no comment",
    "it's [x]",
    "\x7f\x01",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_table_study_keeps_every_name(tmp_path, name):
    path = tmp_path / "study.toml"
    records = [{"age": str(20 + i), name: f"{name}{i % 2}", "ill": ["no", name][i % 2]} for i in range(30)]
    path.write_text(table_template(name, ["age", name, "ill"], "ill", records))
    study = read_study(path)
    assert study.agreement.task == name
    assert [column.name for column in study.inputs.columns] == ["age", name]
    assert set(study.inputs.columns[1].values) == {f"{name}0", f"{name}1"}
    assert set(study.target.classes) == {"no", name}
    renamed = path.with_name("renamed.toml")
    renamed.write_text(
        table_template("small", ["age", name], name, [{"age": r["age"], name: r["ill"]} for r in records])
    )
    assert read_study(renamed).target.name == name


@pytest.mark.parametrize("name", NAMES)
def test_an_image_study_keeps_every_name(tmp_path, name):
    path = tmp_path / "study.toml"
    path.write_text(image_template(name, [12, 12, 1], ["a", name]))
    study = read_study(path)
    assert (study.agreement.task, study.target.classes) == (name, ("a", name))


def test_a_guessed_range_has_all_digits(tmp_path):
    values = [0.1 + 0.2, 1e-7, 123456.789012345, *range(20)]
    path = tmp_path / "site.csv"
    path.write_text("dose,ill\n" + "".join(f"{value!r},{index % 2}\n" for index, value in enumerate(values)))
    columns = read_columns(path)
    records = [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]
    text = table_template("small", csv_header(path), "ill", records)
    assert tomllib.loads(text)["table"]["column"][0]["range"] == [0.0, 123456.789012345]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_file_keeps_every_name_and_leaves_out_what_has_no_value(name):
    standing = {"verdict": "agrees", "words": f"of {name}", "agreement": 0.5, "error": 0.125}
    inference = {"name": "hmc", "step_size": 1e-7, "is_adapted": True, "path": None, "inner": {"a": [1, 2], "b": None}}
    text = _model_toml("0" * 64, "posterior-1.safetensors", {name: standing, "b": standing}, inference, "mass", 3)
    values = tomllib.loads(text)
    assert values["clients"] == [name, "b"]
    assert values["standing"] == {name: standing, "b": standing}
    assert values["inference"] == {"name": "hmc", "step_size": 1e-7, "is_adapted": True, "inner": {"a": [1, 2]}}
    assert (values["format"], values["seed"], values["study"]) == (1, 3, "0" * 64)
