"""The stages whose entries pipelines have in the store."""

from __future__ import annotations

from typing import Final

from harness.core.outcome import Outcome
from harness.engine import keys
from harness.engine.stage import Stage
from harness.engine.tasks import OUTPUT_EFFECTS
from harness.plugins.pipelines.keys import PICTURES

DRAWING_INPUTS: Final = Stage(
    kind="drawing-inputs",
    takes=("pipeline",),
    code=PICTURES,
    tools=(*keys.DRAWING_TOOLS, *keys.OPENCV),
    notes=("texts",),
)
"""A pipeline's token ids, noise and picture, of `drawing_inputs`."""

DRAWING: Final = Stage(
    kind="drawing",
    takes=("pipeline", "inputs", "device"),
    code=PICTURES,
    tools=keys.DRAWING_TOOLS,
)
"""PyTorch's drawing of a pipeline."""

DRAWN_PAIRS: Final = DRAWING.of(takes=(*DRAWING.takes, "yardstick"))
"""PyTorch's pictures of a batch of pairs of prompt and seed."""

SELF_DRAWN: Final = Stage(
    kind="self",
    takes=(*DRAWING.takes, "dtype", "processor"),
    code=PICTURES,
    tools=keys.DRAWING_TOOLS,
    task="harness.plugins.pipelines.drawing.self_error:draw_self",
    failure=Outcome.REFERENCE,
    seconds="self",
    notes=("samples", "probes", "rows"),
)
"""The errors of PyTorch's own pictures in a dtype."""

DRAWING_EFFECTS: Final = OUTPUT_EFFECTS.of(
    task="harness.plugins.pipelines.drawing.rounded:drawing_effects"
)
"""How far rounded weights of one role of a pipeline move its drawings."""
