"""One-shot federated learning with Bayesian pseudocoresets."""

from coreshot.api import FittedModel as FittedModel
from coreshot.api import distill as distill
from coreshot.api import fit as fit
from coreshot.errors import CoreshotError as CoreshotError
from coreshot.estimator import SpectralClassifier as SpectralClassifier
from coreshot.estimator import SpectralRegressor as SpectralRegressor
from coreshot.inference import Hmc as Hmc
from coreshot.inference import MapEstimate as MapEstimate
from coreshot.inference import Nuts as Nuts
from coreshot.preset import load_preset as load_preset
from coreshot.study import Study as Study
from coreshot.study_file import read_study as read_study
