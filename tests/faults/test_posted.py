"""Some planted faults become folders to post; the command tries them all."""

import pytest

from harness.engine.store import Store
from harness.plugins.explain import post
from tests.faults.catalogue import FAULTS
from tests.faults.posted import NEVER, PlantedEngine, posted

OF = {fault.name: fault for fault in FAULTS}


@pytest.fixture
def engine(digits, shared_store, monkeypatch):
    """What plants faults, and leaves out little."""
    monkeypatch.setattr(post, "SEARCH_S", 3.0)
    with PlantedEngine(Store(root=shared_store), digits.limits) as engine:
        yield engine


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "backend"),
    [("gelu-tanh", "onnxruntime"), ("zeros", "mnn"), ("wrong-fusion", "onnxruntime")],
)
def test_a_fault_becomes_a_small_folder(digits, engine, tmp_path, name, backend):
    found = posted(digits, engine, OF[name], backend, tmp_path / "post")

    assert found.why == ""


def test_what_can_never_be_posted_is_a_runtime_fault():
    assert {OF[name].family for name in NEVER} == {"runtime"}
