"""`harness.core.lookups`: the rows that an exported file's inputs look up."""

from pathlib import Path

import onnx
import pytest

from harness.core.errors import SuiteError
from harness.core.lookups import rows_looked_up

EXPORTED = Path(__file__).parents[3] / "fixtures" / "exported"
NET = """
<ir_version: 9, opset_import: ["" : 17]>
net (int64[N, T] ids, int64[N, T] kinds, float[N] scale) => (float out)
<
    float[50, 2] words, float[40, 2] places, int8[7, 2] types,
    float step, int8 zero, int64[1] axes = {0}
>
{
    cast = Cast <to = 6> (ids)
    wider = Unsqueeze (cast, axes)
    looked = Gather (words, wider)
    again = Gather (places, ids)
    table = DequantizeLinear (types, step, zero)
    typed = Gather (table, kinds)
    sum = Add (looked, typed)
    all = Add (sum, again)
    out = ReduceSum <keepdims = 0> (all)
}
"""


def saved(folder):
    path = folder / "model.onnx"
    model = onnx.parser.parse_model(NET)
    for name, rows in (("words", 50), ("places", 40), ("types", 7)):
        kind = onnx.TensorProto.INT8 if name == "types" else onnx.TensorProto.FLOAT
        weight = onnx.helper.make_tensor(name, kind, (rows, 2), [0] * rows * 2)
        model.graph.initializer.append(weight)
    onnx.save(model, path)
    return path


def test_an_input_is_held_below_the_shortest_table_that_it_reaches(tmp_path):
    assert rows_looked_up(saved(tmp_path)) == {"ids": 40, "kinds": 7}


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("txtai/pooling", {"input_ids": 64, "token_type_ids": 2}),
        ("optimum/text_encoder/model", {"input_ids": 98}),
        ("optimum/unet/model", {}),
    ],
)
def test_it_reads_files_of_real_exporters(name, rows):
    assert rows_looked_up(EXPORTED / f"{name}.onnx") == rows


def test_a_file_that_is_cut_short_is_refused(tmp_path):
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes()[:-40])

    with pytest.raises(SuiteError, match="is no ONNX file, or is cut short"):
        rows_looked_up(path)
