"""Foreign models in a suite: their names and their components."""

import onnx
import pytest

from harness.core.errors import SuiteError
from harness.suite.suite import load_suite
from tests.places import EXPORTED

PROFILES = '[variant.onnxruntime.given]\nprofiles = ["realistic", "boundary"]\n'


@pytest.fixture
def load(tmp_path):
    """Returns the suite of Optimum's files with some words of it changed."""

    def load(old, new):
        text = (EXPORTED / "parity.toml").read_text()
        for name in ("sd", "optimum"):
            text = text.replace(f'"{name}', f'"{EXPORTED}/{name}')
        assert old in text
        (tmp_path / "parity.toml").write_text(text.replace(old, new))
        return load_suite(tmp_path)

    return load


def test_a_file_as_it_is_takes_profiles_under_the_name_that_tolerances_have(load):
    suite = load("[backend.mnn]", f"{PROFILES}[backend.mnn]")
    profiles = {
        case.id: {sample.profile for sample in case.samples} for case in suite.cases
    }

    assert profiles["unet/onnxruntime/given"] == {"realistic", "boundary"}
    assert profiles["unet/mnn/fp32"] == {"realistic"}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        pytest.param(
            '[variant.mnn.given]\nprofiles = ["boundary"]\n',
            "no \\[component.\\*\\] takes one that mnn runs",
            id="no-such-file",
        ),
        pytest.param(
            '[variant.onnxruntime.given]\nfrom = "fp16"\n',
            "it takes `profiles` alone",
            id="made-from",
        ),
    ],
)
def test_a_file_as_it_is_is_there_and_is_not_made(table, message, load):
    with pytest.raises(SuiteError, match=rf"parity.toml:\d+: .*{message}"):
        load("[backend.mnn]", f"{table}[backend.mnn]")


@pytest.mark.parametrize(
    "setting",
    [
        "opset = 14",
        'exporter = "torchscript"',
        'dynamic_axes = ["batch"]',
        "external_data = true",
        "keep_paths = true",
        "optimize = false",
    ],
)
def test_a_finished_file_takes_no_setting_of_an_export(setting, load):
    table = "[component.unet]"
    key = setting.partition(" ")[0]
    message = (
        rf"parity.toml:\d+: '{key}' is a setting of an export, and \[component.unet\] "
        "takes the finished file model.onnx"
    )
    with pytest.raises(SuiteError, match=message):
        load(table, f"{table}\n{setting}")


def test_a_finished_file_may_say_which_attention_pytorchs_module_has(load):
    suite = load("[component.unet]", '[component.unet]\nattention = "eager"')
    exports = {case.component.name: case.export.attention for case in suite.cases}

    assert exports["unet"] == "eager"


@pytest.mark.parametrize("where", ["[component.net]", "[export]"])
@pytest.mark.parametrize("setting", ['attention = "eager"', "opset = 20"])
def test_without_a_source_no_setting_of_an_export_is_taken(tmp_path, where, setting):
    alone(tmp_path, 17)
    path = tmp_path / "parity.toml"
    text = path.read_text()
    if where not in text:
        text += f"{where}\n"
    path.write_text(text.replace(where, f"{where}\n{setting}"))

    with pytest.raises(SuiteError, match="is a setting of an export"):
        load_suite(tmp_path)


@pytest.mark.parametrize(("opset", "translated"), [(17, 18), (20, 20), (23, 23)])
def test_pytorchs_module_is_translated_for_the_opset_of_the_file(
    tmp_path, opset, translated
):
    alone(tmp_path, opset)
    (case,) = load_suite(tmp_path).cases

    assert case.export.opset == translated


def alone(folder, opset):
    """Write a suite of one ONNX file, without a [source]."""
    graph = "agraph (float[b, 8] x) => (float[b, 8] y) { y = Tanh (x) }"
    text = f'<ir_version: 9, opset_import: ["" : {opset}]> {graph}'
    onnx.save(onnx.parser.parse_model(text), folder / "net.onnx")
    (folder / "parity.toml").write_text(
        'components = ["net"]\n[component.net]\nonnx = "net.onnx"\n'
        "[[shapes]]\nb = 2\n[backend.onnxruntime]\n"
    )


def test_a_file_of_another_component_is_named_with_its_own_table(load):
    with pytest.raises(SuiteError) as error:
        load("optimum/unet/", "optimum/vae_decoder/")

    assert str(error.value).endswith(
        "Those are the names of 'vae_decoder': this file belongs under "
        "[component.vae_decoder], and not under [component.unet]."
    )
