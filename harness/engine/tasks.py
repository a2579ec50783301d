"""Names of the functions that worker processes run, and the imports of each host.

The engine names them and never imports them, so that it loads no framework. A name is
``module:function``; the worker process resolves it.
"""

from __future__ import annotations

from typing import Final

from harness.core.case import AT
from harness.core.runtime import runtime
from harness.suite.forecast import CONVERT

PREPARE: Final = "harness.runtimes.pytorch.prepare:prepare"
"""Draws, exports and records what is missing for one component (`torch`)."""

DRAW_INPUTS: Final = "harness.runtimes.pytorch.prepare:draw_inputs"
"""Draws inputs of one component and runs nothing (`torch`)."""

PREPARE_GIVEN: Final = "harness.runtimes.foreign.onnx_reference:prepare_given"
"""Like `PREPARE`, for an ONNX file that is its own reference (`onnxruntime`)."""

MEASURE_SELF: Final = "harness.runtimes.pytorch.self_error:measure_self"
"""Measures PyTorch's own error in fewer bits for one component (`torch`)."""

LOSSES: Final = "harness.runtimes.foreign.onnx_reference:losses_in"
"""Finds what float16 would lose of a graph's values (ONNX Runtime's own host)."""

CHECK_GRAPH: Final = "harness.runtimes.pytorch.prepare:check"
"""Compares a graph with its PyTorch module and runs neither (`torch`)."""

WEIGH: Final = "harness.runtimes.pytorch.prepare:weigh"
"""Returns the bytes of a component's weights and draws none (`torch`)."""

FIND_IMPORTS: Final = "harness.runtimes.pytorch.imports:find_imports"
"""Builds one component, and returns the files of code that ran (`torch`)."""

DEPLOY: Final = "harness.runtimes.graph.deploy:deploy"
"""Makes one variant's deployed file and returns the seconds taken (`convert-*`)."""

EVALUATE: Final = "harness.runtimes.graph.evaluated:evaluate"
COMPARE_REMADE: Final = "harness.runtimes.graph.remade:compare"
"""Compares an entry of a store with the same entry, made anew (`torch`)."""

CUT_EXCERPT: Final = "harness.runtimes.graph.excerpt:cut_excerpt"
"""Cuts the operators around one value out of an exported graph (`convert-*`)."""

REDRAW_EXCERPT: Final = "harness.runtimes.graph.redraw:redraw_excerpt"
"""Gives an excerpt other weights, inputs and sizes (`convert-*`)."""

RUN_CANDIDATE: Final = "harness.runtimes.candidate.candidate:run_candidate"
"""Runs a deployed file and compares it meanwhile (the runtime's own host)."""

WRITE_BUNDLE: Final = "harness.runtimes.target.bundle:write_bundle"
"""Runs a deployed file and records what another machine has to run (as above)."""

RUN_ISOLATED: Final = "harness.runtimes.candidate.operators:run_isolated"
"""Runs operators on the reference's own inputs (the runtime's own host)."""

DRAW_REFERENCE: Final = "harness.runtimes.diffusion.worker:draw_reference"
"""Draws a pipeline with PyTorch alone and returns the seconds taken (`torch`)."""

DRAW_SELF: Final = "harness.runtimes.diffusion.self_error:draw_self"
"""Measures PyTorch's own pictures in fewer bits for one pipeline (`torch`)."""

RUN_PIPELINE: Final = "harness.runtimes.diffusion.worker:run_pipeline"
"""Draws with deployed files in a pipeline and compares (`torch`)."""

OUTPUT_EFFECTS: Final = "harness.runtimes.pytorch.rounded:output_effects"
"""Rounds weights of PyTorch's network, and measures its outputs (`torch`)."""

DRAWING_EFFECTS: Final = "harness.runtimes.diffusion.rounded:drawing_effects"
"""Rounds weights of one role of a pipeline, and measures drawings (`torch`)."""

OPEN_FILE: Final = "harness.commands.doctor.app:open_file"
"""Opens a deployed file and runs nothing (the runtime's own host)."""

TIME_TURN: Final = "harness.commands.bench.worker:time_turn"
"""Times a component (its runtime's host) or a pipeline (`torch`) once."""

CLOCK_OPERATORS: Final = "harness.commands.bench.worker:clock_operators"
"""Times the operators of a deployed file (the runtime's own host)."""

# A job is a fork, so the next job does not have what it imports. What most jobs import
# is imported here: networks of diffusers (by `diffusion.worker`) and of transformers,
# and what the exporter needs.
_PYTORCH: Final = (
    "harness.runtimes.pytorch.prepare",
    "harness.runtimes.diffusion.worker",
    "transformers",
    "onnxscript",
    # The comparison is not compiled here: an export does not wait for it. The runtime's
    # host compiles it meanwhile, and a job loads it from numba's cache.
    "harness.measure.kernel",
)
_CONVERTS: Final = ("harness.runtimes.graph.deploy", "harness.runtimes.graph.excerpt")
_COMPARES: Final = "harness.measure.precompile"


def preload(host: str) -> tuple[str, ...]:
    """Return the modules that a host imports once, before it forks a process per job.

    Args:
        host: ``torch``, a runtime's name, that and ``@`` and a target's name, or
            ``convert-`` and a runtime's name.

    """
    if host == "torch":
        return _PYTORCH
    if host.startswith(CONVERT):
        return (*_CONVERTS, *runtime(host.removeprefix(CONVERT)).preload)
    name, at, _ = host.partition(AT)
    declared = runtime(name)
    # A runtime that runs on a target is not used here, and may not be installed here.
    # What it would print here about this processor would be misread as the target's.
    driver = () if at or not declared.driver else (declared.driver,)
    session = f"{declared.package}.session"
    return (*driver, session, "harness.runtimes.candidate.candidate", _COMPARES)
