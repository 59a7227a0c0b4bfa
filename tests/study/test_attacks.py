"""The attacks of attacks.py fail; at commit 35ec6bb each of them succeeds (see there)."""

import pytest
from attacks import NAMES, Attacks, run


@pytest.fixture(scope="module")
def attacks(tmp_path_factory):
    return lambda: Attacks(tmp_path_factory.mktemp("attacks"), run)


@pytest.mark.parametrize("name", NAMES)
def test_it_fails(attacks, name, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("CORESHOT_NETWORKS", "")  # an attack sets it
    assert not getattr(attacks(), name)()


def test_there_are_ten():
    assert len(NAMES) == 10
