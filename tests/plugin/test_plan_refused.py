"""`parity plan` refuses in a sentence what it cannot plan, and writes nothing."""

import pytest

from tests.plugin.drawing import write_drawing
from tests.plugin.planted import write_planted
from tests.plugin.project import Project, called, unchanged

OUTPUTS = ("--within", "sqnr_db=25")


@pytest.fixture(scope="module")
def suites(tmp_path_factory):
    """A suite of components alone, and one whose pipeline has another's role."""
    folder = tmp_path_factory.mktemp("refused")
    alone = write_planted(folder / "alone", {"net": {}}, ("onnxruntime",))
    Project(alone).add(
        "parity.toml",
        '[backend.openvino]\nvariants = ["fp32"]\n'
        '[backend.mnn]\ntargets = ["phone"]\n[target.phone]\ncommand = ["a-phone"]\n',
    )
    drawing = write_drawing(folder / "drawing")
    drawing.only_onnxruntime()
    drawing.change(
        "parity.toml",
        'components = ["vae_decoder"]',
        'components = ["vae_decoder", "vae_encoder", "second"]',
    )
    drawing.change(
        "parity.toml",
        "[backend.onnxruntime]",
        '[component.second]\nrecipe = "vae_decoder"\n\n[backend.onnxruntime]',
    )
    return {"alone": alone, "drawing": drawing.path}


REFUSED = {
    "no objective": (
        "alone",
        ("net", *OUTPUTS, "--objective", "speed"),
        "'speed' is not one of 'size', 'time'.",
    ),
    "no mixed precision": (
        "alone",
        ("net", *OUTPUTS, "--backend", "openvino"),
        (
            "OpenVINO gives every layer of a file the same precision here, so there is "
            "nothing to choose; take --backend"
        ),
    ),
    "targets alone": (
        "alone",
        ("net", *OUTPUTS, "--backend", "mnn", "--objective", "time"),
        "net runs in mnn on targets alone",
    ),
    "no layer needs more bits": (
        "alone",
        ("net", "--within", "sqnr_db=5", "--backend", "onnxruntime"),
        "int8-weights itself holds this bound, also on inputs",
    ),
    "no component": ("alone", ("nett", *OUTPUTS), "did you mean 'net'?"),
    "no pipeline of that name": (
        "drawing",
        ("vae_decoder", "--within", "image", "--pipeline", "text2image"),
        "did you mean 'text2img'?",
    ),
    "a pipeline without the role": (
        "drawing",
        ("vae_encoder", "--within", "image", "--pipeline", "text2img"),
        "the pipeline 'text2img' lacks vae_encoder in onnxruntime",
    ),
    "a pipeline with another component": (
        "drawing",
        ("second", "--within", "image"),
        (
            "text2img has vae_decoder in the role vae_decoder, and not second; plan "
            "vae_decoder, or take --within outputs."
        ),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_planned_is_refused_in_a_sentence(suites, what):
    suite, options, words = REFUSED[what]
    with unchanged(suites[suite]):
        called(suites[suite], "plan", *options).check(2, words)
