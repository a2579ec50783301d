"""A variant whose flags change nothing in the deployed file ends in `no-effect`."""

import pytest

VARIANTS = """
[variant.mnn.fused-nothing]
from = "fp32"
flags = ["--transformerFuse"]

[variant.mnn.rounded]
from = "fp32"
flags = ["--weightQuantBits=8"]
"""
TOLERANCES = """
[mnn.fused-nothing]
outputs = "standard"
layers = "standard"

[mnn.rounded]
outputs = "quantized"
layers = "quantized"
"""


@pytest.fixture
def ran(project):
    """A run of a decoder without attention, which has nothing to fuse."""
    for name, text in (("parity.toml", VARIANTS), ("tolerances.toml", TOLERANCES)):
        with (project.path / name).open("a", encoding="utf-8") as file:
            file.write(text)
    return project, project.parity("run", "mnn/fused-nothing", "mnn/rounded")


def test_flags_that_change_no_byte_fail_and_others_do_not(ran):
    project, ended = ran

    assert ended.code == 1, ended.text
    assert project.outcomes == {
        "vae_decoder/mnn/fused-nothing/layers": "within",
        "vae_decoder/mnn/fused-nothing/outputs": "no-effect",
        "vae_decoder/mnn/rounded/layers": "within",
        "vae_decoder/mnn/rounded/outputs": "within",
    }
    assert ended.has("the same, byte by byte, without --transformerFuse"), ended.text
