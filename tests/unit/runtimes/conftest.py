"""Fixtures for the sessions of every runtime."""

import pytest

from tests.unit import nets


@pytest.fixture(scope="module")
def job(native):
    """Run a function in a process of its own, and return its value."""

    def call(function, *arguments, **keywords):
        done = native.run(function, *arguments, timeout_s=120, label="test", **keywords)
        return done.value

    return call


@pytest.fixture
def feeds():
    return nets.feeds(nets.BLOCKS)
