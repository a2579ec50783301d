"""A module of one's own, by `harness.check` and by two other tools.

    python benchmarks/bench_any_network.py [--only PART…] [--rounds N] [--write]

*tools* times scripts in turns, each from a new process and an empty store:
`harness.check` in one and in two runtimes, PyTorch's `torch.onnx.verification` with
intermediates, and Polygraphy, which must be installed. *faults* plants ten faults in
the exported graph, and asks each tool with its own limits and the same two calls. A
tool finds a fault if it warns or fails; it names the place if the first value that it
names is the one that the fault makes wrong. *capture* times digits drawing a picture
with and without `harness.capture`. *memory* checks a module of 1 GiB of weights.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import figures
import plain_net

ROOT = Path(__file__).parents[1]
CODE = ("core", "engine", "judge", "measure", "plugins/capture", "runtimes", "suite")
GIB = 2**30
FIRST = "harness.check in two runtimes"

BEFORE = "from plain_net import calls, make\n\nnet, inputs = make(), calls()\n"
HARNESS = """\
import harness

verdict = harness.check(net, inputs, runtimes=["onnxruntime"])
print(verdict)
"""
VERIFICATION = """\
import torch
from torch.onnx.verification import verify_onnx_program

program = torch.onnx.export(
    net, inputs[0], dynamo=True, dynamic_shapes=({0: torch.export.Dim("batch")}, None)
)
for args in inputs:
    verify_onnx_program(program, args, compare_intermediates=True)
"""
POLYGRAPHY = """\
import torch
from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
from polygraphy.comparator import Comparator

torch.onnx.export(
    net,
    inputs[0],
    "net.onnx",
    dynamo=True,
    dynamic_shapes=({0: torch.export.Dim("batch")}, None),
    input_names=["image", "scale"],
    output_names=["logits"],
)
feeds = [{"image": i.numpy(), "scale": s.numpy()} for i, s in inputs]
results = Comparator.run([OnnxrtRunner(SessionFromOnnx("net.onnx"))], data_loader=feeds)
with torch.no_grad():
    expected = [{"logits": net(*args).numpy()} for args in inputs]
results.add(expected, runner_name="torch")
assert Comparator.compare_accuracy(results)
"""
SCRIPTS = {
    "harness.check": HARNESS,
    "torch.onnx.verification": VERIFICATION,
    "Polygraphy": POLYGRAPHY,
    FIRST: HARNESS.replace('["onnxruntime"]', '["onnxruntime", "mnn"]'),
}
DIGITS = """
import json, time
import torch
from diffusers import StableDiffusionPipeline
import harness

pipe = StableDiffusionPipeline.from_pretrained("fixtures/digits", safety_checker=None)
pipe.set_progress_bar_config(disable=True)


def drawn():
    start = time.perf_counter(), time.process_time()
    seed = torch.Generator().manual_seed(0)
    pipe("three", num_inference_steps=30, generator=seed)
    return time.perf_counter() - start[0], time.process_time() - start[1]


def recorded():
    start = time.perf_counter(), time.process_time()
    with harness.capture(unet=pipe.unet):
        drawn()
    return time.perf_counter() - start[0], time.process_time() - start[1]


drawn(), recorded()
print(json.dumps([(drawn(), recorded()) for _ in range(ROUNDS)]))
"""
LAYERS, SIDE = 16, 4096
LARGE = """
import json, resource
import torch
import harness

torch.manual_seed(0)
layers = [torch.nn.Linear(SIDE, SIDE, bias=False) for _ in range(LAYERS)]
net = torch.nn.Sequential(*layers).eval()
x = torch.randn(1, SIDE)
net(x)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
verdict = harness.check(net, (x,), runtimes=["onnxruntime"])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert verdict.passed, verdict
print(json.dumps([before * 1024, after * 1024]))
"""


def lines_of(script):
    """Return how many statements' lines a user writes; blank ones do not count."""
    return sum(bool(line.strip()) for line in script.splitlines())


def ran(script, store, before=BEFORE):
    """Return wall and processor seconds of a script in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        start, start_s = time.perf_counter(), _children_s()
        spoken(before + script, store, Path(folder))
        return time.perf_counter() - start, _children_s() - start_s


def _children_s():
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def spoken(script, store, folder):
    """Run a script in a process of its own; return its last line."""
    path = folder / "script.py"
    path.write_text(script, encoding="utf-8")
    paths = f"{ROOT / 'benchmarks'}:{ROOT}"
    ended = subprocess.run(
        [sys.executable, path],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PARITY_STORE": str(store), "PYTHONPATH": paths},
    )
    if ended.returncode:
        sys.exit(f"A script failed.\n{script}\n{ended.stdout}{ended.stderr}")
    return (ended.stdout.splitlines() or [""])[-1]


def in_turns(rounds):
    """Return wall and processor seconds of each script, by name."""
    took = {name: [] for name in SCRIPTS}
    for _ in range(rounds):
        for name, script in SCRIPTS.items():
            with tempfile.TemporaryDirectory() as store:
                took[name].append(ran(script, store))
            wall_s, cpu_s = took[name][-1]
            print(f"{name:24} {wall_s:6.1f} s, {cpu_s:6.1f} s of cores", flush=True)
    return took


def show_tools(rounds, *, write):
    """Time the scripts of all tools, and that of two runtimes, in turns."""
    took = in_turns(rounds)
    middle = {
        name: [statistics.median(column) for column in zip(*values, strict=True)]
        for name, values in took.items()
    }
    ours_s = [wall for wall, _ in took["harness.check"]]
    ratios = {}
    for name in list(SCRIPTS)[1:3]:
        pairs = zip(ours_s, (wall for wall, _ in took[name]), strict=True)
        ratios[name] = sorted(ours / theirs for ours, theirs in pairs)
    told = "; ".join(
        f"{statistics.median(each):.2f} × the time of `{name}` "
        f"({each[0]:.2f} to {each[-1]:.2f} in {rounds} rounds; "
        f"{middle[name][0]:.0f} s, {lines_of(SCRIPTS[name])} lines)"
        for name, each in ratios.items()
    )
    wall_s, cpu_s = middle[FIRST]
    load = os.getloadavg()[1]
    print(told)
    if not write:
        return
    figures.keep(
        "any_network_tools",
        script=__file__,
        what="a plain module with two calls in ONNX Runtime, from a new process and an "
        "empty store: `harness.check`, against the scripts of two other tools",
        measured=f"{told}; ours {middle['harness.check'][0]:.0f} s, "
        f"{lines_of(HARNESS)} lines",
        values={"took": took, "load": load},
        code=CODE,
    )
    figures.keep(
        "any_network_first",
        script=__file__,
        what="the first verdict on a plain module in ONNX Runtime and MNN, from a new "
        "process and an empty store",
        measured=f"{wall_s:.0f} s, {cpu_s:.0f} s of cores (median of {rounds}; a load "
        f"of {load:.1f})",
        values={"took": took[FIRST], "load": load},
        code=CODE,
    )


class Warned(logging.Handler):
    """The names of the values that PyTorch's verification warns of."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.names = []

    def emit(self, record):
        self.names.append(str(record.args[0]))


def by_verification(program, inputs):
    """Return the values that PyTorch warns of, in order, by the first call that has."""
    from torch.onnx.verification import verify_onnx_program

    own = logging.getLogger("torch.onnx._internal.exporter._verification")
    heard = Warned()
    own.addHandler(heard)
    own.propagate = False
    try:
        for args in inputs:
            if not heard.names:
                verify_onnx_program(program, args, compare_intermediates=True)
    except Exception as error:  # noqa: BLE001  # what a user would see
        heard.names.append(type(error).__name__)
    finally:
        own.removeHandler(heard)
    return heard.names


def by_polygraphy(path, inputs, expected):
    """Return whether Polygraphy says that the outputs agree."""
    from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
    from polygraphy.comparator import Comparator
    from polygraphy.exception import PolygraphyException
    from polygraphy.logger import G_LOGGER

    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    feeds = [{"image": i.numpy(), "scale": s.numpy()} for i, s in inputs]
    try:
        results = Comparator.run(
            [OnnxrtRunner(SessionFromOnnx(str(path)))], data_loader=feeds
        )
    except (PolygraphyException, RuntimeError):
        return False
    except Exception as error:  # noqa: BLE001  # of ONNX Runtime, without a base class
        print(f"  Polygraphy ended with {type(error).__name__}.")
        return False
    results.add(expected, runner_name="torch")
    return bool(Comparator.compare_accuracy(results))


def found():
    """Return what each tool says of each fault, and of the file without one."""
    import onnx_ir
    import torch

    import harness
    from tests.faults.catalogue.fault import in_graph
    from tests.faults.planting import plant
    from tests.faults.stand import Stand

    net, inputs = plain_net.make(), plain_net.calls()
    shapes = ({0: torch.export.Dim("batch")}, None)
    program = torch.onnx.export(
        net,
        inputs[0],
        dynamo=True,
        dynamic_shapes=shapes,
        opset_version=18,
        verbose=False,
    )
    right = onnx_ir.serde.serialize_model(program.model)
    (output,) = (one.name for one in right.graph.output)
    with torch.no_grad():
        expected = [{output: net(*args).numpy()} for args in inputs]
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        os.environ["PARITY_STORE"] = str(store)
        verdict = harness.check(
            net,
            inputs,
            runtimes=["onnxruntime"],
            name="plain",
            runs=str(Path(folder) / "runs"),
        )
        told = []
        for name, change in {"no fault": None, **plain_net.faults()}.items():
            model = type(right)()
            model.CopyFrom(right)
            place = change(model) if change else ""
            program.model = onnx_ir.serde.deserialize_model(model)
            path = Path(folder) / "planted.onnx"
            path.write_bytes(model.SerializeToString())
            caught, named = not verdict.passed, False
            if change:
                one = in_graph("export", "plain", name, change)
                with Stand(store, suite=verdict.run / "plain") as stand:
                    trial = plant(stand, one, "onnxruntime")
                caught, named = trial.caught, trial.localised
            warned = by_verification(program, inputs)
            told.append(
                {
                    "name": name,
                    "harness.check": said(caught, named=named),
                    "torch.onnx.verification": said(
                        bool(warned), named=warned[:1] == [place]
                    ),
                    "Polygraphy": said(
                        not by_polygraphy(path, inputs, expected), named=False
                    ),
                    "warned": warned[:3],
                }
            )
            print(told[-1], flush=True)
    return told


def said(caught, *, named):
    """Return what a cell of the table says."""
    return ("names its place" if named else "finds it") if caught else "–"


def show_faults(*, write):
    """Plant the faults, and keep the table of what each tool says."""
    told = found()
    tools = list(SCRIPTS)[:3]
    rows = [
        ["", *(f"`{name}`" if "." in name else name for name in tools)],
        ["lines to write", *(str(lines_of(SCRIPTS[name])) for name in tools)],
        *([one["name"], *(one[name] for name in tools)] for one in told),
    ]
    found_by = {name: sum(one[name] != "–" for one in told[1:]) for name in tools}
    named_by = {name: sum("names" in one[name] for one in told) for name in tools}
    print(figures.markdown(rows))
    if write:
        figures.keep(
            "any_network",
            script=__file__,
            what="ten faults planted in the exported graph of a plain module, by each "
            "tool with its own limits and the same two calls",
            measured="; ".join(
                f"{name}: {found_by[name]} found, {named_by[name]} named by place"
                for name in tools
            ),
            values={"told": told},
            code=CODE,
            rows=rows,
        )


def show_capture(rounds, *, write):
    """Time digits' text to image with and without a recorder of the UNet, in turns."""
    script = DIGITS.replace("ROUNDS", str(rounds)).replace(
        "fixtures/digits", str(ROOT / "fixtures" / "digits")
    )
    with tempfile.TemporaryDirectory() as folder:
        took = json.loads(spoken(script, folder, Path(folder)))
    walls = sorted(more[0] / bare[0] for bare, more in took)
    cores = statistics.median(more[1] / bare[1] for bare, more in took)
    bare_s = statistics.median(bare[0] for bare, _ in took)
    told = (
        f"{statistics.median(walls):.3f} × the time ({walls[0]:.2f} to {walls[-1]:.2f} "
        f"in {rounds} rounds of {bare_s:.1f} s), {cores:.3f} × the time of cores"
    )
    print(told)
    if write:
        figures.keep(
            "any_network_capture",
            script=__file__,
            what="digits' text to image, 30 steps with `harness.capture` of the UNet "
            "(8 samples), against the same without it",
            measured=told,
            values={"took": took},
            code=("plugins/capture", "recipes"),
        )


def peaks(ending):
    """Return the largest resident set of a worker, and the peak of all shares."""
    import psutil

    largest = together = 0
    while not ending.done():
        share = 0
        for at, one in enumerate(psutil.Process().children(recursive=True)):
            with suppress(psutil.Error):
                held = one.memory_full_info()
                share += held.pss
                largest = max(largest, held.rss if at else 0)  # the first is the caller
        together = max(together, share)
        time.sleep(0.1)
    return largest, together


def show_memory(*, write):
    """Check a module of large weights, and say what it takes in memory and on disk."""
    weights = LAYERS * SIDE * SIDE * 4
    script = LARGE.replace("LAYERS", str(LAYERS)).replace("SIDE", str(SIDE))
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        start = time.perf_counter()
        with ThreadPoolExecutor() as threads:
            ending = threads.submit(spoken, script, store, Path(folder))
            largest, together = peaks(ending)
        before, after = json.loads(ending.result())
        took_s = time.perf_counter() - start
        kinds = {
            kind.name: sum(f.stat().st_size for f in kind.rglob("*") if f.is_file())
            for kind in (store / "v1").iterdir()
        }
    told = (
        f"{weights / GIB:.2f} GiB of weights: the caller's peak rises by "
        f"{(after - before) / weights:.2f} × the weights, the largest worker holds "
        f"{largest / weights:.2f} ×, all processes together {together / weights:.2f} × "
        f"(with the caller's own module); {kinds['module'] / weights:.2f} × on disk, "
        f"{sum(kinds.values()) / weights:.2f} × for all; {took_s:.0f} s"
    )
    print(told, kinds)
    if write:
        figures.keep(
            "any_network_memory",
            script=__file__,
            what="`harness.check` of a stack of linear layers in ONNX Runtime, memory "
            "and disk against the weights in float32",
            measured=told,
            values={
                "weights": weights,
                "before": before,
                "after": after,
                "largest": largest,
                "together": together,
                "disk": kinds,
            },
            code=CODE,
        )


def main():
    """Measure and print."""
    parser = figures.parser(__doc__)
    parts = ("tools", "faults", "capture", "memory")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if find_spec("polygraphy") is None and {"tools", "faults"} & set(asked.only):
        sys.exit("Polygraphy is not installed; run `pip install polygraphy` first.")
    if "tools" in asked.only:
        show_tools(asked.rounds, write=asked.write)
    if "faults" in asked.only:
        show_faults(write=asked.write)
    if "capture" in asked.only:
        show_capture(2 * asked.rounds, write=asked.write)
    if "memory" in asked.only:
        show_memory(write=asked.write)


if __name__ == "__main__":
    main()
