"""What modules say of the operators that they are: an epsilon, an axis, a stride.

A file that is aligned module by module has probes of modules, which have no arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvTransposeNd
from torch.nn.modules.instancenorm import _InstanceNorm

from harness.core.probes import Probe
from harness.plugins.weights.attribute_rules import EPSILON

_POOL = ("kernel_size", "stride", "padding", "ceil_mode")
_CONV = ("groups", "stride", "dilation", "padding")
_SETTINGS: dict[type[nn.Module], tuple[str, tuple[str, ...]]] = {
    nn.LayerNorm: ("layer_norm", ("eps", "normalized_shape")),
    nn.GroupNorm: ("group_norm", ("eps", "num_groups")),
    _InstanceNorm: ("instance_norm", ("eps",)),
    _BatchNorm: ("batch_norm", ("eps",)),
    nn.Conv1d: ("conv2d", _CONV),
    nn.Conv2d: ("conv2d", _CONV),
    nn.Conv3d: ("conv2d", _CONV),
    _ConvTransposeNd: ("convolution", (*_CONV, "output_padding")),
    nn.GELU: ("gelu", ("approximate",)),
    nn.Softmax: ("softmax", ("dim",)),
    nn.LogSoftmax: ("log_softmax", ("dim",)),
    nn.GLU: ("glu", ("dim",)),
    nn.LeakyReLU: ("leaky_relu", ("negative_slope",)),
    nn.ELU: ("elu", ("alpha",)),
    nn.CELU: ("celu", ("alpha",)),
    nn.Hardsigmoid: ("hardsigmoid", ()),
    nn.Hardtanh: ("hardtanh", ("min_val", "max_val")),  # ReLU6 is one
    nn.AvgPool1d: ("avg_pool1d", (*_POOL, "count_include_pad")),
    nn.AvgPool2d: ("avg_pool2d", (*_POOL, "count_include_pad")),
    nn.AvgPool3d: ("avg_pool3d", (*_POOL, "count_include_pad")),
    nn.MaxPool1d: ("max_pool1d", (*_POOL, "dilation")),
    nn.MaxPool2d: ("max_pool2d", (*_POOL, "dilation")),
    nn.MaxPool3d: ("max_pool3d", (*_POOL, "dilation")),
    nn.PixelShuffle: ("pixel_shuffle", ("upscale_factor",)),
    nn.GRU: ("gru", ()),
}
"""Kind of module to its operator, and to its attributes that are arguments of that."""

_UPSAMPLES = {
    "nearest": "upsample_nearest2d",
    "linear": "upsample_linear1d",
    "bilinear": "upsample_bilinear2d",
    "trilinear": "upsample_trilinear3d",
    "bicubic": "upsample_bicubic2d",
}

_EPSILONS = ("eps", "variance_epsilon", "epsilon")
"""Names that norms of libraries have for their epsilon."""


def with_settings(module: nn.Module, probes: Sequence[Probe]) -> Iterator[Probe]:
    """Yield probes; the probe of a module names the module's operator.

    Its settings are the module's. The module of a library that has an epsilon, and no
    modules inside, counts as a norm.
    """
    parts = dict(module.named_modules())
    for probe in probes:
        told = _of(parts[probe.name]) if probe.name in parts else None
        if told is None:
            yield probe
            continue
        op, values = told
        settings = tuple(
            (name, list(value) if isinstance(value, tuple) else value)
            for name, value in values.items()
        )
        yield replace(probe, op=f"aten.{op}.default", settings=settings)


def _of(part: nn.Module) -> tuple[str, dict[str, Any]] | None:
    """Return a module's operator and its arguments; None if they are unknown."""
    if isinstance(part, nn.Upsample):
        corners = bool(part.align_corners)
        known = _UPSAMPLES.get(part.mode)
        return (known, {"align_corners": corners}) if known else None
    kind = next((kind for kind in _SETTINGS if isinstance(part, kind)), None)
    if kind is not None:
        op, names = _SETTINGS[kind]
        values = {name: getattr(part, name) for name in names}
        if getattr(part, "padding_mode", "zeros") != "zeros":
            # Another operator pads before the convolution, which then does not.
            values["padding"] = (0,) * len(values["stride"])
        return op, values
    for name in _EPSILONS:
        epsilon: object = getattr(part, name, None)
        if isinstance(epsilon, float) and not list(part.children()):
            return EPSILON, {"eps": epsilon}
    return None
