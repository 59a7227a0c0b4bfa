"""At a site: leave a mark and send the records back. At the SuperLink: print what has come."""

import os
import time
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

client = ClientApp()
server = ServerApp()


@client.train()
def steal(message: Message, context: Context) -> Message:
    (Path(str(context.run_config["mark"])) / str(os.getpid())).touch()
    records = np.load(str(context.node_config["data-path"]))["x"]
    return Message(RecordDict({"loot": ConfigRecord({"records": records.ravel().tolist()})}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    until = time.monotonic() + 60
    while len(list(grid.get_node_ids())) < int(context.run_config["sites"]) and time.monotonic() < until:
        time.sleep(0.2)
    asked = [Message(RecordDict(), node, MessageType.TRAIN, ttl=60.0) for node in grid.get_node_ids()]
    for reply in grid.send_and_receive(asked, timeout=60):
        print("LOOT", reply.error.reason if reply.has_error() else reply.content["loot"]["records"], flush=True)
