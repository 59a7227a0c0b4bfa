"""Faults of a site. Every Python process of a site whose PYTHONPATH has this folder loads this file.

The environment's FAULT names a file, which may come and go while the site runs. It says what is wrong at present:

raise   its work raises an error that quotes a record
hang    its work hangs for as long as the file says so
forge   it answers with the coreset of another study

The file with the suffix .began gets a line whenever the site's work begins.
"""

import os
import sys
import time

import whole_entries  # as tests/processes/sitecustomize.py, in whose place this is loaded

whole_entries.install()


def fault():
    try:
        with open(os.environ["FAULT"]) as file:
            return file.read()
    except FileNotFoundError:
        return ""


if sys.orig_argv[1:3] == ["-m", "coreshot.runtime.worker_main"]:
    with open(os.environ["FAULT"] + ".began", "a") as marks:
        marks.write("began\n")
    while fault() == "hang":
        time.sleep(0.1)
    if fault() == "raise":
        from coreshot.methods import OneShot

        def reply(*arguments):
            raise RuntimeError("record 42 has the secret value 1234")

        OneShot.reply = reply

if "coreshot.flower.site_main" in sys.orig_argv:
    from coreshot.flower import messages as flower_messages

    original = flower_messages.unpack

    def unpack(data):
        header, arrays = original(data)
        return {**header, "study": "0" * 64} if fault() == "forge" else header, arrays

    flower_messages.unpack = unpack
