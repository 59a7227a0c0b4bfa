"""Private data as points, and the tasks that come with coreshot."""

from coreshot.data.digits import Digits
from coreshot.data.federated import FederatedData as FederatedData
from coreshot.data.federated import Task as Task
from coreshot.data.federated_task import Federated
from coreshot.data.handwriting.tasks import Emnist62, Unipen62
from coreshot.data.synthetic import Moons, Regression

TASKS = {
    "regression": Regression,
    "moons": Moons,
    "digits": Digits,
    "emnist62": Emnist62,
    "unipen62": Unipen62,
    "federated": Federated,
}
