"""Whatever moment a change of a model is cut off at, the folder holds the old model or the new one, and the same
command completes it.

Each write and each removal in turn is the one that never happens. benchmarks/kill_commands.py does the same with
SIGKILL at random moments.
"""

import shutil
from pathlib import Path

import pytest

from coreshot.api import distill
from coreshot.fitted import folder as model_folder
from coreshot.fitted.folder import by_client, open_model, refit, write_model
from coreshot.study.file import parse_study, read_study

MAX_STEPS = 40


class CutOffError(Exception):
    pass


@pytest.fixture
def cut_off_at(monkeypatch):
    """The so-manieth write or removal raises instead; of a write that is cut off nothing is there but a temporary
    file.
    """

    def at(number):
        count = iter(range(MAX_STEPS))
        write, unlink = model_folder.write_bytes, Path.unlink

        def cut_write(path, data, mode=0o666):
            if next(count) == number:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.with_name(f".{path.name}.1.tmp").write_bytes(data[: len(data) // 2])
                raise CutOffError
            write(path, data, mode)

        def cut_unlink(path, missing_ok=False):
            if next(count) == number:
                raise CutOffError
            unlink(path, missing_ok)

        monkeypatch.setattr(model_folder, "write_bytes", cut_write)
        monkeypatch.setattr(Path, "unlink", cut_unlink)

    yield at
    monkeypatch.undo()


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def coresets(study_path, write_site):
    from coreshot.data.files import read_records

    study = read_study(study_path)
    found = {}
    for seed, name in enumerate(("north", "south", "west")):
        records = read_records(write_site(name, seed=seed), study.inputs, study.target)
        found[Path(name)] = distill(study, records.x, records.y, client=name)
    return by_client(found)


def test_every_moment_of_an_addition(study_path, coresets, cut_off_at, monkeypatch, tmp_path):
    text = study_path.read_text()
    two = {name: coresets[name] for name in ("north", "south")}
    write_model(tmp_path / "before", parse_study(text, "test"), two, None, "mass", 0)
    write_model(tmp_path / "after", parse_study(text, "test"), coresets, None, "mass", 0)
    seen = set()
    for number in range(MAX_STEPS):
        folder = tmp_path / f"model{number}"
        shutil.copytree(tmp_path / "before", folder)
        cut_off_at(number)
        try:
            refit(open_model(folder), coresets)
            was_cut = False
        except CutOffError:
            was_cut = True
        monkeypatch.undo()
        opened = open_model(folder)
        opened.load()
        assert opened.coresets() == (coresets if len(opened.clients) == 3 else two)
        seen.add((was_cut, len(opened.clients)))
        refit(opened, coresets)
        assert contents(folder) == contents(tmp_path / "after"), f"cut off at step {number}"
        if not was_cut:
            break
    assert seen == {(True, 2), (True, 3), (False, 3)}
