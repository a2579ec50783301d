"""Each known error is recognised by its pattern, and noise is called noise."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import partial
from itertools import chain

import numpy as np
import pytest
import torch
from torch.nn import functional

from harness.plugins.patterns.observed import Operation
from harness.plugins.patterns.rules import error_pattern
from tests.places import ROOT

FLOOR = 1e-7
GAP = "…"
RULES = ("rules", "places", "arithmetic", "forms", "weighted_forms")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 64, 8, 8)).astype(np.float32)


def changed(change):
    actual = X.copy()
    change(actual)
    return actual


def put(at, value):
    return changed(lambda actual: actual.__setitem__(at, value))


def bits(values, kept):
    drop = 23 - kept
    raw = values.view(np.uint32)
    return ((raw + (1 << (drop - 1))) >> drop << drop).view(np.float32)


ERRORS = {
    "every value is 0": np.zeros_like(X),
    "batch items are in another order": X[::-1],
    "every batch item is batch item 0": np.broadcast_to(X[:1], X.shape),
    "batch item 0 is right and the other is not": put(1, X[0] + 1 - X[1]),
    "axis 1 is reversed": X[:, ::-1],
    "everything is shifted by one along axis 3": np.roll(X, 1, 3),
    "axes 2 and 3 are exchanged": X.swapaxes(2, 3),
    "in other places": RNG.permutation(X.ravel()).reshape(X.shape),
    "channel 5 of 64 on axis 1 alone is 0": put(np.s_[:, 5], 0),
    "channel 7 of 64 on axis 1 alone is off": put(np.s_[:, 7], X[:, 8]),
    "every fourth channel": put(np.s_[:, 3::4], 0),
    "channels 8 to 15 of 64": put(np.s_[:, 8:16], 1.0),
    "one element of 8,192 is off, at [0, 1, 2, 3]": put((0, 1, 2, 3), 9),
    "1 value is NaN or infinite": put((0, 1, 2, 3), np.nan),
    "everything is 1.02 times": X * np.float32(1.02),
    "+0.3 off by the same amount": X + np.float32(0.3),
    "a bias": X + RNG.normal(size=(1, 64, 1, 1)).astype(np.float32),
    "cut off at -1 and 1.5": np.clip(X, -1, 1.5),
    "rounded to float16": X.astype(np.float16).astype(np.float32),
    "rounded to float16 or TensorFloat-32": bits(X * np.float32(1.002), 10),
    "rounded to bfloat16": bits(X, 7),
    "spread like noise": X * (1 + 1e-3 * RNG.normal(size=X.shape)).astype(np.float32),
}


@pytest.mark.parametrize("words", ERRORS)
def test_an_error_is_known_by_its_look(words):
    assert words in error_pattern(X, ERRORS[words], FLOOR, "aten.conv2d.default")


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        (lambda x: functional.gelu(x, approximate="tanh"), "GELU's tanh form"),
        (lambda x: x * torch.sigmoid(1.702 * x), "x·sigmoid(1.702x)"),
    ],
)
def test_another_gelu_is_known_by_where_its_error_peaks(formula, words):
    x = torch.tensor(X)
    expected, actual = functional.gelu(x).numpy(), formula(x).numpy()
    assert words in error_pattern(expected, actual, FLOOR, "aten.gelu.default")


@pytest.mark.parametrize("eps", [1e-5, 1e-4])
def test_another_epsilon_scales_each_group_by_its_own_factor(eps):
    spread = torch.tensor(RNG.uniform(0.5, 2.0, size=(2, 32, 1, 1)).repeat(2, axis=1))
    small = torch.tensor(X) * spread.float() * 1e-3
    expected = functional.group_norm(small, 32, eps=1e-6).numpy()
    actual = functional.group_norm(small, 32, eps=eps).numpy()
    found = error_pattern(expected, actual, FLOOR, "aten.group_norm.default")
    assert "a normalisation's epsilon, groups or variance" in found


def test_softmax_over_another_axis_does_not_add_up():
    x = torch.tensor(X)
    expected, actual = x.softmax(-1).numpy(), x.softmax(-2).numpy()
    found = error_pattern(expected, actual, FLOOR, "aten.softmax.int")
    assert "another axis" in found


def test_float16_loses_what_is_beyond_its_range():
    large = X * np.float32(1e5)
    with np.errstate(over="ignore"):
        actual = large.astype(np.float16).astype(np.float32)
    assert "float16 overflows" in error_pattern(large, actual, FLOOR, "aten.mul.Tensor")


@pytest.mark.parametrize(
    ("floors", "op", "said", "not_said"),
    [
        (50, "aten.linear.default", "rounding, not a rule", "weights"),
        (400, "aten.linear.default", "no more than Winograd's tiles", "not a rule"),
        (400, "aten.conv2d.default", "no more than Winograd's tiles", "weights"),
        (5e3, "aten.conv2d.default", "more than float32 rounds", "tiles"),
    ],
)
def test_only_what_rounding_can_be_is_called_rounding(floors, op, said, not_said):
    noise = RNG.normal(size=X.shape) * floors * FLOOR
    found = error_pattern(X, (X + noise).astype(np.float32), FLOOR, op)
    assert said in found
    assert not_said not in found


def test_an_operator_on_right_inputs_rounds_less_than_what_comes_after_tiles():
    noisy = (X + RNG.normal(size=X.shape) * 400 * FLOOR).astype(np.float32)
    for it, said in (
        (None, "no more than Winograd's tiles"),
        (Operation(op="linear"), "more than float32 rounds"),
    ):
        assert said in error_pattern(X, noisy, FLOOR, "aten.linear.default", it=it)


def test_a_value_in_the_place_of_another_is_named():
    other = RNG.normal(size=X.shape).astype(np.float32)
    near = {"skip": other}
    assert "it is skip" in error_pattern(X, other, FLOOR, "aten.add.Tensor", near)
    assert "skip is missing" in error_pattern(
        X + other, X, FLOOR, "aten.add.Tensor", near
    )
    twice = X + np.float32(2) * other
    assert "once too often" in error_pattern(X + other, twice, FLOOR, "aten.add", near)


def test_ids_that_went_through_float16_are_recognised():
    ids = np.arange(2049, 4097, 2).reshape(8, -1)
    through = ids.astype(np.float16).astype(np.int64)
    assert "rounded to float16" in error_pattern(ids, through, None, "placeholder")


def test_ids_that_went_through_bfloat16_are_recognised_however_few():
    ids = np.array([[1, 300, 511, 511, 511, 511]])
    through = np.array([[1, 300, 512, 512, 512, 512]])
    assert "rounded to bfloat16" in error_pattern(
        ids, through, None, "aten.view.default"
    )


def test_ids_that_are_a_little_off_are_no_rounding():
    ids = RNG.integers(1000, 1100, size=(4, 64))
    off = ids + RNG.integers(-1, 2, size=ids.shape)
    assert error_pattern(ids, off, None, "aten.view.default") == ""


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        (functional.silu, "SiLU of linear"),
        (functional.relu, "ReLU of linear"),
        (partial(functional.gelu, approximate="tanh"), "GELU's tanh form of linear"),
    ],
)
def test_another_activation_is_known_by_what_went_into_it(formula, words):
    x = torch.tensor(X)
    expected, actual = (x * torch.sigmoid(1.702 * x)).numpy(), formula(x).numpy()
    found = error_pattern(expected, actual, FLOOR, "aten.mul.Tensor", {"linear": X})
    assert words in found


def test_a_factor_that_was_left_out_is_told_beside_what_is_there_instead():
    found = error_pattern(
        X * np.float32(1.702), X, FLOOR, "aten.mul.Tensor", {"linear": X}
    )
    assert "it is linear: the operator changed nothing" in found
    assert "everything is 0.5875 times what it should be" in found


def test_what_is_nearly_nothing_is_no_multiple():
    small = RNG.normal(size=X.shape).astype(np.float32) * np.float32(1e-3)
    assert "times" not in error_pattern(X, small, FLOOR, "aten.conv2d.default")


def test_only_large_values_that_are_rounded_are_told_from_the_rest():
    large = X * np.float32(1500)
    halved = large.astype(np.float16).astype(np.float32)
    actual = np.where(np.abs(large) >= 2048, halved, large)
    found = error_pattern(large, actual, FLOOR, "aten.add.Tensor")
    assert found == "only values beyond 2048 are off, as float16 rounds them"


def test_nothing_is_said_of_equal_values_and_of_what_cannot_be_compared():
    assert error_pattern(X, X, FLOOR, "") == ""
    assert error_pattern(X, X[:, :3], FLOOR, "") == ""
    assert error_pattern(X > 0, X > 1, None, "") == ""


def test_nothing_is_said_of_an_error_like_nothing_known():
    other = RNG.normal(size=X.shape).astype(np.float32)
    assert error_pattern(X, other, FLOOR, "aten.conv2d.default") == ""


def tenth(size):
    """Places of a tenth of all elements."""
    return np.random.default_rng(5).choice(size, size // 10, replace=False)


WILD: dict[str, Callable[[int], np.ndarray]] = {
    "huge": lambda count: RNG.normal(size=count) * 1e30,
    "large": lambda count: RNG.normal(size=count) * 1e3,
    "other": lambda count: RNG.normal(size=count),
    "one": lambda count: np.where(np.arange(count) == 0, 1e30, np.nan),
}
TRUE_STILL = (
    *("alone are off", "is off, at", "1 value is NaN", "alone is off"),
    *("batch item 0 is right and the other is not", "every fourth channel"),
)
"""What says where the wild numbers are, or is true of other values as well."""


@pytest.mark.parametrize("wild", WILD)
@pytest.mark.parametrize("floor", [FLOOR, None])
@pytest.mark.parametrize("words", ERRORS)
def test_a_pattern_that_does_not_explain_wild_numbers_is_not_said(words, floor, wild):
    actual = np.array(ERRORS[words], np.float32)
    at = tenth(actual.size)
    numbers = WILD[wild](len(at))
    actual.flat[at[~np.isnan(numbers)]] = numbers[~np.isnan(numbers)]
    found = error_pattern(X, actual, floor, "aten.conv2d.default")
    assert not found or any(true in found for true in TRUE_STILL)


@pytest.mark.parametrize("by", [1 + 2e-4, 1.02])
@pytest.mark.parametrize("floor", [FLOOR, None])
def test_one_wild_number_is_not_alone_where_all_others_are_off_too(by, floor):
    actual = (X * np.float32(by)).astype(np.float32)
    actual.flat[1234] = 1e30
    assert error_pattern(X, actual, floor, "aten.mul.Tensor") == ""


def test_a_factor_and_an_offset_are_found_together():
    actual = X * np.float32(1.5) + np.float32(0.3)
    found = error_pattern(X, actual, FLOOR, "aten.mul.Tensor")
    assert found == "everything is 1.5 times what it should be, and +0.3 off"


@pytest.mark.parametrize("op", ["aten.conv2d.default", "Linear", "Gelu", "Resize"])
def test_an_error_like_noise_has_no_cause_where_none_was_shown(op):
    actual = X * (1 + 1e-2 * RNG.normal(size=X.shape)).astype(np.float32)
    found = error_pattern(X, actual, FLOOR, op)
    assert found.startswith("spread like noise")
    assert found.endswith("more than float32 rounds")


@pytest.mark.parametrize("op", ["Gelu", "GELU"])
def test_a_pattern_serves_the_names_of_onnx_and_of_modules(op):
    x = torch.tensor(X)
    expected = functional.gelu(x).numpy()
    actual = functional.gelu(x, approximate="tanh").numpy()
    assert "GELU's tanh form" in error_pattern(expected, actual, FLOOR, op)


@pytest.mark.parametrize(
    ("op", "said"),
    [
        ("aten.conv2d.default", "padding with other values"),
        ("Conv", "padding with other values"),
        ("Resize", "pixels beyond the edge count otherwise"),
        ("aten.upsample_bicubic2d.vec", "pixels beyond the edge count otherwise"),
        ("aten.matmul.default", ""),
        ("aten.softmax.int", ""),
        ("Add", ""),
    ],
)
def test_a_border_is_of_operators_that_read_neighbours(op, said):
    expected = RNG.normal(size=(2, 4, 16, 16)).astype(np.float32)
    noise = RNG.normal(size=expected.shape).astype(np.float32)
    actual = expected + noise
    actual[:, :, 1:-1, 1:-1] = expected[:, :, 1:-1, 1:-1]
    found = error_pattern(expected, actual, FLOOR, op)
    assert said in found
    assert ("border" in found) == bool(said)


def test_large_values_of_one_kind_are_no_mask():
    actual = X * np.float32(1500)
    actual.flat[tenth(X.size)] = -1e4
    assert "mask" not in error_pattern(X * np.float32(1500), actual, FLOOR, "Add")


def sentences():
    """Yield how each thing that the rules say begins, a gap where a figure stands."""
    files = (ROOT / f"harness/plugins/patterns/{name}.py" for name in RULES)
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in files)
    for node in chain.from_iterable(map(ast.walk, trees)):
        match node:
            case ast.Return(value=said) | ast.Yield(value=ast.Tuple(elts=[said, *_])):
                pass
            case ast.Assign(targets=[ast.Name(id="words" | "share")], value=said):
                pass
            case _:
                continue
        parts = said.values if isinstance(said, ast.JoinedStr) else [said]
        held = [p.value for p in parts if isinstance(p, ast.Constant)]
        if not all(isinstance(value, str) for value in held):
            continue  # no answer
        texts = [str(p.value) if isinstance(p, ast.Constant) else GAP for p in parts]
        yield re.split("[:,]", "".join(texts).removeprefix(f"{GAP}: "))[0]


@pytest.mark.parametrize(
    ("by", "said"), [(0.0, "it differs in axes of 1 alone"), (1e-2, "")]
)
def test_numbers_that_are_right_are_told_from_their_axes(by, said):
    actual = (X * np.float32(1 + by))[..., None]
    assert error_pattern(X, actual, FLOOR, "output").endswith(said)
    assert bool(error_pattern(X, actual, FLOOR, "output")) == bool(said)


@pytest.mark.parametrize(
    ("actual", "said"),
    [
        ([1, 0, 7], "1 of 3 values that are true or false are neither 0 nor 1"),
        ([1, 0, 0], ""),
        ([0.5, 0.0, 1.0], ""),
    ],
)
def test_a_number_that_is_no_truth_is_said(actual, said):
    found = error_pattern(np.array([True, False, True]), np.array(actual), None, "And")
    assert found == (f"{said}, such as 7" if said else "")


def test_the_page_has_all_that_the_rules_say():
    page = (ROOT / "docs" / "signatures.md").read_text(encoding="utf-8")
    cells = [line.split(" | ")[0] for line in page.splitlines() if line[:2] == "| "]
    told = [
        phrase
        for cell in cells
        for phrase in re.split(" · |: ", cell.removeprefix("| ").replace("\\|", "|"))
    ]
    said = [text for text in sentences() if text.strip(GAP)]

    assert len(said) > len(ERRORS)
    for text in said:
        pattern = re.escape(text).replace(GAP, ".+")
        assert any(re.match(pattern, phrase) for phrase in told), text
