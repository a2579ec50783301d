"""What pytest itself prints and limits, where a suite's tests run in it."""

import sys

import pytest

pytestmark = pytest.mark.slow

PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")

TIMER = """
import pytest
from pathlib import Path

class Spec:
    @pytest.hookspec(firstresult=True)
    def pytest_timeout_cancel_timer(item): pass

def pytest_addhooks(pluginmanager):
    pluginmanager.add_hookspecs(Spec)

def pytest_timeout_cancel_timer(item):
    Path(__file__).with_name("taken-back").write_text(item.name)
    return True
"""


def test_the_line_of_a_failure_keeps_its_reason_in_80_columns(quick):
    bound = "--parity-set=floors=0.001"
    ended = quick.run("env", "-u", "CI", "COLUMNS=80", *PYTEST, "-k", "outputs", bound)
    (line,) = (one for one in ended.text.splitlines() if one.startswith("FAILED"))
    assert "first diverges at " in line
    assert "allowed" in line


def test_the_timer_of_pytest_timeout_is_taken_back_where_a_case_is_waited_for(quick):
    (quick.path / "conftest.py").write_text(TIMER)
    quick.run(*PYTEST).check(0)
    assert "vae_decoder/onnxruntime" in (quick.path / "taken-back").read_text()
