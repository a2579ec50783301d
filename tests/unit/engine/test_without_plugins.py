"""What needs a plug-in that is not installed is refused in one sentence."""

import pytest

from harness.commands.cli import main
from harness.core import plugins
from harness.core.case import Device, Target
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.runtime import runtime
from harness.engine.pythons import python_of
from harness.runtimes.driving import drive
from harness.runtimes.session import open_session
from tests.unit.suite.pipelines import UNET

TOLERANCES = '[onnxruntime.fp32]\noutputs = "standard"\nlayers = "standard"\n'


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch, tmp_path):
    monkeypatch.setattr(plugins, "_plugins", tuple)
    monkeypatch.setenv("PARITY_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parity.toml").write_text(f"{UNET}[backend.onnxruntime]\n")
    (tmp_path / "tolerances.toml").write_text(TOLERANCES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(
            ("run", "--on", "ray"),
            "--on ray needs a plug-in that runs cases on other machines",
            id="cluster",
        ),
        pytest.param(
            ("run", "--shard", "1/2"),
            "--shard: the shard '1/2' needs a plug-in",
            id="shard",
        ),
        pytest.param(
            ("store", "list", "--store", "s3://key:secret@bucket/here"),
            "the store s3://bucket/here needs a plug-in that reads stores of several",
            id="store",
        ),
    ],
)
def test_an_option_of_a_plug_in_is_refused(arguments, words, capsys, tmp_path):
    code = main([*arguments])
    said = capsys.readouterr().err
    assert code == 2
    assert said.startswith(f"parity: {words}")
    assert "none is installed" in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "reports").exists()


PHONE = Device(target=Target(name="phone", command=("adb",)))


def test_a_target_is_no_runtime_of_this_process(tmp_path):
    with (
        pytest.raises(StageError, match="'phone' cannot be reached") as refused,
        open_session("mnn", tmp_path / "model.mnn", PHONE, ["y"]),
    ):
        pass
    assert refused.value.outcome is Outcome.UNAVAILABLE


def test_a_session_of_a_target_is_not_driven_here(tmp_path):
    """Its values would pass for the target's."""
    with pytest.raises(StageError, match="'phone' cannot be reached"):
        drive(runtime("mnn"), PHONE, [tmp_path / "model.mnn"])


def test_a_version_that_nothing_installs_is_absent():
    with pytest.raises(StageError, match=r"MNN 3.4.1 needs a plug-in") as refused:
        python_of(runtime("mnn"), "3.4.1")
    assert refused.value.outcome is Outcome.ABSENT
