"""The embedded Stable Diffusion: its components and a picture, against PyTorch's."""

import pytest

from harness.suite.suite import load_suite
from tests.places import FIXTURES

DIGITS = load_suite(FIXTURES / "digits")
SUBJECTS = {*(part.name for part in DIGITS.components), "text2img"}
RUNTIMES = {"onnxruntime", "mnn"}
"""What the first minutes are for; the file next door has the rest of the suite."""

CHECKS = [
    param
    for param in DIGITS.checks()
    for case in (param.values[0].case,)
    if case.subject in SUBJECTS and case.backend in RUNTIMES
]


@pytest.mark.parity
@pytest.mark.parametrize("check", CHECKS)
def test_digits_computes_what_pytorch_does(check, parity):
    parity.require(check)
