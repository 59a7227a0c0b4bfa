"""The public agreement of a study, and its file."""

from coreshot.study.study import Agreement as Agreement
from coreshot.study.study import Study as Study
