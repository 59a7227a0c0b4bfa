"""One-shot federated learning: each site sends one small file, and the server fits one calibrated model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coreshot.api import distill as distill
    from coreshot.api import read_records as read_records
    from coreshot.errors import CoreshotError as CoreshotError
    from coreshot.estimator import SpectralClassifier as SpectralClassifier
    from coreshot.estimator import SpectralRegressor as SpectralRegressor
    from coreshot.experiments.preset import load_preset as load_preset
    from coreshot.fitted.model import FittedModel as FittedModel
    from coreshot.fitted.model import fit as fit
    from coreshot.inference.registry import Hmc as Hmc
    from coreshot.inference.registry import MapEstimate as MapEstimate
    from coreshot.inference.registry import Nuts as Nuts
    from coreshot.study import Study as Study
    from coreshot.study.arrays import image_study as image_study
    from coreshot.study.arrays import table_study as table_study
    from coreshot.study.file import read_study as read_study

    __version__: str

# The module of each public name. It is imported at first use, so that `coreshot --help` does not wait for jax.
_HOMES = {
    "FittedModel": "fitted.model",
    "distill": "api",
    "read_records": "api",
    "fit": "fitted.model",
    "CoreshotError": "errors",
    "SpectralClassifier": "estimator",
    "SpectralRegressor": "estimator",
    "Hmc": "inference.registry",
    "MapEstimate": "inference.registry",
    "Nuts": "inference.registry",
    "load_preset": "experiments.preset",
    "Study": "study",
    "image_study": "study.arrays",
    "read_study": "study.file",
    "table_study": "study.arrays",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("coreshot")
    if name not in _HOMES:
        raise AttributeError(f"module 'coreshot' has no attribute {name!r}")
    return getattr(import_module(f"coreshot.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
