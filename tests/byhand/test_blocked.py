"""Matrices in blocks: what LAPACK finds, and the same bits whatever the number of cores and of BLAS threads."""

import numpy as np
import pytest
import scipy.linalg
from threadpoolctl import threadpool_info, threadpool_limits

import coreshot
from coreshot.errors import CoreshotError
from coreshot.fitted.adapting import adapt_to_records
from coreshot.models import parallel
from coreshot.spectral import blocked
from coreshot.spectral.blocked import add_gram, factorise, factorise_alone, invert_factor, mirror
from coreshot.study import Study


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(blocked, "BLOCK", 16)


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(90, 53))


def everything(rows):
    gram = np.eye(53)
    add_gram(gram, rows)
    mirror(gram)
    factor = factorise(gram.copy())
    return gram, factor, invert_factor(factor), factorise_alone(gram.copy())


def test_what_lapack_finds(rows):
    gram, factor, inverse, alone = everything(rows)
    np.testing.assert_allclose(gram, np.eye(53) + rows.T @ rows, rtol=1e-12)
    assert np.array_equal(gram, gram.T)
    np.testing.assert_allclose(factor, scipy.linalg.cholesky(gram, lower=True), atol=1e-10)
    np.testing.assert_allclose(inverse @ factor, np.eye(53), atol=1e-10)
    np.testing.assert_allclose(factor, alone, atol=1e-10)
    for one in (factor, alone):
        assert not np.any(np.triu(one, 1))
        assert one.flags.c_contiguous
    with pytest.raises(np.linalg.LinAlgError):
        factorise(gram - 1000 * np.eye(53))


def test_the_same_bits_on_any_number_of_cores(rows, monkeypatch):
    found = []
    for num_cores, num_threads in ((1, 1), (3, 2)):
        monkeypatch.setattr(blocked, "num_cores", lambda count=num_cores: count)
        with threadpool_limits(num_threads):
            found.append([array.tobytes() for array in everything(rows)])
    assert found[0] == found[1]


def test_the_limit_holds_while_anybody_needs_it():
    def threads():
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    with threadpool_limits(2, "blas"):
        before = threads()
        with parallel.one_blas_thread():
            with parallel.one_blas_thread():
                assert threads() == {1}
            assert threads() == {1}
        assert threads() == before


@pytest.mark.parametrize("method", ["glm", "spectral"])
def test_a_site_adapts_with_one_blas_thread(method, monkeypatch):
    """Its matrices are small: on two cores, threads that wait for each other took fourteen times as long."""
    seen = []

    def threads():
        return max(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")

    def stop(*_):
        seen.append(threads())
        raise CoreshotError("seen")

    study = coreshot.table_study("t", num_inputs=2, num_classes=2)
    if method == "spectral":
        monkeypatch.setattr("coreshot.spectral.posterior.LinearPosterior.adapted_to", stop)
        features = {"name": "random_vector", "dimension": 8}
        study = Study.from_dict({**study.to_dict(), "method": {"name": "spectral", "features": features}})
    else:
        monkeypatch.setattr("coreshot.glm.posterior.GlmPosterior.adapted_to", stop)
    draws = np.random.default_rng(0)
    x, y = draws.uniform(size=(60, 2)), draws.integers(2, size=60)
    model = coreshot.fit(study, [coreshot.distill(study, x, y, client="a")])
    with threadpool_limits(2, user_api="blas"):
        assert threads() == 2
        with pytest.raises(CoreshotError, match="seen"):
            adapt_to_records(model, x, y)
    assert seen == [1]
