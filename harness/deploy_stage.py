"""Stage that makes a variant's deployed file from an exported graph.

Runs in a child process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness import export_files
from harness.convert import convert_mnn
from harness.entry import Entry
from harness.isolate import report_progress
from harness.keys import variant_key
from harness.names import Names
from harness.probes import load_probes
from harness.spec import Component, TensorSpec, Variant
from harness.store import Store


def deploy(
    root: Path,
    component: Component,
    variant: Variant,
    onnx: Entry,
    native: str | None,
) -> float:
    """Make the file if it is missing and return the seconds that took.

    Raises:
        StageError: The converter or the transformation failed.

    """

    def build(folder: Path) -> Mapping[str, object]:
        report_progress(
            f"converting\t{component.name}\t{variant.backend} {variant.name}"
        )
        source = onnx.file(export_files.MODEL)
        names = Names.load(onnx.path)
        if names:
            names.save(folder)
        if variant.backend == "mnn":
            return convert_mnn(
                source,
                variant.kind,
                variant.flags,
                folder,
                component=component.name,
                probes=load_probes(onnx.file(export_files.PROBES)),
                inputs=names.own_inputs if names else ours(component.inputs),
                outputs=names.own_outputs if names else ours(component.outputs),
                native=native,
            )
        from harness.transform import transform_onnx

        transform_onnx(source, variant.kind, folder, variant.flags)
        return {}

    def ours(specs: Sequence[TensorSpec]) -> list[str]:
        return [spec.name for spec in specs]

    start = time.perf_counter()
    Store(root=root).make(variant.backend, variant_key(onnx, variant, native), build)
    return time.perf_counter() - start
