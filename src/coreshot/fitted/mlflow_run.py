"""A fitted model as a run of MLflow: what was agreed, who took part, what is promised, what was measured, the files.

Where it is logged to is MLflow's own affair (MLFLOW_TRACKING_URI, or a folder here). A model that was adapted at a site
is made of its records, without noise, so it is not logged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from coreshot.errors import CoreshotError
from coreshot.fitted.folder import ModelFolder
from coreshot.privacy.promise import promise

LONGEST = 500  # letters of a value that MLflow keeps


def log_run(folder: ModelFolder, experiment: str, measured: Mapping[str, float], files: Sequence[Path]) -> str:
    """The identifier of the run."""
    if folder.local is not None:
        raise CoreshotError(
            f"export --mlflow: {folder.path} was adapted at a site, and stays there; log the federation's."
        )
    try:
        import mlflow
    except ImportError:
        raise CoreshotError(
            "export --mlflow: the package mlflow is not there; install it with `pip install coreshot[mlflow]`."
        ) from None
    study = folder.study_file.study
    params = {
        "study": study.hash,
        "task": study.agreement.task,
        "kind": study.agreement.kind,
        "method": type(study.method).__name__,
        "numbers": folder.posterior,
        "num_clients": len(folder.clients),
        "clients": ", ".join(folder.clients)[:LONGEST],
        "promise": promise(study.releases)[:LONGEST],
    }
    mlflow.set_experiment(experiment)
    with mlflow.start_run(run_name=study.agreement.task) as run:
        mlflow.log_params(params)
        mlflow.log_metrics(dict(measured))
        mlflow.log_text(folder.study_file.text, "study.toml")
        for file in files:
            mlflow.log_artifact(str(file))
        return str(run.info.run_id)
