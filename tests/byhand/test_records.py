"""Records of glm that are prepared in parts: bit for bit those of copies of all of them in float64."""

import numpy as np
import pytest

from coreshot.glm.filling import Filling
from coreshot.glm.records import CHUNK, prepare
from coreshot.glm.site import sorted_records
from coreshot.glm.winsorising import Limits
from coreshot.types import make_points

PAIRS = ((0, 3), (1, 4))


@pytest.fixture(scope="module", params=[1, 50, 2 * CHUNK + 3])
def points(request):
    """With a column of few values, missing cells, both zeros and records that are equal."""
    draws = np.random.default_rng(0)
    x = draws.normal(size=(request.param, 5)).astype(np.float32)
    x[:, 2] = draws.integers(0, 3, request.param)
    x[:, 3:] = draws.uniform(size=(request.param, 2)) < 0.1
    x[:, :2] *= 1 - x[:, 3:]
    x[::7] = x[0]
    x[::11, 0] = -0.0
    return make_points(x, np.eye(2)[draws.integers(0, 2, request.param)])


def test_the_order_is_the_lexical_one(points):
    x, y = np.asarray(points.x, np.float64), np.asarray(points.y, np.float64)
    order = np.lexsort(np.concatenate([x, y], axis=1).T)
    found = sorted_records(points)
    assert found[0].tobytes() == x[order].tobytes()
    assert found[1].tobytes() == y[order].tobytes()


def test_every_number_is_that_of_a_whole_copy(points):
    x = sorted_records(points)[0]
    limits = Limits.of_records(x, (0, 1, 2), PAIRS)
    moved = limits(x)
    filled = Filling.of_records(moved, PAIRS)(moved)
    records, _, own = prepare(points, (0, 1, 2), PAIRS)
    assert np.array_equal(own.lowest, limits.lowest)
    assert np.array_equal(own.highest, limits.highest)
    assert records.whole.tobytes() == filled.tobytes()
    assert records[3:9].tobytes() == filled[3:9].tobytes()
    center, scale = records.center_and_scale()
    variance = np.var(filled, axis=0)
    assert np.array_equal(center, np.mean(filled, axis=0).astype(np.float32))
    assert np.array_equal(scale[variance > 1e-6], np.sqrt(variance[variance > 1e-6]).astype(np.float32))
