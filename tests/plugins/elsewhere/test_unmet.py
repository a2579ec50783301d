"""What a runtime took in place of what was asked for is said, not run over."""

import pytest

from harness.plugins.elsewhere import bundle_run
from harness.runtimes.mnn import driver as mnn
from harness.runtimes.mnn import session
from harness.runtimes.onnxruntime.driver import CPU, OrtDriver

CUDA = "CUDAExecutionProvider"


@pytest.mark.parametrize(
    ("provider", "told", "words"),
    [
        (CPU, {"providers": [CPU], "outputs": ["y"]}, ""),
        (CUDA, {"providers": [CUDA, CPU], "outputs": ["y"]}, ""),
        (CUDA, {"providers": [CPU], "outputs": ["y"]}, f"for {CUDA} and runs on {CPU}"),
        (CUDA, {"providers": [CPU], "outputs": []}, f"for {CUDA} and has {CPU}"),
        (CUDA, {"providers": [], "outputs": []}, f"for {CUDA} and has"),
    ],
)
def test_another_provider_than_the_one_asked_for_is_named(provider, told, words):
    unmet = OrtDriver().unmet({"provider": provider}, told)
    assert words in unmet
    assert bool(words) == bool(unmet)


@pytest.mark.parametrize(
    ("backend", "got", "words"),
    [
        ("CPU", 0, ""),
        ("CPU", 13, ""),
        ("OPENCL", 3, ""),
        ("OPENCL", 13, "for OPENCL and runs on CPU"),
        ("VULKAN", 3, "for VULKAN and runs on OPENCL"),
        ("CUDA", 99, "for CUDA and runs on backend type 99"),
    ],
)
def test_another_backend_than_the_one_asked_for_is_named(backend, got, words):
    asked = {"config": {"backend": backend}}
    unmet = mnn.MnnDriver().unmet(asked, {"backend": got})
    assert words in unmet
    assert bool(words) == bool(unmet)


def test_the_driver_of_mnn_knows_the_numbers_that_a_session_takes():
    own = session._FORWARD_TYPES
    assert {name.upper(): types for name, types in own.items()} == mnn.BACKENDS


@pytest.mark.parametrize("do", ["run", "watch"])
def test_an_error_code_of_a_run_ends_the_script(do):
    with pytest.raises(SystemExit, match="error code 3"):
        bundle_run._check(None, do, {}, {"code": 3, "api": "session"})
