"""`parity plan` refuses in a sentence what it cannot plan, and writes nothing."""

import pytest

from tests.plugin.drawing import only_onnxruntime, write_drawing
from tests.plugin.planted import write_planted
from tests.plugin.project import called

OUTPUTS = ("--within", "sqnr_db=25")


@pytest.fixture(scope="module")
def suites(tmp_path_factory):
    """A suite of components alone, and one whose pipeline has another's role."""
    folder = tmp_path_factory.mktemp("refused")
    alone = write_planted(folder / "alone", {"net": {}}, ("onnxruntime",))
    (alone / "parity.toml").write_text(
        (alone / "parity.toml").read_text()
        + '[backend.openvino]\nvariants = ["fp32"]\n'
        + '[backend.mnn]\ntargets = ["phone"]\n[target.phone]\ncommand = ["a-phone"]\n'
    )
    drawing = write_drawing(folder / "drawing")
    only_onnxruntime(drawing)
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


@pytest.mark.parametrize(
    ("suite", "options", "words"),
    [
        pytest.param(
            "alone",
            ("net", *OUTPUTS, "--objective", "speed"),
            "'speed' is not one of 'size', 'time'.",
            id="no-objective",
        ),
        pytest.param(
            "alone",
            ("net", *OUTPUTS, "--backend", "openvino"),
            "OpenVINO gives every layer of a file the same precision here, so there is "
            "nothing to choose; take --backend",
            id="no-mixed-precision",
        ),
        pytest.param(
            "alone",
            ("net", *OUTPUTS, "--backend", "mnn", "--objective", "time"),
            "net runs in mnn on targets alone",
            id="targets-alone",
        ),
        pytest.param(
            "alone",
            ("net", "--within", "sqnr_db=5", "--backend", "onnxruntime"),
            "int8-weights itself holds this bound, also on inputs",
            id="no-layer-needs-more-bits",
        ),
        pytest.param(
            "alone",
            ("net", "--within", "image", "--backend", "onnxruntime"),
            "no pipeline of parity.toml has planted in onnxruntime",
            id="no-pipeline",
        ),
        pytest.param(
            "drawing",
            ("vae_encoder", "--within", "image", "--pipeline", "text2img"),
            "the pipeline 'text2img' lacks vae_encoder in onnxruntime",
            id="pipeline-without-the-role",
        ),
        pytest.param(
            "drawing",
            ("second", "--within", "image"),
            "text2img has vae_decoder in the role vae_decoder, and not second; plan "
            "vae_decoder, or take --within outputs.",
            id="pipeline-with-another-component",
        ),
    ],
)
def test_what_cannot_be_planned_is_refused_in_a_sentence(suites, suite, options, words):
    folder = suites[suite]
    before = {path: path.read_bytes() for path in folder.glob("*.*")}

    ended = called(folder, "plan", *options)

    assert ended.code == 2, ended.text
    assert ended.has(words), ended.text
    assert {path: path.read_bytes() for path in folder.glob("*.*")} == before
