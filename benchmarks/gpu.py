"""Errors, time and memory on an NVIDIA GPU, for digits and the full-size UNet.

    python benchmarks/gpu.py [--only NAME] [--store DIR] [--rounds N] [--dry]

Each component runs in PyTorch on the GPU, and in ONNX Runtime's CUDA and TensorRT
providers, with TensorFloat-32 and without, in float32 and float16. The reference of
every row is PyTorch's float32 run on the CPU, and an error of 1 floor is that run's own
rounding error. TensorRT is left out where its libraries are not installed.

`--dry` runs the same rows on the CPU, to test this script without a GPU. The exit code
is 0 if all rows but TensorRT's were measured, and 2 if not, or without a GPU.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from harness.core.case import REFERENCE, Case
from harness.core.errors import ParityError
from harness.core.outcome import CANNOT_TELL
from harness.core.record import LAYERS, OUTPUTS
from harness.engine.artifacts import Artifacts
from harness.engine.engine import Engine
from harness.engine.store import Store
from harness.engine.worker_pool import WorkerPool
from harness.measure.trace import OUTPUT, open_trace
from harness.plugins.bench.rounds import Bench
from harness.plugins.bench.timing import BenchPlan, Subject
from harness.runtimes.candidate.candidate import output_rows
from harness.runtimes.onnxruntime.doctor import newest_cuda
from harness.suite.schema import Limits
from harness.suite.suite import load_suite

FIXTURES = Path(__file__).parents[1] / "fixtures"
LIMITS = Limits(timeout_s=3600.0, jobs=1)
NO_GPU = (
    "There is no GPU here: CUDA's driver (libcuda) is absent or shows no device. Run "
    "this on a machine with an NVIDIA GPU; `--dry` tests the script on the CPU."
)
TENSORRT = "tensorrt"


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to run a component.

    Attributes:
        name: Name in the table.
        runtime: ``pytorch`` or ``onnxruntime``.
        variant: Variant of the deployed file.
        settings: Settings of the device that differ from the suite's.
        environment: Variables of the processes that run it.

    """

    name: str
    runtime: str = "onnxruntime"
    variant: str = "fp32"
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_needed(self) -> bool:
        """Whether a machine with a GPU must be able to do it."""
        return self.settings.get("device") != TENSORRT

    def case(self, case: Case, *, dry: bool) -> Case:
        """Return a float32 case of ONNX Runtime, run in this way."""
        settings = dict(self.settings)
        if dry and "device" in settings:  # the CPU provider takes no options
            settings = {"threads": 1}
        if self.runtime == REFERENCE:
            return replace(case, reference=replace(case.reference, **settings))
        # What falls back is a column, so nothing is refused for it.
        allowed = {} if dry or not settings else {"cpu_nodes": 1.0}
        return replace(
            case,
            device=replace(case.device, **settings, **allowed),
            variant=replace(case.variant, name=self.variant, kind=self.variant),
        )


# TensorRT's provider has no option for TensorFloat-32, which it uses by default.
WAYS = (
    Way(name="PyTorch CPU", runtime=REFERENCE),
    Way(name="PyTorch CUDA", runtime=REFERENCE, settings={"device": "cuda"}),
    Way(
        name="PyTorch CUDA, TF32",
        runtime=REFERENCE,
        settings={"device": "cuda", "tf32": True},
    ),
    Way(name="ONNX Runtime CPU"),
    Way(name="CUDA", settings={"device": "cuda"}),
    Way(name="CUDA, TF32", settings={"device": "cuda", "tf32": True}),
    Way(name="CUDA, fp16", variant="fp16", settings={"device": "cuda"}),
    Way(
        name="TensorRT",
        settings={"device": TENSORRT},
        environment={"NVIDIA_TF32_OVERRIDE": "0"},
    ),
    Way(name="TensorRT, TF32", settings={"device": TENSORRT}),
    Way(
        name="TensorRT, fp16",
        settings={
            "device": TENSORRT,
            "provider_options": (("trt_fp16_enable", True),),
        },
    ),
)


def cases(only: str) -> Iterator[Case]:
    """Yield the float32 case of each component in ONNX Runtime."""
    for suite, names in (("digits", []), ("sd15", ["unet"])):
        for case in load_suite(FIXTURES / suite).cases:
            wanted = case.backend == "onnxruntime" and case.variant.name == "fp32"
            if not wanted or (names and case.subject not in names):
                continue
            if only and only not in f"{suite}/{case.subject}":
                continue
            watched = [sample for sample in case.samples if sample.layers]
            yield replace(case, samples=tuple(watched[:1]))


def errors_of_pytorch(store: Store, case: Case, way: Case) -> float:
    """Return the largest error of PyTorch's outputs on another device.

    Raises:
        ParityError: A stage ended without an answer.

    """
    with closing(WorkerPool.of(LIMITS)) as pool:
        artifacts = Artifacts(store, pool, None)
        expected, actual = (
            open_trace(artifacts.prepare(one, one.samples)[sample].reference.path)
            for one in (case, way)
            for sample in one.samples
        )
    names = [spec.name for spec in case.component.outputs]
    made = {name: actual[OUTPUT + name] for name in names}
    rows = output_rows(case.samples[0].id, made, expected)
    return max(one.comparison.floor_multiple or 0.0 for one in rows)


def errors_of_file(store: Store, case: Case) -> tuple[float, float, str]:
    """Return the largest errors of layers and outputs, and what fell back.

    Raises:
        ParityError: A stage ended without an answer.

    """
    with Engine(store, LIMITS) as engine:
        record = engine.run(case)
    if record.failure is not None:
        raise ParityError(record.failure.message)
    worst = {LAYERS: 0.0, OUTPUTS: 0.0}
    for row in record.rows:
        if row.what in worst:
            error = row.comparison.floor_multiple or 0.0
            worst[row.what] = max(worst[row.what], error)
    detail = dict((record.ran or {})["detail"])
    return (*worst.values(), detail.get("on the CPU provider", ""))


class Watch:
    """The largest memory of the GPU while it is watched, beyond that before, in MiB."""

    def __init__(self) -> None:
        self.peak = self._before = self._used()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.peak -= self._before

    def _look(self) -> None:
        while not self._ended.wait(0.1):
            self.peak = max(self.peak, self._used())

    @staticmethod
    def _used() -> int:
        command = (
            "nvidia-smi",
            "--query-gpu=memory.used",
            "--format=csv,noheader,nounits",
        )
        with suppress(OSError, ValueError):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            return sum(int(line) for line in done.stdout.splitlines())
        return 0


@contextmanager
def variables(changed: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def row(store: Store, case: Case, way: Way, rounds: int, *, dry: bool) -> str:
    """Measure one way to run a component, and return its line.

    Raises:
        ParityError: It does not run.

    """
    own = way.case(case, dry=dry)
    fell_back = ""
    with variables(way.environment):
        if way.runtime == REFERENCE:
            # The two programs differ where each device has operators of its own.
            layers, outputs = float("nan"), errors_of_pytorch(store, case, own)
        else:
            layers, outputs, fell_back = errors_of_file(store, own)
        subject = Subject(case=own, is_eager=way.runtime == REFERENCE)
        with Engine(store, LIMITS) as engine, Watch() as watch:
            bench = Bench(engine.artifacts)
            (timing,) = bench.times([subject], BenchPlan(rounds=rounds))
    if timing.failure:
        raise ParityError(timing.failure)
    took_ms = sorted(timing.medians_s)[len(timing.medians_s) // 2] * 1e3
    host = max(one.peak_bytes for one in timing.rounds) / 2**20
    return (
        f"{way.name:20} {layers:10.3g} {outputs:10.3g} {took_ms:10.2f} {host:8.0f} "
        f"{watch.peak:8} {fell_back}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print, row by row; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="part of a name: digits/unet, sd15")
    parser.add_argument("--store", type=Path, help="a store to use and keep")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dry", action="store_true", help="on the CPU, without a GPU")
    given = parser.parse_args(arguments)
    if not given.dry and not newest_cuda():
        print(NO_GPU, file=sys.stderr)
        return CANNOT_TELL
    if given.dry:
        print("A dry run: every row is computed on the CPU, whatever its name says.")
    lacking = 0
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(root=given.store or Path(scratch))
        for case in cases(given.only):
            sizes = ", ".join(f"{n} {size}" for n, size in case.samples[0].shapes)
            print(f"\n{case.component.source.name}, {case.subject}: {sizes}")
            print(
                f"{'':20} {'layers':>10} {'outputs':>10} {'ms':>10} {'host':>8} "
                f"{'GPU':>8} on the CPU provider\n"
                f"{'':20} {'floors':>10} {'floors':>10} {'a run':>10} {'MiB':>8} "
                f"{'MiB':>8}"
            )
            for way in WAYS:
                if given.dry and not way.is_needed:
                    continue
                try:
                    line = row(store, case, way, given.rounds, dry=given.dry)
                except ParityError as error:
                    line = f"{way.name:20} {error}"
                    lacking += way.is_needed
                print(line, flush=True)
    return CANNOT_TELL if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
