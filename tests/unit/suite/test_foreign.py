"""Foreign models in a suite: their names and their components."""

import pytest

from harness.commands.explain.setting_changes import plain_variant
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


def test_the_other_runtime_has_a_file_under_its_own_name(load):
    suite = load("[backend.mnn]", "[backend.mnn]")
    of_mnn = next(case for case in suite.cases if case.id == "unet/mnn/fp32")

    assert plain_variant(of_mnn, "onnxruntime").name == "given"
    assert plain_variant(of_mnn, "mnn").name == "fp32"


def test_a_file_of_another_component_is_named_with_its_own_table(load):
    with pytest.raises(SuiteError) as error:
        load("optimum/unet/", "optimum/vae_decoder/")

    assert str(error.value).endswith(
        "Those are the names of 'vae_decoder': this file belongs under "
        "[component.vae_decoder], and not under [component.unet]."
    )
