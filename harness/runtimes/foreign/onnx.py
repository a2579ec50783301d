"""Take an ONNX file that others exported in the place of an export of ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx

from harness.core.errors import StageError, first_line
from harness.core.foreign_files import bring, check_whole
from harness.core.onnx_header import read_header
from harness.core.outcome import Outcome
from harness.core.probes import save_probes
from harness.engine.export_files import GRAPH, MODEL, PROBES
from harness.measure.name_map import Names, match
from harness.runtimes.foreign.lineup import Network, line_up
from harness.runtimes.pytorch.export import Exported, quiet


def take_onnx(path: Path, network: Network, folder: Path) -> Exported:
    """Bring the file at `path` to `folder`, and line it up with the network.

    Args:
        path: Of the ONNX file; it is not changed.
        network: As the suite has it; its component's `taken` maps names.
        folder: Empty; gets the files an export would leave, and the names.

    Raises:
        StageError: onnx.checker refuses the file, or a file beside it is too short.
        SuiteError: Its names are not the recipe's.

    """
    component = network.component
    header = read_header(path)
    names = match(component, path.name, header.inputs, header.outputs)
    check_whole(path, "onnx", component.name)
    bring(path, "onnx", folder, MODEL)
    try:
        onnx.checker.check_model(str(folder / MODEL))
    except (onnx.checker.ValidationError, OSError) as error:
        reason = first_line(error)
        msg = f"{component.name}: onnx.checker refuses {path.name}: {reason}."
        raise StageError(msg, outcome=Outcome.LOAD) from error
    return _lined_up(folder / MODEL, names, network, folder)


def line_up_converted(taken: Path, network: Network, folder: Path) -> Exported:
    """Line up a converted file with the network; `folder` gets no model.

    Args:
        taken: Folder of the store that holds the file, its names and its graph.
        network: As the suite has it.
        folder: Empty.

    """
    names = Names.load(taken)
    if names is None:
        msg = f"{taken} holds no names."
        raise StageError(msg, outcome=Outcome.LOAD)
    return _lined_up(taken / GRAPH, names, network, folder)


def _lined_up(graph: Path, names: Names, network: Network, folder: Path) -> Exported:
    with quiet():
        outputs = {known: name for name, known in names.compared.items()}
        found = line_up(graph, network, outputs)
    replace(names, by=found.by).save(folder)
    save_probes(found.probes, folder / PROBES)
    return Exported(program=found.program, probes=found.probes)
