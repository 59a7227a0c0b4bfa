"""SIGKILL at random moments of private `distill` commands: python kill_distill.py FOLDER SEED NUM_KILLS [late]

FOLDER has study.toml and site.csv. Each command runs in a forked process with a process group of its own, and says when
it begins to look into its ledger. A random time later, drawn from the time that an undisturbed command takes from there
on, this process kills the group: in Python, inside of SQLite, or in the operating system. Two of ten kills wait for the
ledger's journal or for the file. Reading the records and the computing are replaced, the second by a draw of noise
alone. After each kill the file that is there has left: it is taken away, and the same command comes again. FOLDER/left
holds all that left, FOLDER/journals how many kills fell into a transaction of SQLite. With `late`, the order is wrong
on purpose: the file is written before the ledger; it ends with the first kill that shows it.
"""

import gc
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import rich.console  # all that a command imports is imported before the first fork
import rich.table

import coreshot.api
import coreshot.cli.distill as command
import coreshot.runtime.compilation
import coreshot.runtime.resumable
import coreshot.wire.signatures
from coreshot.privacy.promise import promise
from coreshot.privacy.release_ledger import ReleaseLedger
from coreshot.runtime.site_answers import SiteAnswers
from coreshot.study import site_records
from coreshot.study.file import read_study
from coreshot.types import Points
from coreshot.wire.messages import Message, encode_message

IMPORTED = (
    rich.console,
    rich.table,
    coreshot.runtime.compilation,
    coreshot.runtime.resumable,
    coreshot.wire.signatures,
)


def compute(study, points, client, *options):
    arrays = {"noise": np.frombuffer(os.urandom(64), np.uint8)}
    return encode_message(Message("coreset", 0, arrays), study_hash=study.hash, client=client, releases=study.releases)


def read_before(folder):
    """The records are read once, and children start no JAX."""
    study = read_study(folder / "study.toml")
    records = site_records.read_study_records(study, folder / "site.csv")
    points = Points(np.asarray(records.x), np.eye(2)[np.asarray(records.y, int)], np.ones(len(records.x)))
    command._read = lambda *arguments: records
    command.report_records = lambda *arguments: None
    site_records.check_study_points = lambda *arguments: points
    promise(study.releases)  # calibrated and computed once, for all processes


def start(folder, out):
    """The number of a process that runs one command, once it looks into its ledger."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        return child
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    send_once = SiteAnswers.send_once

    def announced(*arguments):
        os.write(writer, b"!")
        return send_once(*arguments)

    SiteAnswers.send_once = announced
    try:
        command.distill(folder / "study.toml", folder / "site.csv", out)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)
    os._exit(0)


def wait(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(folder, out):
    """An undisturbed command: its seconds from the look into the ledger on."""
    child, began = start(folder, out), time.monotonic()
    assert wait(child) == 0
    return time.monotonic() - began


def await_file(path, out):
    """Until it is there, or too late."""
    until = time.monotonic() + 10
    while not path.exists() and not out.exists() and time.monotonic() < until:
        pass


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


def name_ledger(folder, number):
    path = folder / f"ledger-{number}" / "ledger.sqlite"
    os.environ["CORESHOT_LEDGER"] = str(path)
    return path


def main(folder, seed, num_kills, is_late):
    coreshot.api.distill_points = compute
    read_before(folder)
    gc.freeze()
    draws, out, left, journals, times, number = random.Random(seed), folder / "site.coreset", folder / "left", 0, [], 0
    left.mkdir()
    for trial in range(5):
        os.environ["CORESHOT_LEDGER"] = str(folder / f"undisturbed-{trial}" / "ledger.sqlite")
        times.append(run(folder, folder / f"undisturbed-{trial}.coreset"))
    if is_late:
        write_late(out)
    while number < num_kills:
        # A ledger of its own for each: the moments around its first answer are the interesting ones.
        ledger = name_ledger(folder, number)
        journal = ledger.with_name("ledger.sqlite-journal")
        child = start(folder, out)
        # Some times are chosen, since on a fast disk a random one seldom meets them.
        if number % 10 in (4, 9):
            await_file(out if number % 10 == 9 else journal, out)
        else:
            time.sleep(draws.random() * sorted(times)[2])
        os.killpg(child, signal.SIGKILL)
        if wait(child) != -signal.SIGKILL:  # it was faster: no kill
            for path in (out, *ledger.parent.glob("*")):
                path.unlink()
            continue
        journals += journal.exists()
        has_left = out.exists()
        if has_left:
            out.rename(left / f"{number}-first")
        run(folder, out)
        out.rename(left / f"{number}-second")
        if is_late and has_left and (left / f"{number}-first").read_bytes() != (left / f"{number}-second").read_bytes():
            break
        number += 1
    (folder / "journals").write_text(str(journals))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), "late" in sys.argv)
