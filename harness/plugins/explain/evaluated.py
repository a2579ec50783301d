"""Run an excerpt by ONNX's reference evaluator, which is no runtime.

Where the evaluator gives the reference's values, the file is right and the runtime is
not. Where it gives the error as well, the error is in the file.
"""

from __future__ import annotations

from typing import Any

import onnx
from onnx.reference import ReferenceEvaluator

from harness.core.comparison import Comparison
from harness.core.entry import Entry, check_artifact
from harness.core.errors import StageError, first_line
from harness.core.outcome import Outcome
from harness.engine.export_files import MODEL
from harness.measure.compare import compare
from harness.measure.named_arrays import load_arrays
from harness.measure.trace import OUTPUT, open_trace


def evaluate(entry: Entry) -> Comparison:
    """Compare what the evaluator makes of a stored excerpt with its reference.

    Raises:
        StageError: The evaluator cannot run the excerpt.

    """
    check_artifact(entry)
    model = onnx.load(entry.file(MODEL))
    (output,) = [value.name for value in model.graph.output]
    trace = open_trace(entry.path)
    try:
        made: Any = ReferenceEvaluator(model).run(None, load_arrays(entry.path))
    except Exception as error:  # the evaluator raises anything
        reason = first_line(error)
        msg = f"ONNX's reference evaluator cannot run the excerpt: {reason}."
        raise StageError(msg, outcome=Outcome.RUN) from error
    floor = trace.places[OUTPUT + output].floor_rms
    return compare(expected=trace[OUTPUT + output], actual=made[0], floor_rms=floor)
