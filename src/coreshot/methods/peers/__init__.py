"""Other people's one-round heads on the study's features, to compare with on identical features: a file for each."""

from typing import Any

from coreshot.methods.peers.fed_avg_head import FedAvgHead as FedAvgHead
from coreshot.methods.peers.fed_cgs import FedCgs as FedCgs
from coreshot.methods.peers.fed_cof import FedCof as FedCof
from coreshot.methods.peers.fed_ncm import FedNcm as FedNcm
from coreshot.methods.peers.fed_pft import FedPft as FedPft
from coreshot.methods.peers.fed_ridge import FedRidge as FedRidge

PEERS: dict[str, type[Any]] = {
    "fed_avg_head": FedAvgHead,
    "fed_cgs": FedCgs,
    "fed_cof": FedCof,
    "fed_ncm": FedNcm,
    "fed_pft": FedPft,
    "fed_ridge": FedRidge,
}
