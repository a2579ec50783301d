"""A store that is filled once, and the runs that several tests read."""

import sys

import fsspec
import pytest

from tests.plugin.bucket import SECRETS, Server, free_port
from tests.plugin.drawing import write_drawing, write_wrong
from tests.plugin.project import write_project


@pytest.fixture(scope="session")
def store(shared_store):
    """The store that commands use; the first run of them fills it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARITY_STORE", str(shared_store))
        for name in ("GITHUB_STEP_SUMMARY", "PYTEST_ADDOPTS", "FORCE_COLOR"):
            patch.delenv(name, raising=False)
        yield shared_store


@pytest.fixture(scope="session")
def passing(store, tmp_path_factory):  # noqa: ARG001  # which it fills
    """A run in which every case agrees; it makes what the store lacks."""
    project = write_project(tmp_path_factory.mktemp("passing"))
    return project, project.start_pytest()


@pytest.fixture(scope="session")
def failing(passing, tmp_path_factory):  # noqa: ARG001  # it fills the store
    """A run in which one case of three differs, with a JUnit file."""
    project = write_project(tmp_path_factory.mktemp("failing"))
    project.tighten()
    return project, project.pytest("--junitxml=junit.xml")


@pytest.fixture
def project(passing, tmp_path):  # noqa: ARG001  # it fills the store
    """A project of one's own, on the warm store."""
    return write_project(tmp_path / "project")


@pytest.fixture
def quick(project):
    """One with a single case, for what does not depend on the runtime."""
    project.only_onnxruntime()
    return project


@pytest.fixture
def without_mnn(monkeypatch):
    """MNN looks as if it were not installed."""
    monkeypatch.setitem(sys.modules, "MNN", None)


@pytest.fixture(scope="session")
def drawn(store, tmp_path_factory):  # noqa: ARG001  # which it fills
    """A run of a component and a pipeline that agree, with a JUnit file."""
    project = write_drawing(tmp_path_factory.mktemp("drawn"))
    return project, project.pytest("--junitxml=junit.xml")


@pytest.fixture(scope="session")
def misdrawn(store, tmp_path_factory):  # noqa: ARG001  # which it fills
    """A run of pipelines that go wrong, each in a way of its own."""
    project = write_wrong(tmp_path_factory.mktemp("misdrawn"))
    return project, project.pytest("-k", "not vae_decoder", "--junitxml=junit.xml")


@pytest.fixture
def drawing(store, tmp_path):  # noqa: ARG001  # it is filled when first needed
    """A project of one's own, whose pipeline runs in ONNX Runtime alone."""
    project = write_drawing(tmp_path / "drawing")
    project.only_onnxruntime()
    return project


@pytest.fixture
def server(monkeypatch):
    """A server of S3 with one bucket; stop it and start it again."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    for name, value in {
        "AWS_ACCESS_KEY_ID": SECRETS[0],
        "AWS_SECRET_ACCESS_KEY": SECRETS[1],
        "AWS_DEFAULT_REGION": "us-east-1",
        "FSSPEC_S3_ENDPOINT_URL": address,
    }.items():
        monkeypatch.setenv(name, value)
    # fsspec read the environment when it was imported.
    monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": address})
    made = Server(port, address)
    made.start()
    made.bucket("parity")
    yield made
    made.stop()
