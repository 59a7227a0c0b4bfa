"""Matrices in blocks: what LAPACK finds, and the same bits whatever the number of cores and of BLAS threads."""

import numpy as np
import pytest
import scipy.linalg
from threadpoolctl import threadpool_info, threadpool_limits

from coreshot.models import parallel
from coreshot.spectral import blocked
from coreshot.spectral.blocked import add_gram, factorise, factorise_alone, invert_factor, mirror


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
