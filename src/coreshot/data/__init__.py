"""Private data as points, and the tasks that come with coreshot."""

from coreshot.data.federated import FederatedData as FederatedData
from coreshot.data.federated import Kind as Kind
from coreshot.data.synthetic import Moons, Regression

TASKS = {"regression": Regression, "moons": Moons}
