"""`harness.measure.align`: a value is matched by a written rule or not at all."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from harness.core.probes import Probe, ValueKind
from harness.measure.align import (
    MASK_END,
    GraphValue,
    coverage_of,
    ended,
    link,
    read_as,
    same_axes,
    shown,
    source_value,
    wanted_values,
)


def probe(name, kind=ValueKind.COMPUTE, position=0, onnx="", parents=()):
    return Probe(name=name, position=position, kind=kind, onnx=onnx, parents=parents)


def value(name, origin="", used_by=(), **fields):
    return GraphValue(
        name=name,
        origin=origin,
        used_by=used_by,
        is_output=fields.pop("is_output", False),
        **fields,
    )


GELU, OTHER = value("val_1", "gelu", ("gelu",)), value("val_3", "other", ("linear",))
MID = value("/mid/Add", "mid", ("mid.act", "mid")), value("/Mul", "mid.act", ("mid",))
LEAVES, ADD = value("/mid/Mul", "mid", ("next",)), value("/add", "mid", ("mid",))
SHAPE = value("/attn/Shape", "attn", ("other",), is_constant=True)


def linked(probes, values, outputs=None):
    return {p.name: p for p in link(probes, values, outputs or {})}


@pytest.mark.parametrize(
    ("name", "values", "carrier"),
    [
        pytest.param("conv2d", [value("conv2d")], "conv2d", id="the-same-name"),
        pytest.param("conv2d", [value("conv2d_1")], "", id="a-name-with-a-number"),
        pytest.param("conv2d", [value("Conv2d")], "", id="a-name-in-other-letters"),
        pytest.param("conv2d", [value("conv2")], "", id="a-name-that-begins-so"),
        pytest.param("conv2d", [value("val_conv2d")], "", id="a-name-that-ends-so"),
        pytest.param("add_7", [value("sample")], "sample", id="a-renamed-output"),
        # The one value that leaves an operator or a module carries it.
        ("gelu", [GELU, value("val_2", "gelu", ("linear",)), OTHER], "val_2"),
        ("mid", [*MID, value("/mid/Div", "mid", ("middle",))], "/mid/Div"),
        # Of two that leave, none does, unless one is the other again or constant.
        ("gelu", [value("a", "gelu", ("linear",)), value("b", "gelu", ("add",))], ""),
        (
            "mid",
            [LEAVES, value("/c", "mid", ("later",), repeats="/mid/Mul")],
            "/mid/Mul",
        ),
        ("attn", [SHAPE, value("/attn/Add", "attn", ("other",))], "/attn/Add"),
        # A division by one is the value that it divides.
        ("mid", [ADD, value("/mid/Div", "mid", ("next",), repeats="/add")], "/add"),
    ],
)
def test_a_value_is_carried_by_name_or_by_what_leaves(name, values, carrier):
    assert linked([probe(name)], values, {"add_7": "sample"})[name].onnx == carrier


def test_a_merged_operator_shares_what_the_one_before_it_became():
    twice = probe("silu_1", ValueKind.DUPLICATE, 1, onnx="silu")
    assert linked([probe("silu"), twice], [value("silu")])["silu_1"].onnx == "silu"


def test_a_move_is_not_matched_by_what_leaves_it():
    values = [value("val_1", "view", ("linear",))]
    assert linked([probe("view", ValueKind.MOVE)], values)["view"].onnx == ""


def test_a_module_whose_only_value_is_constant_computes_nothing():
    values = [value("/position/Gather", "position", ("add",), is_constant=True)]
    found = linked([probe("position"), probe("lost")], values)
    assert found["position"].kind is ValueKind.CONSTANT
    assert found["lost"].kind is ValueKind.COMPUTE


def test_a_module_that_passes_on_a_value_seen_already_computes_nothing():
    values = [
        value("/attn/to_out/Add", "attn.to_out", ("attn",)),
        value("/attn/Div", "attn", ("next",), repeats="/attn/to_out/Add"),
    ]
    found = linked([probe("attn.to_out"), probe("attn", position=1)], values)
    assert found["attn.to_out"].kind is ValueKind.COMPUTE
    assert found["attn"].kind is ValueKind.IDENTITY
    assert list(wanted_values(found.values())) == ["/attn/to_out/Add"]


def test_what_the_exporter_kept_by_name_is_compared_and_a_duplicate_once():
    probes = [
        probe("conv2d", onnx="conv2d"),
        probe("view", ValueKind.MOVE, onnx="view"),
        probe("div", ValueKind.IDENTITY, onnx="div"),
        probe("arange", ValueKind.CONSTANT, onnx="arange"),
        probe("silu_1", ValueKind.DUPLICATE, onnx="silu"),
        probe("gone"),
    ]

    kept = {p.name: p for p in probes if p.name not in {"silu_1", "gone"}}
    assert wanted_values(probes) == kept


def test_a_computed_value_is_compared_before_one_that_carries_it():
    carried = probe("conv2d", onnx="div")
    probes = [probe("div", ValueKind.IDENTITY, onnx="div"), carried]
    assert wanted_values(probes) == {"div": carried}


def test_a_product_that_mnn_made_a_convolution_keeps_its_name():
    assert source_value("linear_3__matmul_converted") == "linear_3"
    assert source_value("linear_3_raster_0") == "linear_3_raster_0"


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        pytest.param((6, 8, 1, 1), (2, 3, 8), id="rows-of-tokens"),
        pytest.param((2, 8, 1, 1), (2, 8), id="rows-of-a-matrix"),
        pytest.param((1, 8, 1, 1), (8,), id="one-row"),
        pytest.param((2, 3, 4, 5), (2, 3, 4, 5), id="equal"),
        pytest.param((), (), id="scalar"),
        pytest.param((2, 3, 8, 1), (2, 3, 8), id="early-last-axis"),
    ],
)
def test_axes_that_are_the_same_are_read_alike(shape, expected):
    assert same_axes(shape, expected) == expected


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        pytest.param((8, 6, 1, 1), (2, 3, 8), id="transposed"),
        pytest.param((3, 8, 1, 1), (2, 3, 8), id="rows-missing"),
        pytest.param((6, 8, 1, 1), (6, 8, 1, 1, 1), id="too-many-axes"),
        pytest.param((2, 8, 3, 1), (2, 3, 8), id="tokens-last"),
        pytest.param((1, 48, 1, 1), (2, 3, 8), id="flat"),
        pytest.param((2, 3, 8), (2, 8, 3), id="swapped"),
        pytest.param((48,), (2, 3, 8), id="sizes-equal-only"),
        pytest.param((2, 5, 4, 3), (2, 3, 4, 5), id="nhwc"),
        pytest.param((1, 1, 1, 1), (), id="scalar"),
    ],
)
def test_another_order_of_axes_is_refused(shape, expected):
    assert same_axes(shape, expected) is None


def test_zeros_and_ones_are_read_as_truth_where_truth_is_expected():
    truth = np.array([True, False, True])
    numbers = np.array([1, 0, 1], dtype=np.int32)
    assert read_as(truth, numbers).dtype == np.bool_
    assert (read_as(truth, numbers) == truth).all()


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        pytest.param(np.array([True]), np.array([2], dtype=np.int32), id="a-two"),
        pytest.param(np.array([True]), np.array([-1], dtype=np.int32), id="minus-one"),
        pytest.param(np.array([True]), np.array([1.0]), id="floating-point"),
        pytest.param(np.array([1]), np.array([1], dtype=np.int32), id="not-expected"),
    ],
)
def test_other_numbers_stay_what_they_are(expected, actual):
    assert read_as(expected, actual) is actual


def test_masks_end_at_the_same_number_and_keep_what_is_not_finite():
    mask = np.array([-3.4e38, -np.inf, np.nan, 0.0, 5.0, 1e38])
    cut = ended(mask)
    assert cut[0] == -MASK_END
    assert np.isneginf(cut[1])
    assert np.isnan(cut[2])
    assert list(cut[3:]) == [0.0, 5.0, MASK_END]


@pytest.mark.parametrize(
    ("fields", "carrier"),
    [
        pytest.param({"shape": (1, 128, None)}, "inner", id="its-shape"),
        pytest.param({"shape": (None, 128, 8)}, "inner", id="open-axes-may-be-equal"),
        pytest.param({"shape": (128, 8, None)}, "", id="another-order"),
        pytest.param({"shape": (1, 8, 16, 8)}, "", id="other-axes"),
        pytest.param({"shape": (1, 128, 8), "is_turned": True}, "", id="turned"),
        pytest.param({}, "inner", id="no-shape-is-stated"),
    ],
)
def test_a_value_inside_a_translation_is_the_result_only_in_its_shape(fields, carrier):
    values = [value("inner", "scatter", ("add",), **fields)]
    probes = [probe("scatter")]
    (found,) = link(probes, values, {}, {"scatter": (1, 128, None)})
    assert found.onnx == carrier
    assert link(probes, values, {})[0].onnx == "inner", "modules have no shapes"


def test_coverage_counts_what_was_lost_and_what_was_fused():
    probes = [
        probe("conv2d", position=0, onnx="conv2d"),
        probe("silu", position=1, onnx="silu"),
        probe("gelu", position=2),
        probe("silu_1", ValueKind.DUPLICATE, 3, onnx="silu"),
        probe("view", ValueKind.MOVE, 4),
    ]

    assert coverage_of(probes, {"conv2d"}, {}) == {
        "computing": 4,
        "aligned": 1,
        "fused": 2,
        "inside": 0,
        "unmatched": 1,
        "seen": 1,
        "reach": 4,
        "missing": ("silu", "gelu", "silu_1"),
    }


@pytest.mark.parametrize(
    ("read_into", "inside"),
    [
        pytest.param({"square": ["mean"], "mean": ["norm"]}, 1, id="all-into-one"),
        pytest.param({"square": ["mean", "norm"], "mean": ["norm"]}, 1, id="two-ways"),
        pytest.param({"square": ["norm", "other"]}, 1, id="into-two"),
        pytest.param({"square": ["y"]}, 1, id="into-an-output"),
        pytest.param({"square": ["norm", "unread"]}, 1, id="beside-an-unread-value"),
        pytest.param({"square": ["mean"]}, 0, id="an-end-that-was-not-compared"),
        pytest.param(
            {"square": ["norm", "mean"], "mean": ["end"]}, 0, id="one-way-ends"
        ),
        pytest.param({}, 0, id="read-by-nothing"),
        pytest.param({"square": ["mean"], "mean": ["square"]}, 0, id="in-a-circle"),
    ],
)
def test_a_fused_value_counts_where_all_that_reads_it_was_compared(read_into, inside):
    probes = [probe("square", onnx="square"), probe("norm", onnx="norm")]
    coverage = coverage_of(probes, {"norm", "other"}, read_into, ["y"])
    assert (coverage["fused"], coverage["inside"]) == (1, inside)
    assert (coverage["aligned"], coverage["seen"]) == (1, 1 + inside)
    assert coverage["missing"] == (() if inside else ("square",))


@pytest.mark.parametrize(
    ("in_file", "seen"),
    [
        pytest.param(None, 3, id="the-runtime-does-not-tell"),
        pytest.param({f"v{at}" for at in range(9)}, 3, id="the-file-has-them"),
        pytest.param({"v4", "v8"}, 9, id="the-file-has-them-no-more"),
    ],
)
def test_values_that_a_file_may_have_count_four_for_five(in_file, seen):
    names = [f"v{at}" for at in range(9)]
    probes = [probe(name, position=at, onnx=name) for at, name in enumerate(names)]
    read_into = {one: [two] for one, two in pairwise(names)}
    coverage = coverage_of(probes, {"v4", "v8"}, read_into, in_file=in_file)
    assert (coverage["aligned"], coverage["seen"], coverage["reach"]) == (2, seen, 9)


@pytest.mark.parametrize(
    ("compared", "is_foreign", "seen", "reach"),
    [
        pytest.param({"mul", "out"}, False, 3, 3, id="its-reader-was-compared"),
        pytest.param({"out"}, False, 3, 3, id="its-reader-counts"),
        pytest.param({"out"}, True, 2, 2, id="of-others-it-is-not-counted"),
        pytest.param(set(), False, 0, 3, id="nothing-was-compared"),
    ],
)
def test_a_lone_value_counts_where_all_its_readers_do(
    compared, is_foreign, seen, reach
):
    probes = [
        probe("pairs", position=0),
        probe("mul", position=1, onnx="mul", parents=("pairs",)),
        probe("out", position=2, onnx="out", parents=("mul",)),
    ]
    coverage = coverage_of(probes, compared, {"mul": ["out"]}, is_foreign=is_foreign)
    assert (coverage["seen"], coverage["reach"]) == (seen, reach)


def test_a_repeated_operator_without_a_counterpart_counts_as_the_first_one_does():
    told = {"settings": (("dim", [0]),), "arguments": (("self", "x"),)}
    probes = [
        replace(probe("pairs", position=0), **told),
        replace(probe("pairs_1", ValueKind.DUPLICATE, position=1), **told),
        probe("out", position=2, onnx="out", parents=("pairs",)),
    ]
    assert coverage_of(probes, {"out"}, {})["missing"] == ()
    assert coverage_of(probes, set(), {})["missing"] == ("pairs", "pairs_1", "out")


@pytest.mark.parametrize(("operators", "reach"), [(0, 0), (3, 3)])
def test_a_program_without_operators_is_whole_if_its_graph_has_none(operators, reach):
    moves = [probe("view", ValueKind.MOVE)]
    coverage = coverage_of(moves, set(), {}, operators=operators)
    assert (coverage["computing"], coverage["reach"]) == (0, reach)


def test_a_mask_counts_as_0_where_scores_stand_beside_it():
    expected = np.array([[1.0, -3.4e38], [2.0, 0.5]], dtype=np.float32)
    actual = np.array([[1.5, -2.4e38], [2.0, -3e38]], dtype=np.float32)
    one, two = shown(expected, actual, is_mask=True)
    assert one.tolist() == [[1.0, 0.0], [2.0, 0.5]]
    assert two.tolist() == [[1.5, 0.0], [2.0, -6e4]]  # it masks one place more
