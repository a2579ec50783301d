"""Fixtures for the sessions of every runtime."""

import pytest

from harness.engine.export_files import MODEL
from tests.unit import nets


@pytest.fixture(scope="module")
def job(native):
    """Run a function in a process of its own, and return its value."""

    def call(function, *arguments, **keywords):
        done = native.run(function, *arguments, timeout_s=120, label="test", **keywords)
        return done.value

    return call


@pytest.fixture(scope="module")
def mnn_file(blocks_files, tmp_path_factory, job):
    """The small network's file for MNN."""
    source = blocks_files["dynamo"] / MODEL
    return job(nets.to_mnn, source, tmp_path_factory.mktemp("mnn"))


@pytest.fixture
def feeds():
    return nets.feeds(nets.BLOCKS)
