"""Whole algorithms: what the server sends, what clients answer, and what the server infers from the answers.

A new method is one file and one line here.
"""

from typing import Any

from coreshot.methods.dosfl import Dosfl as Dosfl
from coreshot.methods.fed_avg import FedAvg as FedAvg
from coreshot.methods.fed_pa import FedPa as FedPa
from coreshot.methods.glm import Glm as Glm
from coreshot.methods.mime import Mime as Mime
from coreshot.methods.one_shot import OneShot as OneShot
from coreshot.methods.peers import PEERS
from coreshot.methods.private_fed_avg import PrivateFedAvg as PrivateFedAvg
from coreshot.methods.private_pooled_dm import PrivatePooledDm as PrivatePooledDm
from coreshot.methods.private_spectral import PrivateSpectral as PrivateSpectral
from coreshot.methods.spectral import Spectral as Spectral

METHODS: dict[str, type[Any]] = {
    "dosfl": Dosfl,
    "fed_avg": FedAvg,
    "fed_pa": FedPa,
    "glm": Glm,
    "mime": Mime,
    "one_shot": OneShot,
    "private_fed_avg": PrivateFedAvg,
    "private_pooled_dm": PrivatePooledDm,
    "private_spectral": PrivateSpectral,
    "spectral": Spectral,
    **PEERS,  # of other people, to compare with on identical features
}
