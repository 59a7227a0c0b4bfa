"""Attacks that need no module of coreshot but its command line, so that they also run on the code that had the holes.

    git worktree add ../old 35ec6bb
    PYTHONPATH=../old/src python tests/study/attacks.py     # each line says "succeeds"
    PYTHONPATH=src python tests/study/attacks.py              # each line says "fails"

tests/study/test_attacks.py runs them on the present code.
"""

import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import safetensors.numpy

STUDY = """format = 1
name = "{name}"
task = "classification"
target = {{ name = "ill", classes = ["{first}", "yes"] }}

[[table.column]]
name = "age"
kind = "number"
range = [20, 100]
outside = "{outside}"

{work}
"""
SUMS = '[method]\nname = "spectral"\nmax_bytes = 2000\nfeatures = { name = "identity", dimension = 2 }\n'
PRIVACY = "privacy = { epsilon = 1.0, delta = 1e-5 }\n"
NOISY = {"work": SUMS.replace('"spectral"\nmax_bytes = 2000', '"private_spectral"') + PRIVACY}
MATCHING = '[learner]\nname = "private_dm"\nnum_networks = 2\nrecords_each = 20.0\nnum_points = 4\nnum_updates = 2\n'
POINTS = {"work": f"{MATCHING}step_size_x = 0.1\n{PRIVACY}"}
NUM_RELEASES = 12  # in a header; each costs the accountant about a second
SECONDS_TO_LOOK = 5.0


class Attacks:
    """Each method is one attack, and says whether it succeeds. `run` is the command line: exit code and output."""

    def __init__(self, folder, run):
        self.folder, self.run = Path(folder), run
        (self.folder / "site.csv").write_text("age,ill\n" + "30,no\n70,yes\n41,no\n" * 5)
        self.distill("exact", "a.coreset")
        self.header, self.arrays = unpack((self.folder / "a.coreset").read_bytes())

    def study(self, name, **settings):
        values = {"name": name, "outside": "clip", "first": "no", "work": SUMS}
        path = self.folder / f"{len(list(self.folder.iterdir()))}.toml"
        path.write_text(STUDY.format(**{**values, **settings}))
        return path

    def distill(self, name, out, data="site.csv", **settings):
        study = self.study(name, **settings)
        return self.run("distill", study, self.folder / data, "--out", self.folder / out, "--client", "a")

    def forged(self, name, header=None, **arrays):
        path = self.folder / name
        path.write_bytes(pack({**self.header, **(header or {})}, {**self.arrays, **arrays}))
        return path

    def fitted(self, out, *files, name="exact", **settings):
        """Whether a model is fitted to the files."""
        options = ("--inference", "map_estimate") if settings == POINTS else ()
        study = self.study(name, **settings)
        return self.run("fit", *files, "--study", study, "--out", self.folder / out, *options)[0] == 0

    def ask_twice_for_two_draws_of_noise(self):
        for out in ("1.coreset", "2.coreset"):
            self.distill("asked twice", out, **NOISY)
        one, other = ((self.folder / out).read_bytes() for out in ("1.coreset", "2.coreset"))
        return one != other

    def print_a_promise_of_ones_own(self):
        _, told = self.run("study", "check", self.study("x\\n\\u001b[2Kpromise: epsilon = 0.1", **NOISY))
        return "\x1b[2K" in told or "\npromise: epsilon = 0.1" in told

    def crash_inspect_by_the_name_of_an_array(self):
        file = self.forged("markup.coreset", **{"[/x]": np.zeros(1, np.float32)})
        return self.run("inspect", file)[0] not in (0, 2)

    def own_the_model_by_ones_number_of_records(self):
        self.distill("points", "p.coreset", **POINTS)
        header, arrays = unpack((self.folder / "p.coreset").read_bytes())
        arrays["num_examples"] = np.full_like(arrays["num_examples"], 1e30)
        (self.folder / "owner").write_bytes(pack({**header, "client": "owner"}, arrays))
        return self.fitted("m1", self.folder / "p.coreset", self.folder / "owner", name="points", **POINTS)

    def send_the_same_numbers_under_two_names(self):
        return self.fitted("m2", self.folder / "a.coreset", self.forged("c", {"client": "c"}))

    def keep_inspect_busy(self):
        noisy = {"content": "", "mechanism": "gaussian", "sensitivity": 1.0, "num_steps": 10, "sampling_rate": 0.5}
        noisy |= {"delta": 1e-5, "num_sharers": 1}
        releases = [{"name": f"r{n}", "noise_multiplier": 1 + n / 1000, **noisy} for n in range(NUM_RELEASES)]
        began = time.monotonic()
        self.run("inspect", self.forged("busy.coreset", {"releases": releases}))
        return time.monotonic() - began > SECONDS_TO_LOOK

    def read_a_coreset_as_another_user(self):
        return bool((self.folder / "a.coreset").stat().st_mode & 0o077)

    def learn_of_one_record_by_a_refusal(self):
        return self.run("study", "check", self.study("refusing", outside="refuse", **NOISY))[0] == 0

    def learn_the_hash_of_a_file_elsewhere(self):
        place = os.path.relpath(self.folder / "site.csv", self.folder / "networks")
        frozen = f'{{ name = "frozen", dimension = 2, file = "{place}", sha256 = "{"ab" * 32}" }}'
        (self.folder / "networks").mkdir()
        os.environ["CORESHOT_NETWORKS"] = str(self.folder / "networks")
        work = SUMS.replace('{ name = "identity", dimension = 2 }', frozen)
        _, told = self.distill("frozen", "frozen.coreset", work=work)
        return hashlib.sha256((self.folder / "site.csv").read_bytes()).hexdigest()[:6] in told

    def compute_in_a_spreadsheet(self):
        formula = (self.folder / "site.csv").read_text().replace("no", "=1+1")
        (self.folder / "formula.csv").write_text(formula)
        self.distill("formula", "f.coreset", "formula.csv", first="=1+1")
        self.fitted("m3", self.folder / "f.coreset", name="formula", first="=1+1")
        (self.folder / "new.csv").write_text("age\n25\n")
        out = self.folder / "predictions.csv"
        self.run("predict", self.folder / "m3", self.folder / "new.csv", "--out", out)
        return ",=1+1" in out.read_text()


NAMES = [name for name, value in vars(Attacks).items() if callable(value) and name.count("_") > 1 and name[0] != "_"]


def unpack(data):
    length = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["coreshot"])
    return header, safetensors.numpy.load(data)


def pack(header, arrays):
    return safetensors.numpy.save(arrays, {"coreshot": json.dumps(header, sort_keys=True, separators=(",", ":"))})


def run(*words):
    """`coreshot ...`: the exit code, or the name of an error, and what it printed."""
    from coreshot.cli import main

    sys.argv = ["coreshot", *map(str, words)]
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            main()
        except SystemExit as ended:
            return ended.code or 0, told.getvalue()
        except Exception as error:
            return type(error).__name__, told.getvalue()
    return 0, told.getvalue()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        os.environ |= {"CORESHOT_LEDGER": f"{place}/ledger.sqlite", "JAX_PLATFORMS": "cpu"}
        all_attacks = Attacks(place, run)
        for name in NAMES:
            print(f"{name.replace('_', ' ')}: {'succeeds' if getattr(all_attacks, name)() else 'fails'}")
