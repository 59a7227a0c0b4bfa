"""Every server inference by its name in a preset. A new one is one file and one line here."""

from typing import Any

from coreshot.inference.collapsed_hmc import CollapsedHmc
from coreshot.inference.cyclical import Cyclical
from coreshot.inference.hmc import Hmc
from coreshot.inference.laplace import LastLayerLaplace
from coreshot.inference.map_estimate import MapEstimate
from coreshot.inference.mclmc import Mclmc
from coreshot.inference.nuts import Nuts

INFERENCES: dict[str, type[Any]] = {
    "map_estimate": MapEstimate,
    "hmc": Hmc,
    "collapsed_hmc": CollapsedHmc,
    "nuts": Nuts,
    "mclmc": Mclmc,
    "cyclical": Cyclical,
    "last_layer_laplace": LastLayerLaplace,
}
