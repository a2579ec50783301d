"""What keys are made from: a test moves one part of it."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

from harness.core.digest import digest_value
from harness.core.groups import Group
from harness.core.rounding import Trials
from harness.core.runtime import runtime, runtimes
from harness.engine import keys, tasks
from harness.engine.store import Store
from harness.plugins.pipelines.entries import DRAWING, DRAWING_INPUTS
from harness.plugins.pipelines.keys import drawing_inputs, drawing_question
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
    inputs = given.inputs

    def group():
        return Group(shapes=given.shapes, samples=())

    def deployed(name):
        variant, native = (
            replace(given.variant, backend=name),
            keys.Native(given.native),
        )
        return tasks.DEPLOYED.key(variant, given.graph, native, given.calibration)

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
        "inputs": lambda: tasks.INPUTS.key(keys.whole(given.component), given.sample),
        "onnx": lambda: tasks.GRAPH.key(
            *tasks.graph_of(given.component, given.settings, group())
        ),
        "foreign onnx": lambda: tasks.GRAPH.key(
            *tasks.graph_of(given.foreign, given.settings, group())
        ),
        "program": lambda: tasks.PROGRAM.key(
            given.component, given.settings, given.traced
        ),
        "reference": lambda: tasks.REFERENCE.key(
            given.graph_key, inputs, given.device, given.layers
        ),
        "input sensitivity": lambda: tasks.ASKED.key(
            *tasks.asked_of(given.component, given.shapes, given.device)
        ),
        "graph check": lambda: tasks.CHECKED.key(given.component, given.graph),
        "effects": lambda: tasks.OUTPUT_EFFECTS.key(trials, given.values),
        "weights": lambda: tasks.WEIGHTS.key(given.component),
        **{name: partial(deployed, name) for name in runtimes()},
        "foreign mnn": lambda: tasks.TAKEN.key(
            keys.converted(given.foreign, "mnn"), runtime("mnn")
        ),
        "drawing inputs": lambda: DRAWING_INPUTS.key(drawing_inputs(given.pipeline)),
        "drawing": lambda: DRAWING.key(given.pipeline, inputs, given.device),
        "question": lambda: {"q": keys.question(given.component, given.sample)},
        "drawing question": lambda: {"q": drawing_question(given.pipeline)},
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
