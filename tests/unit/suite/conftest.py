"""Fixtures of suites with pipelines: read one, read its pipeline, or see it refused."""

import re

import pytest

from harness.core.errors import SuiteError
from harness.suite.suite import load_suite
from tests.unit.suite.pipelines import SUITE


@pytest.fixture
def load(tmp_path):
    def load(pipelines, suite=SUITE):
        (tmp_path / "parity.toml").write_text(suite + pipelines, encoding="utf-8")
        return load_suite(tmp_path)

    return load


@pytest.fixture
def pipeline(load):
    return lambda text: load(text).pipeline_cases[0].pipeline


@pytest.fixture
def refused(load):
    """Checks that a text is refused in one sentence about one of its lines."""

    def refused(text, line, said):
        with pytest.raises(SuiteError) as caught:
            load(text)
        message = str(caught.value)
        where = re.match(r".*parity\.toml:(\d+): ", message)
        assert where, message
        assert int(where[1]) == line, message
        assert said in message
        assert "\n" not in message

    return refused
