"""The server's side: log density -> posterior. Nothing here can import the data."""

from coreshot.inference.hmc import Hmc
from coreshot.inference.map_estimate import MapEstimate
from coreshot.inference.nuts import Nuts
from coreshot.inference.protocol import Inference as Inference

INFERENCES = {"map_estimate": MapEstimate, "hmc": Hmc, "nuts": Nuts}
