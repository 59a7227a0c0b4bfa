"""Faults of a site. Every Python process of a site whose PYTHONPATH has this folder loads this file.

FAULT=raise   its work raises an error that quotes a record
FAULT=hang    its work hangs for as long as the file FAULT_GATE exists
FAULT=forge   it answers with the coreset of another study
FAULT_MARK    a file that gets a line whenever its work begins
"""

import os
import sys
import time

import whole_entries  # as tests/processes/sitecustomize.py, in whose place this is loaded

whole_entries.install()
FAULT = os.environ.get("FAULT", "")

if sys.orig_argv[1:3] == ["-m", "coreshot.runtime.worker_main"]:
    if "FAULT_MARK" in os.environ:
        with open(os.environ["FAULT_MARK"], "a") as marks:
            marks.write("began\n")
    while FAULT == "hang" and os.path.exists(os.environ["FAULT_GATE"]):
        time.sleep(0.1)
    if FAULT == "raise":
        from coreshot.methods import OneShot

        def reply(*arguments):
            raise RuntimeError("record 42 has the secret value 1234")

        OneShot.reply = reply

if FAULT == "forge" and "coreshot.flower.site_main" in sys.orig_argv:
    from coreshot.flower import messages as flower_messages

    original = flower_messages.pack, flower_messages.unpack

    def unpack(data):
        header, arrays = original[1](data)
        return {**header, "study": "0" * 64}, arrays

    flower_messages.unpack = unpack
