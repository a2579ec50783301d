"""Fixtures that several unit tests share: small exports, made once."""

import os

# Before anything imports onnxruntime, which would start a thread and post.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import pytest

from harness.engine.host import Host
from tests.unit import nets

MNN_VERSIONS = ("3.4.1", "3.5.0", "3.10.0")


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


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder in the place of the package index; pip reads names of files alone."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("PARITY_STORE", str(tmp_path / "store"))
    return folder


@pytest.fixture
def wheels(index):
    for version in MNN_VERSIONS:
        (index / f"MNN-{version}-py3-none-any.whl").touch()
    (index / "onnxruntime-1.20.1-py3-none-any.whl").touch()
    (index / "onnxruntime-3.5.0-py3-none-any.whl").touch()  # as MNN has
    (index / "MNN-3.2.0-cp27-cp27m-any.whl").touch()  # of a Python that nobody has
    return index
