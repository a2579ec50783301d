"""The contract that a deployed file must keep, on real graphs."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, numpy_helper

from harness.core.case import ExportSettings
from harness.core.contract import breach
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.record import CaseRecord
from harness.engine.store import Store
from harness.measure.named_arrays import save_arrays
from harness.plugins.contracts.judged import (
    FAINT,
    contract_breach,
    contract_lines,
    contract_notes,
)
from harness.plugins.contracts.runs.file import ask_file, frozen
from harness.plugins.contracts.runs.reference import ask, effects_at
from harness.plugins.contracts.runs.sensitivity import (
    APART,
    Asked,
    beside,
    distance,
    effects,
    effects_of,
    exchanged,
    nearby,
    repeated,
)
from harness.runtimes.graph.onnx_graph import sides_of, unread_inputs
from harness.runtimes.pytorch.reference import run_of as run_of_module
from tests.unit import nets
from tests.unit.two_inputs import RIGHT, TWO, graph, run_of

OPEN = ExportSettings(dynamic=("batch",))
SIZES = (("batch", 2),)


class WithoutY(torch.nn.Module):
    def forward(self, x, y, t):
        return x * t + 0 * y


class Two(torch.nn.Module):
    def forward(self, x, y, t):
        return x + torch.tanh(y) * t


FOLDED = [RIGHT[0], ("Mul", ["a", "half"], "b"), RIGHT[2]]
SWAPPED = [("Tanh", ["x"], "a"), RIGHT[1], ("Add", ["y", "b"], "out")]
BAKED = [("Reshape", ["x", "two_by_four"], "r"), *RIGHT[:2], ("Add", ["r", "b"], "out")]


@pytest.fixture
def asked(tmp_path):
    """What PyTorch's module answers, as the store keeps it."""

    return asked_in(tmp_path / "store", Two(), TWO, SIZES)


def asked_in(folder, module, component, sizes, opened=("batch",)):
    def build(path):
        run = run_of_module(module, component, "cpu")
        notes, arrays = ask(run, component, sizes, opened)
        save_arrays(arrays, path)
        return notes

    return Store(root=folder).make("asked", {"module": type(module).__name__}, build)


def looked_at(path, asked):
    feeds = [dict(Asked.load(asked).base)]
    run = run_of(path)
    return ask_file(run, TWO, feeds, run(feeds[0]), asked)


def told(found):
    return {entry["name"]: entry["deployed"] for entry in found["inputs"]}


def test_values_that_an_input_does_not_hold_are_refused(tmp_path, asked):
    run = run_of(graph(tmp_path / "m.onnx", RIGHT))
    feeds = dict(Asked.load(asked).base)
    x, *others = TWO.inputs
    masked = replace(TWO, inputs=(replace(x, draw="mask"), *others))
    feeds["x"] = np.full_like(feeds["x"], 5.0)

    with pytest.raises(StageError, match=r"'x' holds values from 0 to 1, and is given"):
        ask_file(run, masked, [feeds], run(feeds), asked)


def test_a_right_files_inputs_have_their_ranges_and_the_effects_of_pytorch(
    tmp_path, asked
):
    found = looked_at(graph(tmp_path / "m.onnx", RIGHT), asked)

    assert told(found) == pytest.approx(effects_of(asked), rel=1e-4)
    assert min(told(found).values()) > 0
    assert (found["exchanged"], found["repeated"]) == ([], 0.0)
    base = Asked.load(asked).base
    (x, _, _) = found["inputs"]
    assert (x["low"], x["high"]) == (base["x"].min(), base["x"].max())
    assert (x["dtype"], x["shape"]) == ("float32", ["batch", 4])


def test_an_input_that_is_a_constant_in_the_file_has_no_effect(tmp_path, asked):
    path = graph(tmp_path / "m.onnx", FOLDED)

    assert told(looked_at(path, asked))["t"] == 0.0
    assert unread_inputs(path) == ["t"]


POISONED = [*RIGHT[:2], ("Add", ["x", "b"], "c"), ("Add", ["c", "rows"], "out")]
ROWS = {
    "one": [[np.nan, 0, 0, 0], [0, 0, 0, 0]],
    "all": np.full((2, 4), np.nan),
    "infinite": np.full((2, 4), np.inf),
}


@pytest.mark.parametrize("rows", ROWS)
def test_no_question_about_inputs_is_judged_on_outputs_that_are_not_finite(
    tmp_path, asked, rows
):
    path = graph(tmp_path / "m.onnx", POISONED)
    model = onnx.load(path)
    held = np.array(ROWS[rows], dtype=np.float32)
    model.graph.initializer.append(numpy_helper.from_array(held, "rows"))
    onnx.save(model, path)

    found = looked_at(path, asked)

    assert set(told(found).values()) == {None}
    assert found["exchanged"] == []
    assert contract_breach(record(found)) is None


def test_a_reference_without_a_finite_output_is_not_said_to_ignore_an_input():
    def run(feeds):
        return {"out": feeds["x"] * np.float32(np.nan)}

    assert "x" not in effects_at(run, TWO, SIZES)


def test_an_input_that_an_infinite_output_may_hide_is_not_said_to_be_ignored():
    def run(feeds):
        hidden = np.where(np.arange(4) < 2, np.inf, feeds["x"])
        return {"out": hidden + np.where(hidden > 9, feeds["y"], 0)}

    effects = effects_at(run, TWO, SIZES)
    assert effects["x"] > 0
    assert "y" not in effects


def test_two_inputs_that_are_exchanged_in_the_file_are_found(tmp_path, asked):
    (pair,) = looked_at(graph(tmp_path / "m.onnx", SWAPPED), asked)["exchanged"]

    assert pair["names"] == ["x", "y"]
    assert pair["mended"] < 1e-6
    assert pair["error"] > APART


def test_an_input_that_pytorch_ignores_has_no_effect_there():
    class Ignores(torch.nn.Module):
        def forward(self, x, _y, t):
            return x * t

    assert effects_at(run_of_module(Ignores(), TWO, "cpu"), TWO, SIZES)["y"] == 0.0


def test_a_module_that_remembers_is_no_reference():
    class Remembers(torch.nn.Module):
        seen = 0.0

        def forward(self, x, y, t):
            self.seen = 0.5 * self.seen + x.mean()
            return x * t + y + self.seen

    with pytest.raises(StageError, match="remembers") as caught:
        ask(run_of_module(Remembers(), TWO, "cpu"), TWO, SIZES)
    assert caught.value.outcome is Outcome.REFERENCE


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param([[True, True, True, False]], [[True, True, False, True]], id="b"),
        pytest.param([[1, 1, 1, 1]], [[1, 1, 0, 0]], id="mask"),
        pytest.param([0, 0], [0, 1], id="types"),
        pytest.param([-4, 9, 300, -3], [-4, 9, 150, -1], id="ids"),
        pytest.param([[1024.0, 768.0]], [[1024.0, 384.0]], id="sizes"),
        pytest.param(3.5, 1.75, id="one-number"),
    ],
)
def test_what_is_near_a_value_stays_between_it_and_nought(value, expected):
    value = np.array(value)
    other, reverse = nearby(value)

    assert other.dtype == reverse.dtype == value.dtype
    assert other.tolist() == expected
    assert reverse.tolist() == (value[..., ::-1] if value.ndim else value).tolist()


def test_a_late_input_is_not_tried():
    base = {"x": np.ones(3), "y": np.ones(3)}
    _, found = effects(
        lambda feeds: {"out": feeds["x"]}, base, {"x": np.zeros(3)}, limit_s=-1.0
    )

    assert found == {"x": None, "y": None}


@pytest.mark.parametrize(
    ("base", "actual"),
    [
        ({"x": np.ones(3), "y": np.zeros(3)}, np.ones(2)),
        ({"ids": np.array([[7, 900]]), "types": np.array([[0, 1]])}, np.zeros(2)),
    ],
    ids=["outputs-agree", "table-is-too-short-for-an-id"],
)
def test_inputs_are_exchanged_only_where_it_may_explain_an_error(base, actual):
    expected = {"y": np.ones(2)}

    assert not list(
        exchanged(lambda _: pytest.fail("ran"), base, expected, {"y": actual})
    )


def test_a_change_of_one_bit_is_a_change():
    first = {"out": np.ones(3, dtype=np.float32)}
    other = {"out": np.nextafter(first["out"], np.float32(2))}

    assert repeated(lambda _: first, {}, first, times=2) == 0.0
    assert repeated(lambda _: other, {}, first, times=1) > 0.0


def test_a_size_that_is_fixed_inside_a_graph_is_named(tmp_path):
    run = run_of(graph(tmp_path / "m.onnx", BAKED))

    def feeds(batch):
        two = np.ones((batch, 4), dtype=np.float32)
        return {"x": two, "y": two, "t": np.ones(1, dtype=np.float32)}

    every = [feeds(1), feeds(2), feeds(3)]
    with pytest.raises(StageError) as caught:
        run(every[0])
    found = frozen(caught.value, run, TWO, "m.onnx", feeds=every, failed=every[0])

    assert found.outcome is Outcome.FROZEN
    assert "m.onnx runs at batch = 2 and not at 1" in str(found)
    assert "axis 0 of input 'x'" in str(found)


PICTURE = nets.component("net", {"x": ("batch", 3, "height", "width")})
OWN = {"batch": 2, "height": 10, "width": 12}
ADDED = (
    {"batch": 1, "height": 20, "width": 24},
    {"batch": 3, "height": 9, "width": 24},
    {"batch": 4, "height": 20, "width": 12},
)
FIXES = {
    "sides": (("height", "width"), lambda s: (s["height"], s["width"]) == (10, 12)),
    "height": (("height",), lambda s: s["height"] == 10),
    "batch": (("batch",), lambda s: s["batch"] == 2),
    "width": (("width",), lambda s: s["width"] == 12),
    "all": (("batch", "height", "width"), lambda s: s == OWN),
    "small batches": (("batch",), lambda s: s["batch"] in {1, 2, 3}),
}


@pytest.mark.parametrize("fixes", FIXES)
def test_each_axis_that_is_fixed_is_named_and_no_other(fixes):
    named, takes = FIXES[fixes]
    error = StageError("another size", outcome=Outcome.RUN)

    def run(feeds):
        shape = feeds["x"].shape
        if not takes(dict(zip(OWN, (shape[0], *shape[2:]), strict=True))):
            raise error
        return feeds

    every = [
        {"x": np.ones((s["batch"], 3, s["height"], s["width"]), dtype=np.float32)}
        for s in (OWN, *ADDED)
    ]
    failed = every[-1] if fixes in {"batch", "small batches"} else every[1]
    found = frozen(error, run, PICTURE, "m.onnx", feeds=every, failed=failed)

    assert found.outcome is Outcome.FROZEN
    said = str(found).partition(", though")[0].partition("so ")[2]
    assert [symbol for symbol in OWN if f"'{symbol}'" in said] == list(named)


def test_axes_that_fail_together_alone_are_named_together():
    too_large = StageError("too large", outcome=Outcome.RUN)

    def run(feeds):
        if feeds["x"].shape[2] * feeds["x"].shape[3] > 300:
            raise too_large
        return feeds

    every = [{"x": np.ones((2, 3, h, w))} for h, w in ((10, 12), (20, 24))]
    with pytest.raises(StageError) as caught:
        run(every[1])
    found = frozen(caught.value, run, PICTURE, "m", feeds=every, failed=every[1])

    assert "'height' (axis 2 of input 'x') and 'width'" in str(found)
    assert "each of them alone can change" in str(found)
    assert "batch" not in str(found)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"inputs": ("x", "t")}, "'y' was dropped", id="dropped"),
        pytest.param({"inputs": ("y", "x", "t")}, "The order is another", id="order"),
        pytest.param({"batch": 2}, "axis 0 of input 'x' is fixed at 2", id="frozen"),
        pytest.param({"dtype": TensorProto.DOUBLE}, "takes float64", id="dtype"),
    ],
)
def test_a_broken_promise_is_said_with_its_place(tmp_path, changes, said):
    body = [("Identity", ["x"], "out")]
    sides = sides_of(graph(tmp_path / "m.onnx", body, **changes))

    assert said in breach(TWO, OPEN, sides, where="the graph")


def test_what_is_lost_is_told_from_what_pytorch_ignores(tmp_path):
    body = [("Identity", ["x"], "out")]
    sides = sides_of(graph(tmp_path / "m.onnx", body, inputs=("x", "t")))

    def said(module):
        run = run_of_module(module, TWO, "cpu")
        return breach(TWO, OPEN, sides, where="it", run=run, sizes=SIZES)

    assert "PyTorch ignores it too" in said(WithoutY())
    assert "folded into a constant, for PyTorch's outputs depend on it" in said(Two())


def test_a_right_graph_breaks_no_promise(tmp_path):
    sides = sides_of(graph(tmp_path / "m.onnx", RIGHT))

    assert breach(TWO, OPEN, sides, where="the graph") == ""


def record(found, variant="fp32", backend="onnxruntime", **more):
    return CaseRecord(
        case=f"two/{backend}/{variant}",
        component="two",
        backend=backend,
        variant=variant,
        asked={},
        ran={"device": "cpu"},
        contract=(found,),
        **more,
    )


def said(kept):
    """Return the breach that a record must have."""
    breach = contract_breach(kept)
    assert breach is not None
    return breach


def test_a_dead_input_says_at_which_hop_it_was_lost(tmp_path, asked):
    found = looked_at(graph(tmp_path / "m.onnx", FOLDED), asked)
    lost = {"onnx": {"meta": {"unread": ["t"]}}}

    here = said(record(found))
    exported = said(record(found, backend="mnn", artifacts=lost))
    elsewhere = said(record(found, backend="mnn"))

    assert here[0] is exported[0] is elsewhere[0] is Outcome.DEAD_INPUT
    assert "folded into a constant at export" in here[1]
    assert "folded into a constant at export" in exported[1]
    assert "the exported graph reads it" in elsewhere[1]


def test_an_input_that_pytorch_ignores_is_a_note_and_no_failure(tmp_path, asked):
    found = looked_at(graph(tmp_path / "m.onnx", FOLDED), asked)
    found["inputs"][2]["reference"] = 0.0
    records = [record(found), record(found, backend="mnn")]

    assert contract_breach(records[0]) is None
    assert len(list(contract_notes(records))) == 1
    assert "do not depend on t" in next(contract_notes(records))


@pytest.mark.parametrize(
    ("effect", "words"),
    [(None, "whether the reference's do was not tried"), (FAINT / 2, "no effect")],
)
def test_an_input_that_the_graph_does_not_read_is_dead_though_it_was_not_judged(
    tmp_path, asked, effect, words
):
    found = looked_at(graph(tmp_path / "m.onnx", FOLDED), asked)
    found["inputs"][2] |= {"reference": effect, "deployed": None}
    lost = {"onnx": {"meta": {"unread": ["t"]}}}

    assert contract_breach(record(found)) is None
    outcome, text = said(record(found, artifacts=lost))
    assert outcome is Outcome.DEAD_INPUT
    assert "'t'" in text
    assert words in text


def test_what_no_file_is_held_to_is_told_of_every_record(tmp_path, asked):
    found = looked_at(graph(tmp_path / "m.onnx", FOLDED), asked)
    x, y, t = found["inputs"]
    x["reference"], y["reference"], t["reference"] = 0.0, FAINT / 2, None
    ignored, faint, untried = contract_notes([record({"inputs": []}), record(found)])

    assert "do not depend on x" in ignored
    assert "y changed alone moves the reference's outputs by less than 1e-04" in faint
    assert "not changed alone: t" in untried
    found["inputs"] = [t | {"reference": 0.1, "deployed": None}]
    assert "not changed alone: t" in next(contract_notes([record(found)]))


def test_an_input_that_hardly_matters_to_pytorch_is_not_judged(tmp_path, asked):
    found = looked_at(graph(tmp_path / "m.onnx", FOLDED), asked)
    found["inputs"][2]["reference"] = FAINT / 2

    assert contract_breach(record(found)) is None


def test_other_bits_are_a_breach_on_a_cpu_and_a_fact_on_a_gpu(tmp_path, asked):
    found = looked_at(graph(tmp_path / "m.onnx", RIGHT), asked)
    found["repeated"] = 1e-7

    assert said(record(found))[0] is Outcome.UNSTEADY
    on_gpu = replace(record(found), ran={"device": "cuda"})
    assert contract_breach(on_gpu) is None


def test_a_record_keeps_its_contract_through_json(tmp_path, asked):
    found = looked_at(graph(tmp_path / "m.onnx", RIGHT), asked)
    found["repeated"] = float("inf")

    assert CaseRecord.from_json(record(found).to_json()).contract == (found,)


def test_a_case_line_tells_what_each_input_moves(tmp_path, asked):
    found = looked_at(graph(tmp_path / "m.onnx", FOLDED), asked)
    (*_, t) = contract_lines(record(found))

    assert t.startswith("input t float32 [1], ")
    assert "moves outputs by 0 of their size, the reference's by 0." in t


@pytest.mark.parametrize(
    ("was", "now", "apart"),
    [
        pytest.param([1.0, -np.inf], [1.5, -np.inf], 0.5, id="infinite-in-both"),
        pytest.param([1.0, np.nan], [1.0, np.nan], 0.0, id="nan-in-both"),
        pytest.param([1.0, 1.0], [1.0, np.inf], np.inf, id="infinite-now"),
        pytest.param([1e-32, 0.0], [0.0, 0.0], 0.0, id="nothing-in-both"),
        pytest.param([1e-9, 0.0], [0.0, 0.0], 1.0, id="small"),
    ],
)
def test_numbers_that_are_not_finite_or_too_small_hide_no_effect(was, now, apart):
    was, now = ({"out": np.array(one, np.float32)} for one in (was, now))

    assert distance(was, now) == apart


class Apart(torch.nn.Module):
    """Each item by itself."""

    def forward(self, x):
        return torch.tanh(x) / x.abs().amax(1, keepdim=True)


class Together(torch.nn.Module):
    """All items in the scale of the largest."""

    def forward(self, x):
        return torch.tanh(x) / x.abs().amax()


ONE = nets.component("one", {"x": ("batch", 4)})


@pytest.mark.parametrize(
    ("reference", "file", "moves"),
    [
        (Apart, Apart, (False, False)),
        (Apart, Together, (False, True)),
        (Together, Together, (True, True)),
    ],
)
def test_an_item_is_run_beside_others_and_beside_itself(
    tmp_path, reference, file, moves
):
    asked = asked_in(tmp_path, reference(), ONE, (("batch", 1),))
    run = run_of_module(file(), ONE, "cpu")
    feeds = [Asked.load(asked).base]
    found = ask_file(run, ONE, feeds, run(feeds[0]), asked)["beside"]["batch mates"]

    assert (found["reference"] > 1e-3, found["deployed"] > 1e-3) == moves


def test_without_a_batch_of_two_nothing_is_asked_of_it(tmp_path):
    asked = asked_in(tmp_path, Apart(), ONE, (("batch", 1),), opened=())
    run = run_of_module(Together(), ONE, "cpu")
    feeds = [Asked.load(asked).base]

    assert ask_file(run, ONE, feeds, run(feeds[0]), asked)["beside"] == {}


class Reads(torch.nn.Module):
    """A mean over the words, or over the padding too."""

    def __init__(self, *, everything):
        super().__init__()
        self.everything = everything

    def forward(self, ids, mask):
        weight = torch.ones_like(mask) if self.everything else mask
        return (ids * weight).sum(1, keepdim=True) / weight.sum(1, keepdim=True)


@pytest.mark.parametrize("everything", [False, True])
def test_other_values_stand_at_padding(everything):
    axes: tuple[int | str, ...] = ("batch", "tokens")
    part = nets.component("reads", {"x": axes, "mask": axes})
    mask = np.array([[1, 1, 0, 0], [1, 0, 0, 0]], dtype=np.float32)
    x, spec = part.inputs[0], replace(part.inputs[1], draw="mask")
    part = replace(part, inputs=(x, spec))
    value = np.arange(8, dtype=np.float32).reshape(2, 4)
    run = run_of_module(Reads(everything=everything), part, "cpu")
    found = beside(run, part, {"x": value, "mask": mask})

    assert (found["padding"] > 1e-3) is everything
