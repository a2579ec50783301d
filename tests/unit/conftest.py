"""Fixtures that several unit tests share: small exports, made once."""

import os

# Before anything imports onnxruntime, which would start a thread and post.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import pytest

from harness.engine.host import Host
from tests.unit import nets


@pytest.fixture(scope="session")
def blocks_files(tmp_path_factory):
    """Folder of a small network's export, by exporter."""
    folders = {}
    for exporter, opset in (("dynamo", 18), ("torchscript", 17)):
        folders[exporter] = tmp_path_factory.mktemp(exporter)
        nets.export(nets.Blocks(), nets.BLOCKS, folders[exporter], exporter, opset)
    return folders


@pytest.fixture(scope="session")
def native():
    """Runs what may crash: native converters and runtimes."""
    # Each job imports the test's module; what that imports is forked with the host.
    preload = [
        "harness.runtimes.mnn.session",
        "harness.runtimes.mnn.convert",
        "tests.unit.nets",
    ]
    with Host("native", preload) as host:
        yield host


@pytest.fixture(scope="module")
def one_thread():
    """Networks as small as a test's wait for each other longer than they work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
