"""The program of a worker process: `python -m coreshot.fitted.shard_worker_main` makes one shard at a time.

It answers jobs from its standard input until that ends: a line of JSON, and the messages of one shard. It writes
nothing to disk.
"""

from __future__ import annotations

import os
import signal
import sys

from coreshot.errors import CoreshotError
from coreshot.fitted.sharded_folder import shard_bytes
from coreshot.runtime.worker_process import read_frame, write_frame
from coreshot.study import Study


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops it
    # What a library prints must not come between the frames.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        while (frame := read_frame(sys.stdin.buffer)) is not None:
            head, parts = frame
            try:
                data = shard_bytes(Study.from_dict(head["study"]), dict(zip(head["names"], parts, strict=True)))
            except CoreshotError as error:
                write_frame(answers, {"kind": "error", "error": str(error)})
            else:
                write_frame(answers, {"kind": "shard"}, [data])


if __name__ == "__main__":
    main()
