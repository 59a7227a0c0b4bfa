"""The client's side: points -> coreset. A new learner is one file and one line here."""

from typing import Any

from coreshot.learners.baselines import ClassMean, Everything, Noise, RandomSubset, RawImages
from coreshot.learners.bpc_fkl import BpcFkl
from coreshot.learners.bpc_rkl import BpcRkl
from coreshot.learners.bpc_w import BpcW
from coreshot.learners.dm import Dm
from coreshot.learners.fbpc import Fbpc
from coreshot.learners.gradient_matching import GradientMatching
from coreshot.learners.private_bpc_fkl import PrivateBpcFkl as PrivateBpcFkl
from coreshot.learners.private_dm import PrivateDm as PrivateDm
from coreshot.learners.protocol import Learner as Learner
from coreshot.learners.start_only import StartOnly
from coreshot.learners.vbpc import Vbpc

LEARNERS: dict[str, type[Any]] = {
    "bpc_fkl": BpcFkl,
    "bpc_rkl": BpcRkl,
    "bpc_w": BpcW,
    "fbpc": Fbpc,
    "vbpc": Vbpc,
    "dm": Dm,
    "gradient_matching": GradientMatching,
    "everything": Everything,
    "private_bpc_fkl": PrivateBpcFkl,
    "private_dm": PrivateDm,
    "random_subset": RandomSubset,
    "raw_images": RawImages,
    "class_mean": ClassMean,
    "noise": Noise,
    "start_only": StartOnly,
}
