"""Further sizes of a foreign file."""

import onnx

from harness.suite.suite import load_suite

SEQUENCES = """
components = ["net"]
[component.net]
onnx = "net.onnx"
[[shapes]]
b = 2
t = 5
[inputs]
profiles = ["realistic"]
realistic = 1
[backend.mnn]
"""


def test_a_size_that_several_rows_add_is_added_once(tmp_path):
    """Where sides and the batch are tried separately, the sides may come again."""
    graph = "agraph (float[b, t, 8] x) => (float[b, t, 8] y) { y = Tanh (x) }"
    text = f'<ir_version: 9, opset_import: ["" : 17]> {graph}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    (path := tmp_path / "parity.toml").write_text(SEQUENCES, encoding="utf-8")

    for case in load_suite(path).cases:
        assert len({sample.id for sample in case.samples}) == len(case.samples)
