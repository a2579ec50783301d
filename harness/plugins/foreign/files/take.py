"""Take files of a runtime's own format into the store."""

from __future__ import annotations

from pathlib import Path

import onnx

from harness.core.case import Component, ForeignModel
from harness.core.errors import StageError, SuiteError
from harness.core.outcome import Outcome
from harness.core.runtime import formats, resolve
from harness.engine.export_files import GRAPH
from harness.plugins.foreign.files.beside import bring, check_whole
from harness.plugins.foreign.files.names import match
from harness.plugins.foreign.files.tables import whose_file


def take(folder: Path, component: Component, kind: str) -> None:
    """Put a component's file of a format, its names and its graph into a folder.

    The graph is written as ONNX, without weights, for `lineup` to read. This runs in
    the process that converts for the runtime.

    Raises:
        StageError: The runtime refuses the file, its weights are not all there, or its
            names are not the recipe's.

    """
    owner = formats()[kind]
    path, own = (component.foreign or ForeignModel()).of(kind), owner.own_format
    if path is None or own is None:
        return
    check_whole(path, kind, component.name)
    bring(path, kind, folder, owner.model)
    inputs, outputs = resolve(own.ports)(folder / owner.model, path)
    try:
        names = match(component, path.name, inputs, outputs, whose=whose_file)
    except SuiteError as error:
        raise StageError(str(error), outcome=Outcome.MISSING) from error
    names.save(folder)
    graph = resolve(own.graph)(
        folder / owner.model, names.own_inputs, names.own_outputs
    )
    onnx.save(graph, folder / GRAPH)
