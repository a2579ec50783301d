"""A whole pipeline as something to time: diffusers' own class draws, unwatched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.commands.bench.timing import Turn
from harness.commands.bench.worker import Loaded
from harness.core.case import REFERENCE
from harness.core.environment import installed
from harness.core.pipeline import Pipeline
from harness.runtimes.diffusion.draw import app_cast, assemble, draw
from harness.runtimes.diffusion.inputs import Inputs, load_inputs
from harness.runtimes.diffusion.networks import Residents, SessionNetwork
from harness.runtimes.diffusion.reference import torch_networks
from harness.runtimes.pytorch.prepare import ask_device
from harness.runtimes.session import Ran

_VAE = ("vae_encoder", "vae_decoder")


def inputs_of(turn: Turn) -> Inputs:
    """Set the device up, and return the inputs: neither is part of loading."""
    ask_device(turn.device)
    texts = [str(text) for text in turn.inputs.meta["texts"]]  # type: ignore[attr-defined]
    return load_inputs(turn.inputs.path, texts)


@contextmanager
def opened(turn: Turn, pipeline: Pipeline, inputs: Inputs) -> Iterator[Loaded]:
    """Put a pipeline together for the length of a ``with``.

    Networks are loaded when first called, so loading is part of the first drawing.
    """
    residents = Residents()
    deployed = {file.seat: SessionNetwork(file, residents) for file in turn.deployed}
    networks = {**torch_networks(pipeline, residents, turn.device), **deployed}
    factors = [name for name in _VAE if name in deployed]
    pipe = assemble(pipeline, inputs, app_cast(pipeline, networks, factors))

    def ran() -> Ran:
        """Return what the first deployed file ran on; PyTorch where there is none."""
        for network in deployed.values():
            if network.ran:
                return network.ran
        return Ran(
            backend=REFERENCE,
            version=installed(("torch",))["torch"],
            device=turn.device.device,
            threads=turn.device.threads,
            precision="float32",
        )

    try:
        yield Loaded(lambda: draw(pipe, pipeline, inputs), turn.size_bytes, ran)
    finally:
        residents.close()
