"""Drawn excerpts keep what describes a graph, and nothing of a checkpoint."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from harness.core.errors import StageError
from harness.core.probes import Probe, ValueKind, load_probes, save_probes
from harness.engine.export_files import MODEL, PROBES
from harness.engine.store import Store
from harness.measure.align import wanted_values
from harness.measure.named_arrays import save_arrays
from harness.measure.trace import TraceWriter, arrays_of, open_trace
from harness.plugins.explain.excerpt import REDRAWN, Redraw
from harness.plugins.explain.redraw import redraw_excerpt

LIKE = Redraw(style="like")
RNG = np.random.default_rng(7)
TRAINED = RNG.standard_normal((16, 8)).astype(np.float32)
X = RNG.standard_normal((2, 16)).astype(np.float32)

TABLE = np.array([1, 16, -1])
BRANCHES = """
    c = ReduceMax<keepdims=0>(x)
    b = Cast<to=9>(c)
    out = If(b) <
        then_branch = t () => (float a) {a = Identity(x)},
        else_branch = e () => (float a) {a = Neg(x)}
    >
"""


def of(array):
    kinds = {"f": "float", "i": "int64", "b": "bool"}
    kind = "int32" if array.dtype == np.int32 else kinds[array.dtype.kind]
    return f"{kind}[{','.join(map(str, array.shape))}]"


class Drawn:
    """A graph in ONNX's text form, with drawn numbers."""

    def __init__(  # noqa: PLR0917  # most tests name two
        self, folder, text, inputs, how=LIKE, out="float", was=0.0, **weights
    ):
        given = ", ".join(f"{of(array)} {name}" for name, array in inputs.items())
        head = '<ir_version: 9, opset_import: ["" : 21]>'
        model = parser.parse_model(f"{head} g ({given}) => ({out} out) {{ {text} }}")
        model.graph.initializer.extend(
            numpy_helper.from_array(array, name) for name, array in weights.items()
        )
        probe = Probe(name="secret", position=0, kind=ValueKind.MOVE)

        def build(path):
            onnx.save(model, path / MODEL)
            save_probes([probe], path / PROBES)
            save_arrays(inputs, path)
            writer = TraceWriter(path)
            writer.add("secret", np.full(1, was, np.float32))
            writer.close({})
            none: dict[str, object] = {key: {} for key in ("given", "kept")}
            none |= {name: [] for name in ("begins", "inputs", "outputs")}
            return {**none, "nodes": 1}

        store = Store(root=folder)
        entry = store.make("excerpt", {"text": text}, build)
        self.entry = REDRAWN.make(
            store, lambda made: redraw_excerpt(made, entry, how), entry, asdict(how)
        )
        self.model = onnx.load(self.entry.file(MODEL))
        self.weights = [
            numpy_helper.to_array(one) for one in self.model.graph.initializer
        ]
        self.inputs = list(arrays_of(self.entry).values())


def test_weights_and_inputs_are_others_of_the_same_sizes(tmp_path):
    drawn = Drawn(tmp_path, "out = MatMul(x, w)", {"x": X}, w=TRAINED)
    for old, new in ((TRAINED, drawn.weights[0]), (X, drawn.inputs[0])):
        assert new.shape == old.shape
        assert not np.isin(new, old).any()
        assert 0.4 < new.std() / old.std() < 2.5


def test_the_sizes_that_a_table_alone_has_are_known(tmp_path):
    text = "y = MatMul(x, w) out = Reshape(y, shape)"
    drawn = Drawn(tmp_path, text, {"x": X[:, :6]}, w=TRAINED[:6], shape=TABLE)
    assert drawn.entry.meta["sizes"] == [16, 8, 6]


def test_one_number_becomes_another_of_its_size_and_no_power_of_two(tmp_path):
    step = np.array([500, 500, 500])
    drawn = Drawn(tmp_path, "out = Cast<to=1>(t)", {"t": step})
    assert 256 < drawn.inputs[0].max() <= 500


def test_sizes_change_in_inputs_weights_and_tables(tmp_path):
    drawn = Drawn(
        tmp_path,
        "y = MatMul(x, w) out = Reshape(y, shape)",
        {"x": X},
        Redraw(style="like", sizes=((16, 6), (8, 4))),
        w=TRAINED,
        shape=np.array([1, 2, 8]),
    )

    assert [one.shape for one in drawn.inputs] == [(2, 6)]
    assert drawn.weights[0].shape == (6, 4)
    assert drawn.weights[1].tolist() == [1, 2, 4]


def test_a_size_that_an_earlier_operator_made_changes_where_the_cut_begins(tmp_path):
    text = "big = Concat<axis=1>(x, x) v = Relu(big) out = Neg(v)"
    how = Redraw(style="like", sizes=((32, 4),), begins=("v0",))
    drawn = Drawn(tmp_path, text, {"x": X}, how)
    assert [one.shape for one in drawn.inputs] == [(2, 4)]
    assert [node.op_type for node in drawn.model.graph.node] == ["Relu", "Neg"]


def test_even_numbers_are_one_along_the_last_axis(tmp_path):
    drawn = Drawn(tmp_path, "out = Neg(x)", {"x": X}, Redraw(style="even"))
    rows = drawn.inputs[0]
    assert (rows == rows[:, :1]).all()
    assert rows[0, 0] != rows[1, 0]


def test_where_the_users_value_was_not_finite_a_drawn_one_need_not_be(tmp_path):
    drawn = Drawn(tmp_path, "out = Log(x)", {"x": X}, was=np.nan)
    trace = open_trace(drawn.entry.path)
    assert 0 < np.isnan(trace["secret"]).sum() < X.size
    assert 0 < trace.floor_rms("secret") < 1e-6


@pytest.mark.parametrize(
    ("text", "weight", "kept"),
    [
        (
            "r = DequantizeLinear(w, s) out = Add(x, r)",
            np.arange(3, 19, dtype=np.int32) ** 2,
            False,
        ),
        ("out = Gather<axis=1>(x, w)", RNG.permutation(16).astype(np.int64), False),
        ("out = Reshape(x, w)", np.array([1, 2, 16, 1, 1, 1, 1, 1, 1, 1]), True),
        ("out = ReduceSum<keepdims=1>(x, w)", np.array([0, 1]), True),
        ("out = Gather<axis=1>(x, w)", np.array([3, 1, 5]), True),
        ("out = Mul(x, w)", np.array(0.125, np.float32), True),
        ("out = Mul(x, w)", np.array(0.13481377, np.float32), False),
        ("out = Max(x, w)", np.array(np.finfo(np.float32).min), True),
    ],
    ids=[
        *("bias in int32", "permutation", "shape", "axes", "few indices"),
        *("plain number", "trained number", "stands for minus infinity"),
    ],
)
def test_only_sizes_and_plain_numbers_are_kept(tmp_path, text, weight, kept):
    more = {"s": np.array(0.5, np.float32)} if "(w, s)" in text else {}
    drawn = Drawn(tmp_path, text, {"x": X}, w=weight, **more)
    assert np.array_equal(drawn.weights[0], weight) == kept


def test_the_factors_of_a_resize_are_kept(tmp_path):
    x = X.reshape(1, 2, 4, 4)
    factors = np.array([1, 1, 2, 2], np.float32)
    text = 'out = Resize<mode="nearest">(x, , f)'
    assert Drawn(tmp_path, text, {"x": x}, f=factors).weights[0].tolist() == [
        *(1, 1, 2, 2)
    ]


@pytest.mark.parametrize("dtype", [np.bool_, np.float32])
def test_a_mask_stays_one_and_is_causal(tmp_path, dtype):
    mask = np.tri(16, dtype=bool)[None]
    given = mask if dtype is np.bool_ else np.where(mask, 0, -np.inf).astype(dtype)
    text = "out = Where(m, x, x)" if dtype is np.bool_ else "e = Exp(m) out = Mul(x, e)"
    drawn = Drawn(tmp_path, text, {"x": X[:, None], "m": given})
    assert np.array_equal(drawn.inputs[1], given)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BRANCHES, "an operator has a graph of its own"),
        ("out = Reshape(x, shape)", "cannot run these operators: "),
        ("z = Sub(x, x) out = Log(z)", "the drawn numbers give no finite result"),
    ],
    ids=["a graph in an operator", "impossible shape", "not finite"],
)
def test_what_cannot_be_drawn_is_said(tmp_path, text, said):
    shape = {"shape": np.array([7, 11])} if "shape" in text else {}
    with pytest.raises(StageError, match=said):
        Drawn(tmp_path, text, {"x": X}, **shape)


def test_truths_are_compared_without_a_floor(tmp_path):
    drawn = Drawn(tmp_path, "out = Less(x, y)", {"x": X, "y": X}, out="bool")
    trace = open_trace(drawn.entry.path)
    (probe,) = load_probes(drawn.entry.file(PROBES))
    assert wanted_values([probe]) == {"v0": probe}
    assert trace.floor_rms(probe.name) is None


def test_a_value_has_a_new_name_by_which_its_node_can_be_kept(tmp_path):
    text = "secret_value = Relu(x) out = Neg(secret_value)"

    drawn = Drawn(tmp_path, text, {"x": X})

    assert drawn.entry.meta["kept"] == {
        "secret_value": "v0",
        "out": "v1",
        "Relu": "Relu",
        "Neg": "Neg",
    }
    assert [node.name for node in drawn.model.graph.node] == ["v0", "v1"]
    assert b"secret" not in drawn.entry.file(MODEL).read_bytes()
