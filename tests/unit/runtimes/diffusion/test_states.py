"""A scheduler's memory on the disk is data alone, and the same to the bit."""

import math

import msgspec
import numpy as np
import pytest
import torch

from harness.core.errors import StoreError
from harness.core.received import DamagedError
from harness.plugins.pipelines.drawing.reference import load_reference
from harness.plugins.pipelines.drawing.states import load_states, save_states

STATE = {
    "timesteps": torch.arange(5),
    "sigmas": torch.rand(5, dtype=torch.float64),
    "model_outputs": [None, torch.rand(1, 4, 2, 2)],
    "pair": (torch.tensor(True), 2, (1.5, "text")),
    "lower_order_nums": 1,
    "last": -math.inf,
    "none": None,
    "yes": True,
    "empty": torch.empty(0, 3),
    "scalar": torch.tensor(2.5),
}


def same(one, two):
    if isinstance(one, torch.Tensor):
        return one.dtype == two.dtype and torch.equal(one, two)
    if isinstance(one, list | tuple):
        return type(one) is type(two) and all(map(same, one, two))
    return type(one) is type(two) and one == two


def test_a_memory_comes_back_as_it_was(tmp_path):
    arrays = {"latents": np.zeros(3)}
    save_states([STATE, {}], arrays, tmp_path)
    first, second = load_states(arrays, tmp_path)
    assert first.keys() == STATE.keys()
    assert [name for name in STATE if not same(STATE[name], first[name])] == []
    assert second == {}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(msgspec.msgpack.encode({"a": 1}), id="no-list"),
        pytest.param(
            msgspec.msgpack.encode([{"a": {"type": "tensor", "at": 9}}]), id="no-tensor"
        ),
        pytest.param(b"\x91" * 100_000, id="too-deep"),
    ],
)
def test_a_damaged_memory_is_a_clause(tmp_path, content):
    (tmp_path / "states.msgpack").write_bytes(content)
    with pytest.raises(DamagedError):
        load_states({}, tmp_path)


def test_a_pickled_memory_is_not_read(tmp_path):
    """It was, until a shared store could bring one."""
    np.savez(tmp_path / "reference.npz", latents=np.zeros(1))
    torch.save([], tmp_path / "states.pt")
    with pytest.raises(StoreError, match="no readable drawing"):
        load_reference(tmp_path, {"settings": {}, "seen": []})
