"""Why there is no secure sum: what Flower 1.41's SecAgg+ does when a site drops out.

If one of these tests fails after an upgrade, secure sums may have become possible.

Both of its halves, server and clients, in this process: five sites, three of whose shares must come together.
"""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common import recorddict_compat as compat
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key

pytestmark = pytest.mark.usefixtures("as_task")

VECTORS = {node: np.random.default_rng(node).normal(size=20).astype(np.float32) for node in range(10, 15)}
EXAMPLES = {node: 20 + node for node in VECTORS}
PUBLIC_KEYS, SHARES, VECTOR, UNMASK = 1, 2, 3, 4  # its four exchanges


def context_of(node):
    return Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})


def workflow():
    return SecAggPlusWorkflow(num_shares=5, reconstruction_threshold=3)


class Summing:
    """The least that its server half wants of a strategy."""

    total = None

    def configure_fit(self, round, parameters, client_manager):
        return [(SimpleNamespace(node_id=node), FitIns(parameters, {})) for node in VECTORS]

    def aggregate_fit(self, round, results, failures):
        self.total = parameters_to_ndarrays(results[0][1].parameters)[0]
        return results[0][1].parameters, {}


class Sites:
    def __init__(self, missing, since):
        self.missing, self.since, self.exchange = missing, since, 0
        self.contexts = {node: context_of(node) for node in VECTORS}

    def send_and_receive(self, messages, timeout=None):
        self.exchange += 1
        is_there = lambda node: node not in self.missing or self.exchange < self.since  # noqa: E731
        return [self.reply(message) for message in messages if is_there(message.metadata.dst_node_id)]

    def reply(self, message):
        node = message.metadata.dst_node_id
        asked = Message(copy.deepcopy(message.content), node, message.metadata.message_type)
        asked.metadata.__dict__["_message_id"] = "asked"

        def fit(asked, context):
            result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([VECTORS[node]]), EXAMPLES[node], {})
            return Message(compat.fitres_to_recorddict(result, False), reply_to=asked)

        answer = secaggplus_mod(asked, self.contexts[node], fit)
        answer.metadata.__dict__["_src_node_id"] = node
        return answer


def secure_mean(missing=(), since=0):
    context = LegacyContext(context_of(1), strategy=Summing())
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: 1})
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(
        ndarrays_to_parameters([VECTORS[10]]), True
    )
    workflow()(Sites(missing, since), context)
    return context.strategy.total


def mean_of(nodes):
    return sum(EXAMPLES[node] * VECTORS[node] for node in nodes) / sum(EXAMPLES[node] for node in nodes)


def test_it_refuses_a_context_of_the_message_api():
    with pytest.raises(TypeError, match="Expect a LegacyContext, but get Context"):
        workflow()(Sites((), 0), context_of(1))


@pytest.mark.parametrize(
    ("missing", "since", "nodes"),
    [((), 0, range(10, 15)), ((12, 14), VECTOR, (10, 11, 13)), ((12,), UNMASK, range(10, 15))],
)
def test_by_its_old_interface_it_sums_up_to_rounding_also_without_those_who_drop_out_late(missing, since, nodes):
    error = np.abs(secure_mean(missing, since) - mean_of(nodes)).max()
    assert 1e-7 < error < 3e-4  # quantised: not the local runner's bits


@pytest.mark.parametrize("since", [PUBLIC_KEYS, SHARES])
def test_one_site_that_drops_out_early_makes_all_others_fail(since):
    """They are asked for a share of its key, which it never sent."""
    with pytest.raises(KeyError, match="12"):
        secure_mean((12,), since)
