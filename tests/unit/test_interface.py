"""The names that `import harness` offers: few, documented, and loaded late."""

import subprocess
import sys

import pytest

import harness

NAMES = dir(harness)


def test_they_are_at_most_twenty():
    assert 0 < len(NAMES) <= 20


@pytest.mark.parametrize("name", NAMES)
def test_each_is_there_and_documented(name):
    assert getattr(harness, name).__doc__


def test_the_package_alone_loads_no_framework():
    script = (
        "import sys, harness; "
        "heavy = {'numpy', 'torch', 'onnx', 'onnxruntime', 'MNN'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
