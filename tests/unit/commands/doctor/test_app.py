"""`parity doctor --app`: which runtime's version is meant, and what is refused."""

import re

import pytest

from harness.core.errors import ParityError
from harness.plugins.start.doctor.app import check_app
from harness.suite.suite import load_suite
from tests.unit.suite.pipelines import UNET

SUITE = f"{UNET}[backend.mnn]\n[backend.onnxruntime]\n[backend.openvino]\n"
BOTH = "give --app mnn=3.5.0 or --app onnxruntime=3.5.0"
REFUSED = {
    "a runtime that is misspelt": ("mmn=3.5.0", "names no runtime of"),
    "a runtime that runs only here": ("openvino=2026.4.1", "names no runtime of"),
    "a version of two runtimes": ("3.5.0", BOTH),
    "a version that one lacks": ("mnn=3.3.0", "no wheel of MNN 3.3.0 for Python"),
    "a version that all lack": (
        "9.9",
        "no wheel of MNN 9.9 .* no wheel of onnxruntime",
    ),
}


@pytest.mark.usefixtures("wheels")
@pytest.mark.parametrize("what", REFUSED)
def test_what_means_no_version_of_one_runtime_is_refused(what, tmp_path):
    (tmp_path / "parity.toml").write_text(SUITE)
    suite = load_suite(tmp_path)
    app, words = REFUSED[what]

    with pytest.raises(ParityError) as error:
        list(check_app(suite, app, str(tmp_path / "store")))

    assert re.search(words, str(error.value))
    assert not (tmp_path / "store").exists()
