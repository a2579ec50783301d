"""What a deployed file really is: flags without effect, and the bits of its layers."""

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


@pytest.fixture(scope="module")
def ran(passing, tmp_path_factory):
    """A run of a decoder without attention, which has nothing to fuse."""
    project = passing[0].branch(tmp_path_factory.mktemp("no-effect") / "project")
    project.add("parity.toml", VARIANTS)
    project.add("tolerances.toml", TOLERANCES)
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
    assert not ended.has("parity explain"), ended.text  # it has no more to say


def test_the_bits_that_a_file_really_stores_are_shown(ran):
    project, _ = ran
    (layers,) = project.case("vae_decoder/mnn/rounded")["artifacts"]["mnn"]["meta"][
        "bits"
    ].items()
    shown = project.parity("show", "last", "vae_decoder/mnn/rounded")
    assert layers[0] == "8"
    assert shown.has(f"stores the weights of {layers[1]} layers in 8 bits"), shown.text
