"""Time a whole pipeline once: drawings by diffusers' own class, nobody watching."""

from __future__ import annotations

import time
from dataclasses import asdict

from harness.commands.bench.timing import TIMING, Drawing, Round
from harness.commands.bench.worker import since, timed_runs
from harness.core.case import REFERENCE
from harness.core.environment import installed
from harness.engine.host import report_progress
from harness.runtimes.candidate.candidate import check_artifact
from harness.runtimes.diffusion.draw import app_cast, assemble, draw
from harness.runtimes.diffusion.inputs import load_inputs
from harness.runtimes.diffusion.networks import Residents, SessionNetwork
from harness.runtimes.diffusion.reference import torch_networks
from harness.runtimes.pytorch.prepare import ask_device
from harness.runtimes.session import Ran

_VAE = ("vae_encoder", "vae_decoder")


def time_drawing(drawing: Drawing) -> Round:
    """Draw once, warm up, and time drawings until the plan is met.

    Networks are loaded when first called, so loading is part of the first drawing.

    Raises:
        StageError: A runtime refuses a file, a run or the device.

    """
    import psutil

    ask_device(drawing.device)
    for entry in (drawing.inputs, *(file.artifact for file in drawing.seated)):
        check_artifact(entry)
    pipeline = drawing.pipeline
    texts = [str(text) for text in drawing.inputs.meta["texts"]]  # type: ignore[attr-defined]
    inputs = load_inputs(drawing.inputs.path, texts)
    report_progress(TIMING, drawing.id, drawing.device.device)
    base_bytes = psutil.Process().memory_info().rss
    begin = time.perf_counter_ns()
    residents = Residents()
    taken = {file.seat: SessionNetwork(file, residents) for file in drawing.seated}
    networks = {**torch_networks(pipeline, residents, drawing.device), **taken}
    factors = [seat for seat in _VAE if seat in taken]
    pipe = assemble(pipeline, inputs, app_cast(pipeline, networks, factors))
    load_s = since(begin)
    try:
        begin = time.perf_counter_ns()
        draw(pipe, pipeline, inputs)
        first_s = since(begin)
        runs = timed_runs(
            lambda: draw(pipe, pipeline, inputs), drawing.plan, drawing.device.threads
        )
    finally:
        residents.close()
    ran = [network.ran for network in taken.values() if network.ran]
    return Round(
        load_s=load_s,
        first_s=first_s,
        runs_s=runs.runs_s,
        cores=runs.cores,
        withheld=runs.withheld,
        base_bytes=base_bytes,
        peak_bytes=0,  # known when the process has ended
        size_bytes=sum(file.artifact.size_bytes for file in drawing.seated),
        ran=asdict(ran[0] if ran else _pytorch(drawing)),
    )


def _pytorch(drawing: Drawing) -> Ran:
    return Ran(
        backend=REFERENCE,
        version=installed(("torch",))["torch"],
        device=drawing.device.device,
        threads=drawing.device.threads,
        precision="float32",
    )
