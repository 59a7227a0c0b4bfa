"""The client's side: points -> coreset. A new learner is one file and one line here."""

from coreshot.learners.bpc_fkl import BpcFkl
from coreshot.learners.protocol import Learner as Learner
from coreshot.learners.subset import ClassMean, Everything, Noise, RandomSubset

LEARNERS = {"bpc_fkl": BpcFkl, "everything": Everything, "random_subset": RandomSubset, "class_mean": ClassMean, "noise": Noise}
