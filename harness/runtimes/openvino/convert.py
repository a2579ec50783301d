"""Convert ONNX to OpenVINO's own format, with weights in the variant's dtype."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import openvino as ov

from harness.core.case import Component, Variant
from harness.core.contract import Sides, breach
from harness.core.errors import StageError, first_line
from harness.core.onnx_ports import Port
from harness.core.outcome import Outcome
from harness.core.probes import Probe
from harness.runtimes.openvino import MODEL

if TYPE_CHECKING:
    import numpy as np


def convert(
    source: Path,
    variant: Variant,
    folder: Path,
    *,
    component: Component,
    probes: Sequence[Probe],
    native: str | None,
    calibration: Sequence[Mapping[str, np.ndarray]] = (),
) -> dict[str, object]:
    """Write the variant of the ONNX file at `source` to `folder`.

    ``fp16`` stores weights in float16, as OpenVINO's own ``ovc`` does by default.
    ``int8-weights`` is nncf's compression of weights, with a scale for each channel.

    Raises:
        StageError: OpenVINO cannot read the graph, nncf is not installed, a flag is
            given, or the file's inputs or outputs are not those of the component.

    """
    del probes, native, calibration
    if variant.flags:
        msg = f"openvino's variants take no flags, got {' '.join(variant.flags)}."
        raise StageError(msg, outcome=Outcome.CONVERT)
    try:
        # This reads ONNX files; `convert_model` would also report to a server.
        model = ov.Core().read_model(source)
    except RuntimeError as error:
        msg = f"{component.name}: OpenVINO refuses the graph: {first_line(error)}."
        raise StageError(msg, outcome=Outcome.CONVERT, log=str(error)) from error
    sides = Sides(
        inputs=tuple(map(_found, model.inputs)),
        outputs=tuple(map(_found, model.outputs)),
    )
    if words := breach(component, None, sides, where="OpenVINO's model"):
        raise StageError(words, outcome=Outcome.CONVERT)
    if variant.kind == "int8-weights":
        model = _compressed(model, component)
    ov.save_model(model, folder / MODEL, compress_to_fp16=variant.kind == "fp16")
    return {"openvino": ov.__version__}


def _compressed(model: ov.Model, component: Component) -> ov.Model:
    os.environ.setdefault("NNCF_CI", "1")  # else it reports its use to a server
    try:
        import nncf
    except ModuleNotFoundError as error:
        msg = (
            f"{component.name}: int8-weights of openvino needs the package nncf, which "
            "is not installed (pip install nncf)."
        )
        raise StageError(msg, outcome=Outcome.UNAVAILABLE) from error
    with contextlib.redirect_stdout(io.StringIO()):  # it draws a table
        return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)


def _found(port: Any) -> Port:
    sizes = port.get_partial_shape()
    shape = None
    if sizes.rank.is_static:
        shape = tuple(size.get_length() if size.is_static else "" for size in sizes)
    dtype = port.get_element_type().to_dtype().name
    return Port(name=port.get_any_name(), dtype=dtype, shape=shape)
