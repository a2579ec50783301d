"""A folder of ONNX files, of which some cannot be tested or have unusual inputs."""

import onnx
import onnx.parser
import pytest

from harness.core.errors import SuiteError
from harness.plugins.start.init.write import write_suite
from harness.recipes.inputs import draw
from harness.suite.suite import load_suite

HEAD = '<ir_version: 9, opset_import: ["" : 17]> agraph '
GRAPHS = {
    "plain": "(float[batch, 8] x) => (float[batch, 8] y) { y = Tanh (x) }",
    "masked": "(bool[batch, 8] keep, float[batch, 8] x) => (float[batch, 8] y)"
    " <float z = {0.0}> { y = Where (keep, x, z) }",
    "wide": "(double[batch, 8] x) => (float[batch, 8] y) { y = Cast <to = 1> (x) }",
    "text": "(string[batch, 8] x) => (string[batch, 8] y) { y = Identity (x) }",
}


def suite_of(tmp_path, *names):
    """What `parity init` reads of a folder with these files, and what it notes."""
    (folder := tmp_path / "files").mkdir()
    for name in names:
        onnx.save(onnx.parser.parse_model(HEAD + GRAPHS[name]), folder / f"{name}.onnx")
    notes: list[str] = []
    write_suite(folder, tmp_path / "suite", on_notice=notes.append)
    return load_suite(tmp_path / "suite" / "parity.toml"), notes


@pytest.mark.parametrize(
    ("name", "dtypes"), [("masked", {"bool", "float32"}), ("wide", {"float64"})]
)
def test_an_input_of_booleans_or_of_64_bits_is_drawn_as_it_is(tmp_path, name, dtypes):
    suite, _ = suite_of(tmp_path, name)
    case = suite.cases[0]

    drawn = draw(case.component, case.samples[0])

    assert {value.dtype.name for value in drawn.values()} == dtypes
    assert all(len(set(value.flat)) > 1 for value in drawn.values())


def test_a_file_that_cannot_be_tested_ends_no_other(tmp_path):
    suite, notes = suite_of(tmp_path, "plain", "text")

    assert {case.component.name for case in suite.cases} == {"plain"}
    assert len(notes) == 1
    assert notes[0].startswith("left out text.onnx: input 'x' is string [batch, 8]")


def test_a_folder_without_any_file_to_test_is_refused(tmp_path):
    with pytest.raises(SuiteError, match="input 'x' is string"):
        suite_of(tmp_path, "text")
