"""A runtime on a target: the same session through an agent, and each way it breaks."""

import sys
from functools import partial

import numpy as np
import pytest

from harness.core.case import Device, Target, Variant
from harness.core.runtime import runtimes
from harness.engine.export_files import MODEL
from harness.runtimes.session import load_backend
from tests.unit import nets

OUTPUTS = ["map", "pooled"]
COMMAND = (sys.executable,)
DRIVERS = {one.name: one.driver for one in runtimes().values() if one.driver}


def device(command=COMMAND, **settings):
    target = Target(name="phone", command=command) if command else None
    return Device(threads=1, target=target, **settings)


def measured(backend, path, device):
    """All that a session can be asked: outputs, watched values, operators alone."""
    feeds = nets.feeds(nets.BLOCKS)
    watched: dict[str, np.ndarray] = {}
    alone: dict[str, np.ndarray] = {}

    def keep(where, name, value):
        where[name] = np.array(value)

    sizes = dict.fromkeys(made_in(backend, path), 1)
    with load_backend(backend).open_session(path, device, OUTPUTS) as session:
        run = session.run(feeds)
        seen = session.watch(feeds, sizes, partial(keep, watched))
        session.isolate(feeds, dict(watched), partial(keep, alone))
        return run, seen, watched, alone, session.ran


def made_in(backend, path):
    if backend == "mnn":
        from harness.runtimes.mnn.file import operators

        return [name for one in operators(path) for name in (one.name, *one.makes)]
    import onnx

    return [name for node in onnx.load(path).graph.node for name in node.output]


def convert(source, folder):
    from harness.runtimes.mnn.convert import convert as convert_to_mnn

    return convert_to_mnn(
        source,
        Variant(name="fp32", backend="mnn", kind="fp32"),
        folder,
        component=nets.BLOCKS,
        probes=(),
        native=None,
    )


@pytest.fixture(scope="module")
def job(native):
    def call(function, *arguments):
        return native.run(function, *arguments, timeout_s=120, label="test").value

    return call


@pytest.fixture(scope="module")
def files(blocks_files, tmp_path_factory, job):
    """A deployed file of each runtime that can run on a target."""
    folder = tmp_path_factory.mktemp("mnn")
    job(convert, blocks_files["dynamo"] / MODEL, folder)
    weights = tmp_path_factory.mktemp("external")
    nets.export(nets.Blocks(), nets.BLOCKS, weights, external_data=True)
    return {"mnn": folder / "model.mnn", "onnxruntime": weights / MODEL}


def bits(arrays):
    return {name: (one.dtype, one.shape, one.tobytes()) for name, one in arrays.items()}


@pytest.mark.parametrize("backend", DRIVERS)
def test_a_local_python_as_the_target_computes_the_same_bits(files, job, backend):
    here = job(measured, backend, files[backend], device(None))
    there = job(measured, backend, files[backend], device())

    assert len(here[2]) > 5
    assert len(here[3]) > 2
    assert [bits(one) for one in there[:4]] == [bits(one) for one in here[:4]]
    assert ("target", "phone") in there[4].detail
