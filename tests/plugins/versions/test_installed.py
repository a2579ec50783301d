"""Versions of MNN that the package index offers, in environments of their own."""

import re

import pytest

from tests.plugin.project import write_project

pytestmark = pytest.mark.targets
CASE = "vae_decoder/mnn/fp32"
UNREAD = "MNN 3.4.1 cannot read model.mnn, which the converter of MNN "


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project whose versions are installed; skipped where that cannot be done."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARITY_STORE", str(tmp_path_factory.mktemp("store")))
        project = write_project(tmp_path_factory.mktemp("versions"))
        project.change("parity.toml", '"fp32", "int8-weights"', '"fp32"')
        # The operator Shape, which an open size needs, has a new form since MNN 3.5.0.
        project.change("parity.toml", "dynamic_axes = []", 'dynamic_axes = ["batch"]')
        ended = project.parity("doctor", "--app", "mnn=3.4.1")
        if ended.has("the package index cannot be reached"):
            pytest.skip(f"no versions here: {ended.text.strip()}")
        assert "Traceback" not in ended.text
        yield project


def test_a_new_file_does_not_load_in_an_old_version_and_doctor_says_so(project):
    old = project.parity("doctor", "--app", "mnn=3.4.1")
    new = project.parity("doctor", "--app", "mnn=3.5.0")
    assert old.code == 1, old.text
    assert old.has(UNREAD), old.text
    assert new.code == 0, new.text
    assert new.has(f"{CASE} MNN 3.5.0 loads its file"), new.text


def test_the_versions_of_a_case_answer_two_questions(project):
    ended = project.parity("versions", CASE, "--from", "3.4.1", "--to", "3.5.0")
    rows = [
        re.split(" {2,}", line) for line in ended.text.splitlines() if line[:2] == "3."
    ]

    assert ended.code == 2, ended.text  # of one file nothing is known
    assert [row[0] for row in rows] == ["3.4.1", "3.5.0"], ended.text
    assert all(row[1].startswith("right, ") for row in rows), ended.text
    assert ended.has("cannot be read in 3.4.1: " + UNREAD), ended.text
    assert (project.path / "reports" / "versions-vae_decoder-mnn-fp32.html").is_file()


def test_a_converter_and_a_runtime_of_old_versions_are_cases_of_a_suite(project):
    said = '[backend.mnn]\nconverter = "3.4.1"\nversions = ["3.4.1"]\n'
    own = project.branch(project.path.parent / "branch")
    own.change("parity.toml", "[backend.mnn]\n", said)
    ended = own.parity("run", "vae_decoder/mnn")
    found = {one["case"]: one for one in own.report["cases"]}

    assert ended.code == 0, ended.text
    assert found[CASE]["ran"]["version"] != "3.4.1"
    assert found[f"{CASE}@3.4.1"]["ran"]["version"] == "3.4.1"
    made = [one["artifacts"]["mnn"]["meta"]["converter"] for one in found.values()]
    assert made == ["3.4.1", "3.4.1"]


def test_a_version_that_does_not_exist_is_no_parity_and_no_skip(project):
    own = project.branch(project.path.parent / "absent")
    own.change("parity.toml", "[backend.mnn]\n", '[backend.mnn]\nversions = ["9.9"]\n')
    ended = own.parity("run", f"{CASE}@9.9")
    assert ended.code == 2, ended.text
    assert ended.has("The package index has no wheel of MNN 9.9 for Python"), ended.text
    assert "Traceback" not in ended.text
