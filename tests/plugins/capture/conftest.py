"""A place for runs of live modules, with the store that all tests share."""

import pytest
import torch


@pytest.fixture
def place(tmp_path, shared_store, monkeypatch):
    """A folder of its own, as the current one."""
    monkeypatch.setenv("PARITY_STORE", str(shared_store))
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    return tmp_path
