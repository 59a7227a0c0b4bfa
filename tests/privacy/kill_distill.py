"""SIGKILL at random moments of private `distill` commands: python kill_distill.py FOLDER SEED NUM_KILLS [late]

FOLDER has study.toml and site.csv. Each command runs in a forked process and dies at a line that is drawn from all
lines of the ledger, of the files and of the command that an undisturbed run executes once it looks into the ledger;
only the computing is replaced, by a draw of noise alone. After each kill the file that is there has left: it is taken
away, and the same command comes again. FOLDER/left holds all that left. With `late`, the order is wrong on purpose:
the file is written before the ledger; it ends with the first kill that shows it.
"""

import gc
import os
import random
import signal
import sys
from pathlib import Path

import numpy as np
import rich.console  # all that a command imports is imported before the first fork
import rich.table

import coreshot.api
from coreshot.cli.distill import distill
from coreshot.privacy.promise import promise
from coreshot.privacy.release_ledger import ReleaseLedger
from coreshot.runtime.site_answers import SiteAnswers
from coreshot.study import site_records
from coreshot.study.file import read_study
from coreshot.wire.messages import Message, encode_message

IMPORTED = (rich.console, rich.table, site_records)
TRACED = {"distill.py", "release_ledger.py", "site_answers.py", "storage.py"}


def compute(study, x, y, *, client, **options):
    arrays = {"noise": np.frombuffer(os.urandom(64), np.uint8)}
    return encode_message(Message("coreset", 0, arrays), study_hash=study.hash, client=client, releases=study.releases)


class Count:
    """Lines that were executed; the process dies at the one that is asked for."""

    def __init__(self, last):
        self.last, self.lines = last, 0

    def __call__(self, frame, event, argument):
        if os.path.basename(frame.f_code.co_filename) not in TRACED:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.last:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


def run(folder, out, last, result=None):
    """One command in a process of its own; its exit code, or minus the signal."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    count, send_once = Count(last), SiteAnswers.send_once

    def traced(*arguments):
        sys.settrace(count)
        sys._getframe(1).f_trace = count  # the command itself is running already
        return send_once(*arguments)

    SiteAnswers.send_once = traced
    try:
        distill(folder / "study.toml", folder / "site.csv", out)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)
    sys.settrace(None)
    if result:
        result.write_text(str(count.lines))
    os._exit(0)


def write_late(out):
    """The wrong order: what was computed is written to the file, and the ledger hears of it afterwards."""
    answer = ReleaseLedger.answer

    def late(self, share, request, compute):
        def leaving(taken):
            message, steps = compute(taken)
            out.write_bytes(message)
            return message, steps

        return answer(self, share, request, leaving)

    ReleaseLedger.answer = late


def main(folder, seed, num_kills, is_late):
    coreshot.api.distill = compute
    promise(read_study(folder / "study.toml").releases)  # calibrated and computed once, for all processes
    gc.freeze()
    draws, out, left = random.Random(seed), folder / "site.coreset", folder / "left"
    left.mkdir()
    os.environ["CORESHOT_LEDGER"] = str(folder / "undisturbed" / "ledger.sqlite")
    assert run(folder, folder / "undisturbed.coreset", None, folder / "lines") == 0
    num_lines = int((folder / "lines").read_text())
    if is_late:
        write_late(out)
    for number in range(num_kills):
        # A ledger of its own for each: the moments around its first answer are the interesting ones.
        os.environ["CORESHOT_LEDGER"] = str(folder / f"ledger-{number}" / "ledger.sqlite")
        assert run(folder, out, draws.randint(1, num_lines)) == -signal.SIGKILL
        has_left = out.exists()
        if has_left:
            out.rename(left / f"{number}-first")
        assert run(folder, out, None) == 0
        out.rename(left / f"{number}-second")
        if is_late and has_left and (left / f"{number}-first").read_bytes() != (left / f"{number}-second").read_bytes():
            break


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), "late" in sys.argv)
