"""`parity versions` of a case in a browser, in versions of onnxruntime-web from npm."""

from dataclasses import replace

import pytest

from harness.core.runtime import runtime
from harness.plugins.versions.command import questions, targets_of
from harness.suite.suite import load_suite

pytestmark = pytest.mark.browser

ORT = runtime("onnxruntime")
WASM = "net/onnxruntime/fp32@browser-wasm"


def test_a_version_reads_a_file_that_the_one_before_it_refuses(project, store):
    between = ("--from", "1.17.3", "--to", "1.18.0")
    ended = project.parity("versions", WASM, *between, "--store", str(store))

    assert ended.code == 2, ended.text
    rows = [line.split("  ")[:2] for line in ended.text.splitlines()]
    assert ["1.17.3", " cannot be read"] in rows, ended.text
    assert ended.has("right since 1.18.0, cannot be read in 1.17.3: onnxruntime 1.17.3")
    assert ended.has("a model of ONNX's IR version 10 or newer")
    assert "Traceback" not in ended.text
    name = f"versions-{WASM.replace('/', '-')}.html"
    assert (project.path / "reports" / name).is_file()


def test_a_version_without_a_build_for_the_device_is_an_answer(project, store):
    between = ("--from", "1.14.0", "--to", "1.14.0")
    case = WASM.replace("wasm", "webgpu")
    ended = project.parity("versions", case, *between, "--store", str(store))

    assert ended.code == 2, ended.text
    assert ended.has("1.14.0 has no build for webgpu"), ended.text
    assert "Traceback" not in ended.text


@pytest.mark.parametrize("listed", ["", 'versions = ["1.24.3", "1.30.0"]'])
def test_a_version_is_a_target_of_the_cases_table(project, tmp_path, listed):
    own = project.branch(tmp_path / "own")
    if listed:
        own.change("parity.toml", "package = ", f"{listed}\n#")
    cases = [one for one in load_suite(own.path).cases if one.id.startswith(WASM)]
    assert len(cases) == (2 if listed else 1)
    for case in cases:
        target = targets_of(case, ORT)["1.27.0"]
        ((question, there),) = questions(case, ORT, target)
        assert question == "run there"
        assert there.id == f"{WASM}-1.27.0"
        assert (target.version, target.table) == ("1.27.0", "browser")
        assert "package" not in dict(target.settings)
        assert there.device == replace(case.device, target=target)
