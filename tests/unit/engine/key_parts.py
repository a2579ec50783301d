"""What keys are made from: a test moves one part of it."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

from harness.core.digest import digest_value
from harness.core.rounding import Trials
from harness.core.runtime import runtimes
from harness.engine import keys
from harness.engine.store import Store
from tests.places import EXPORTED

SHAPES = (("batch", 2), ("height", 8), ("width", 12))
ONNX, OTHER_ONNX, *_ = EXPORTED.rglob("*.onnx")


def stored(root, data):
    def build(folder):
        (folder / "model.onnx").write_bytes(data)
        return {}

    return Store(root=root).make("onnx", {"data": data.decode()}, build)


def keys_of(given):
    """Return each kind of entry, or of question, to what makes its key."""
    shapes, inputs = dict(given.shapes), given.inputs

    def deployed(name):
        return keys.variant_key(
            given.graph,
            replace(given.variant, backend=name),
            given.native,
            given.calibration,
        )

    trials = Trials(
        backend="mnn",
        component=given.component,
        artifact=given.graph,
        model="model.mnn",
        device=given.device,
        trials=given.trials,
        only=given.only,
    )
    return {
        "inputs": lambda: keys.inputs_key(given.component, given.sample),
        "onnx": lambda: keys.onnx_key(given.component, given.settings, shapes),
        "foreign onnx": lambda: keys.onnx_key(given.foreign, given.settings, shapes),
        "program": lambda: keys.program_key(
            given.component, given.settings, given.traced
        ),
        "reference": lambda: keys.reference_key(
            given.graph_key, inputs, given.device, layers=given.layers
        ),
        "input sensitivity": lambda: keys.asked_key(
            given.component, given.shapes, given.device
        ),
        "graph check": lambda: keys.checked_key(given.component, given.graph),
        "effects": lambda: keys.effects_key(trials, given.values),
        "weights": lambda: keys.weights_key(given.component),
        **{name: partial(deployed, name) for name in runtimes()},
        "foreign mnn": lambda: keys.converted_key(given.foreign, "mnn"),
        "excerpt": lambda: keys.excerpt_key(given.graph, given.reading, given.spot),
        "drawing inputs": lambda: keys.drawing_inputs_key(given.pipeline),
        "drawing": lambda: keys.drawing_key(given.pipeline, inputs, given.device),
        "question": lambda: {"q": keys.question(given.component, given.sample)},
        "drawing question": lambda: {"q": keys.drawing_question(given.pipeline)},
    }


def moved(thing, path, value):
    """Return a copy of a thing with one part of it replaced."""
    name, _, rest = path.partition(".")
    part = getattr(thing, name)
    if rest:
        part = moved(part, rest, value)
    else:
        part = value(part) if callable(value) else value
    if isinstance(thing, SimpleNamespace):
        return SimpleNamespace(**{**vars(thing), name: part})
    return replace(thing, **{name: part})


def digests(given, kind):
    return digest_value(keys_of(given)[kind]())
