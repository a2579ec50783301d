"""A network's translation is made once, and the store's is equal to the bit."""

import warnings

import pytest
import torch
from torch import nn

from harness.core.case import ExportSettings
from harness.engine.store import Store
from harness.runtimes.foreign.lineup import TracedNetwork, translate_once
from tests.unit.nets import component

EXAMPLE = (torch.linspace(-1.0, 1.0, 8).reshape(2, 4),)
COMPONENT = component("net", {"x": (2, 4)}, ("y",))
CLOSED = ExportSettings(dynamic=())


class Small(nn.Module):
    """Weights, one of them tied, a buffer that is saved and one that is not."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("lost", torch.arange(4.0), persistent=False)

    def forward(self, x):
        return self.norm(self.second(nn.functional.silu(self.first(x)))) + self.lost


@pytest.fixture
def exports(monkeypatch):
    """Counts the exporter's runs."""
    export, ran = torch.onnx.export, []

    def counted(*args, **options):
        ran.append(args[0])
        return export(*args, **options)

    monkeypatch.setattr(torch.onnx, "export", counted)
    return ran


@pytest.fixture
def module():
    torch.manual_seed(0)
    return Small().eval().requires_grad_(requires_grad=False)


def translated(store, module, settings=CLOSED):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return translate_once(
            TracedNetwork(
                module=module,
                copy=module,
                component=COMPONENT,
                settings=settings,
                example=EXAMPLE,
                store=store,
            )
        )


def ran(made, *, double=False):
    values: dict[str, torch.Tensor] = {}
    outputs = made.program.run(EXAMPLE, values.__setitem__, double=double)
    return [*outputs, *values.values()]


def test_the_second_time_nothing_is_exported_and_every_bit_is_the_same(
    module, exports, tmp_path
):
    store = Store(root=tmp_path)
    first, second = translated(store, module), translated(store, module)

    assert len(exports) == 1
    assert second.program.probes == first.program.probes
    assert second.outputs == first.outputs
    assert set(second.outputs.values()) == {"y"}
    for double in (False, True):
        pairs = zip(ran(first, double=double), ran(second, double=double), strict=True)
        assert all(torch.equal(one, two) for one, two in pairs)


def test_other_settings_are_another_translation(module, exports, tmp_path):
    store = Store(root=tmp_path)
    translated(store, module)
    translated(store, module, ExportSettings(dynamic=(), opset=20))

    assert len(exports) == 2


def test_weights_are_not_stored_and_the_module_gives_them(module, tmp_path):
    store = Store(root=tmp_path)
    module.first = nn.Linear(4, 4, bias=False)
    translated(store, module)
    module.first.weight.data.fill_(3.0)

    assert (
        module.norm(module.second(nn.functional.silu(module.first(*EXAMPLE))))
        .add(module.lost)
        .equal(ran(translated(store, module))[0])
    )
