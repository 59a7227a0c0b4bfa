"""Networks, log densities (always maximised, so that signs are in one place) and training loops."""

from coreshot.models.model import LogDensity as LogDensity
from coreshot.models.model import Model as Model
from coreshot.models.networks import NETWORKS as NETWORKS
from coreshot.models.networks import ConvNet as ConvNet
from coreshot.models.networks import Mlp as Mlp
from coreshot.models.networks import Network as Network
