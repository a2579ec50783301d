"""Post the catalogue's faults: does each give a small folder that fails by itself?

    python -m tests.faults.posted [NAMES ...] [--store FOLDER] [--search S]

Each operator and runtime fault is planted in one runtime, and the runtimes take turns.
The fault acts wherever its runtime is used: on digits, on each excerpt, and where the
posted script runs. An operator fault is put into every file that is deployed, but not
into the graph that ONNX's evaluator gets, so it is a fault of the conversion. A runtime
fault stands between the file and whoever runs it.

It counts if the folder is below 50 KB, has no 16 bytes of digits' weights, and its
script ends with 1 for the difference, where only numpy and the one runtime can be
imported. The results go to reports/posted.json as they come.
"""

import argparse
import hashlib
import json
import random
import shutil
import sys
import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import onnx
from onnx import numpy_helper

from harness.core.settings import Settings
from harness.engine.artifacts import Artifacts
from harness.engine.export_files import MODEL
from harness.engine.store import Store
from harness.plugins.explain import post
from harness.plugins.explain.excerpt import REDRAWN
from harness.plugins.explain.excerpts import cut_out
from harness.plugins.explain.redraw import plain
from harness.suite.judge import Judge
from harness.suite.suite import load_suite
from tests.faults.catalogue import sessions
from tests.faults.catalogue.fault import InGraph, InSession
from tests.faults.digits import watched_digits
from tests.faults.stand import WrappingEngine
from tests.faults.trials import of_families
from tests.places import ROOT

KEPT = ROOT / "reports" / "posted.json"
MOST_BYTES = 50_000
WINDOW = 4
"""Floats in a row, 16 bytes, of which none of digits' may be in a folder."""

NEVER = {
    "stale-buffer": "it needs two samples",
    "outputs-swapped": "it needs two outputs",
    "output-lost": "there is no value to compare",
    "right-in-the-first-run-only": "it needs two runs",
    "wrong-when-watched": "it shows only while a value is watched",
    "nan-inside": "it shows only while a value is watched",
    "layers-lost": "it shows only while values are watched",
    "falls-back-silently": "a message tells of it, and no number",
    "crashes": "a crash is no divergence",
    "crashes-when-watched": "a crash is no divergence",
    "hangs": "a hang is no divergence",
}
"""Faults that no single run of a small model can show as a difference, and why."""

ALONE = """\
import sys
sys.modules.update(dict.fromkeys(["harness", "onnx", "torch", {other!r}]))
import runpy
runpy.run_path("repro.py", run_name="__main__")
"""
SPOILT = """\
import sys
sys.path.insert(0, {root!r})
from tests.faults.posted import spoil
spoil({module!r}, {wrap!r})
exec(open("repro.py").read())
"""


@dataclass
class Posted:
    """What became of one fault.

    Attributes:
        why: Why there is no such folder; empty if there is one.

    """

    fault: str
    family: str
    backend: str
    size_bytes: int = 0
    operators: int = 0
    why: str = ""
    took_s: float = 0.0
    yes: bool = field(init=False)

    def __post_init__(self):
        self.yes = not self.why


class PlantedArtifacts(Artifacts):
    """Deploys every graph with a fault in it, where the graph has its place."""

    def __init__(self, whole):
        super().__init__(whole.store, whole.worker_pool, None)
        self.change = None
        self._drawn_of = {}

    def make(self, stage, *arguments, **named):
        entry = super().make(stage, *arguments, **named)
        if stage.task == REDRAWN.task:
            self._drawn_of[entry.key_digest] = arguments[0]
        return entry

    def deploy(self, case, onnx):
        return super().deploy(case, self._planted(onnx) if self.change else onnx)

    def _planted(self, entry):
        model = onnx.load(entry.file(MODEL))
        own = self._own_names(entry)
        renamed(model, own)
        try:
            self.change(model)
        except (StopIteration, LookupError, ValueError):
            return entry  # the fault's place is not in this graph
        renamed(model, {old: new for new, old in own.items()})
        del model.graph.value_info[:]

        def build(folder):
            for name in entry.files:
                shutil.copy(entry.file(name), folder / name)
            onnx.save(model, folder / MODEL)
            return entry.meta

        made = hashlib.sha256(model.SerializeToString()).hexdigest()
        key = {"planted": made, "in": entry.key_digest}
        return self.store.make(entry.kind, key, build)

    def _own_names(self, entry):
        """Return the names of a graph's values, to digits' own names."""
        if entry.kind != "excerpt":
            return {}
        cut = self._drawn_of.get(entry.key_digest, entry)
        given = cut.meta["given"]
        if cut is entry:
            return dict(given)
        return {
            new: given.get(old, old) for old, new in plain(cut)[2].items() if old != ""
        }


def renamed(model, names):
    """Rename a graph's values in place."""
    for node in model.graph.node:
        for side in (node.input, node.output):
            side[:] = [names.get(name, name) for name in side]
    graph = model.graph
    for one in (*graph.input, *graph.output, *graph.initializer):
        one.name = names.get(one.name, one.name)


class PlantedEngine(WrappingEngine):
    """An engine whose runtime has a fault."""

    def __init__(self, store, limits):
        super().__init__(store, limits)
        self._artifacts = PlantedArtifacts(self._artifacts)

    def plant(self, plant):
        """Have another fault from now on."""
        self.wrap = plant.wrap if isinstance(plant, InSession) else None
        in_graph = isinstance(plant, InGraph)
        self._artifacts.change = plant.change if in_graph else None

    def exported(self, case):
        """Return the path of a case's exported graph, which has no fault."""
        return self._artifacts.export(case).file(MODEL)


def spoil(module, wrap):
    """Put a runtime fault between a runtime and the script that imports it."""
    make = getattr(sessions, wrap)
    {"onnxruntime": _spoil_onnxruntime, "MNN": _spoil_mnn}[module](make)


class _Bare:
    """What a fault wraps: it gives the outputs that it is told."""

    def __init__(self, threads):
        self.ran = SimpleNamespace(threads=threads)

    def run(self, outputs):
        return outputs


def _spoil_onnxruntime(make):
    import onnxruntime as ort

    class Session(ort.InferenceSession):
        def __init__(self, path, options, **rest):
            super().__init__(path, options, **rest)
            self._faulty = make(_Bare(options.intra_op_num_threads))

        def run(self, names, feeds):
            made = dict(zip(names, super().run(names, feeds), strict=True))
            return list(self._faulty.run(made).values())

    ort.InferenceSession = Session


def _spoil_mnn(make):
    import MNN

    class Output:
        def __init__(self, tensor, faulty):
            real = tensor.getDataType() == MNN.Halide_Type_Float
            right = np.empty(tensor.getShape(), np.float32 if real else np.int32)
            host = MNN.Tensor(
                right.shape, tensor.getDataType(), right, MNN.Tensor_DimensionType_Caffe
            )
            tensor.copyToHostTensor(host)
            (self._made,) = faulty.run({"": np.array(host.getNumpyData())}).values()

        def getShape(self):  # noqa: N802  # MNN's name
            return self._made.shape

        def getDataType(self):  # noqa: N802  # MNN's name
            whole = self._made.dtype.kind == "i"
            return MNN.Halide_Type_Int if whole else MNN.Halide_Type_Float

        def copyToHostTensor(self, host):  # noqa: N802  # MNN's name
            host.getNumpyData()[...] = self._made

    class Interpreter:
        def __init__(self, path):
            self._net = real(path)

        def __getattr__(self, name):
            return getattr(self._net, name)

        def createSession(self, asked):  # noqa: N802  # MNN's name
            self._faulty = make(_Bare(asked["numThread"]))
            return self._net.createSession(asked)

        def getSessionOutput(self, session, name):  # noqa: N802  # MNN's name
            return Output(self._net.getSessionOutput(session, name), self._faulty)

    real, MNN.Interpreter = MNN.Interpreter, Interpreter


def floats_of(graph):
    """Return every four floats in a row of a graph's weights, as bytes."""
    found, graph = set(), onnx.load(graph).graph
    resizes = (node for node in graph.node if node.op_type == "Resize")
    factors = {name for node in resizes for name in node.input[1:]}
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor).reshape(-1)
        short = array.size < WINDOW or tensor.name in factors
        if array.dtype != np.float32 or short:
            continue
        rows = np.lib.stride_tricks.sliding_window_view(array, WINDOW)
        # Four equal numbers, such as zeros of a bias, tell nothing of a checkpoint.
        rows = rows[(rows != rows[:, :1]).any(axis=1)]
        found.update(row.tobytes() for row in rows)
    return found


def has_any(folder, windows):
    """Whether a file of a folder has any of these bytes."""
    size = 4 * WINDOW
    for file in folder.iterdir():
        data = file.read_bytes()
        if any(data[at : at + size] in windows for at in range(len(data) - size + 1)):
            return True
    return False


def posted(suite, engine, fault, backend, into):
    """Plant a fault, post it into a new folder, and return what became of it."""
    start = time.monotonic()
    engine.plant(fault.plant)
    wanted = f"{fault.component}/{backend}/{fault.variant}"
    case = next(case for case in suite.cases if case.id == wanted)
    result = partial(Posted, fault.name, fault.family, backend)
    how = {"onnxruntime": ("onnxruntime", "MNN"), "mnn": ("MNN", "onnxruntime")}
    module, other = how[backend]
    code = ALONE.format(other=other)
    if isinstance(fault.plant, InSession):
        wrap = fault.plant.wrap.__name__
        code = SPOILT.format(root=str(ROOT), module=module, wrap=wrap)
    judge = Judge.of(suite, Settings())
    into.mkdir()
    one_engine = patch.object(post, "Engine", lambda *_: nullcontext(engine))
    with one_engine, patch.object(post, "RUN", ("-c", code)):
        try:
            around = cut_out(engine, judge, case, "", lambda _: None)
            best = post.write_post(suite.limits, judge, around, into, lambda _: None)
            windows = floats_of(engine.exported(case))
            said = post.said(sys.executable, into)
        except Exception as error:  # noqa: BLE001  # it is a no, and the rest goes on
            why = f"{type(error).__name__}: {error}"
            return result(why=why, took_s=round(time.monotonic() - start, 1))
    size = sum(file.stat().st_size for file in into.iterdir())
    why = (
        f"it has {size:,} bytes"
        if size >= MOST_BYTES
        else "it has bytes of digits' weights"
        if has_any(into, windows)
        else ""
        if post.differs(said)
        else f"its script says: {said.words}"
    )
    return result(
        size_bytes=size,
        operators=best.excerpt.entry.meta["nodes"],
        why=why,
        took_s=round(time.monotonic() - start, 1),
    )


def main():
    """Post each fault, and print the score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these; the report keeps others")
    parser.add_argument("--store", type=Path, help="keep what is exported here")
    parser.add_argument("--search", type=float, default=20.0, help="seconds a fault")
    asked = parser.parse_args()
    faults = [one.values for one in of_families("operator", "runtime")]
    # A run that is stopped has tried an even sample.
    random.Random(0).shuffle(faults)  # no secret
    suite = load_suite(watched_digits())
    rows = json.loads(KEPT.read_text("utf-8")) if asked.names else []
    with TemporaryDirectory() as scratch, ExitStack() as stack:
        stack.enter_context(patch.object(post, "SEARCH_S", asked.search))
        store = Store(root=asked.store or Path(scratch, "store"))
        engine = stack.enter_context(PlantedEngine(store, suite.limits))
        for fault, backend in faults:
            if asked.names and fault.name not in asked.names:
                continue
            if fault.name in NEVER:
                one = Posted(fault.name, fault.family, backend, why=NEVER[fault.name])
            else:
                into = Path(scratch, fault.name)
                one = posted(suite, engine, fault, backend, into)
            print(
                f"{one.fault:32} {backend:12} {one.took_s:5.1f} s "
                + (one.why or f"{one.size_bytes:,} bytes, {one.operators} operators"),
                flush=True,
            )
            rows = [row for row in rows if row["fault"] != one.fault]
            rows = sorted([*rows, vars(one)], key=lambda row: row["fault"])
            KEPT.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    yes = sum(row["yes"] for row in rows)
    able = sum(row["fault"] not in NEVER for row in rows)
    print(f"{yes} of {len(rows)} faults, {able} of which can be posted at all")


if __name__ == "__main__":
    from tests.faults import posted as module  # worker processes find it by this name

    module.main()
