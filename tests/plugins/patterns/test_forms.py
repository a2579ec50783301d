"""An operator that computed another form is recognised by PyTorch's own results."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from harness.plugins.patterns.observed import Operation
from harness.plugins.patterns.rules import error_pattern

FLOOR = 1e-7
G = torch.Generator().manual_seed(0)
X = torch.randn(2, 32, 8, 8, generator=G)
Y = torch.randn(2, 32, 8, 8, generator=G)
ROWS = torch.randn(4, 64, 16, generator=G)
W, B = torch.rand(32, generator=G) + 0.5, torch.randn(32, generator=G)
KERNEL = torch.randn(8, 32, 3, 3, generator=G) / 17
MATRIX = torch.randn(16, 16, generator=G) / 4
Q, K, V = torch.randn(3, 2, 4, 16, 8, generator=G)
TABLE = torch.randn(100, 16, generator=G)
OTHER = 1 + 1e-3 * torch.randn(TABLE.shape, generator=G)
IDS = torch.randint(1, 99, (2, 20), generator=G)


def operation(op, tensors, weights=None, others=None, **settings):
    """As `operands` would give it."""
    arguments = [(name, f"{name}_1", value.numpy()) for name, value in tensors.items()]
    held = {name: value.numpy() for name, value in (weights or {}).items()}
    near = {name: value.numpy() for name, value in (others or {}).items()}
    return Operation(
        op=op,
        settings=settings,
        arguments=arguments,
        weights=held,
        others=lambda shape: ((n, v) for n, v in near.items() if v.shape == shape),
    )


def attended(q, k, v, scale=8**-0.5, dim=-1):
    return ((q @ k.mT) * scale).softmax(dim) @ v


def normed(x, weight=W, bias=B):
    return functional.group_norm(x, 8, weight, bias, 1e-5)


def convolved(x, kernel=KERNEL, mode="constant"):
    return functional.conv2d(functional.pad(x, (1, 1, 1, 1), mode), kernel)


NORM = operation(
    "group_norm", {"input": X}, others={"silu_3": Y}, num_groups=8, eps=1e-5
)
ADD = operation("add", {"self": X, "other": Y})
CONV = operation(
    "conv2d",
    {"input": X},
    {"weight": KERNEL},
    stride=[1, 1],
    padding=[1, 1],
    dilation=[1, 1],
    groups=1,
)
ATTENTION = operation(
    "scaled_dot_product_attention", {"query": Q, "key": K, "value": V}
)
SOFTMAX = operation("softmax", {"self": ROWS}, dim=-1)
LINEAR = operation("linear", {"input": ROWS}, {"weight": MATRIX})
EMBEDDING = operation("embedding", {"indices": IDS}, {"weight": TABLE})
RIGHT = {
    "group_norm": normed(X),
    "add": X + Y,
    "conv2d": convolved(X),
    "scaled_dot_product_attention": attended(Q, K, V),
    "softmax": ROWS.softmax(-1),
    "linear": ROWS @ MATRIX.T,
    "embedding": TABLE[IDS],
}


def half(x):
    """Round a group's mean to float16, as a runtime of mixed precision does."""
    rows = x.reshape(2, 8, -1)
    off = rows - rows.mean(-1, keepdim=True).half().float()
    made = (off / (off.square().mean(-1, keepdim=True) + 1e-5).sqrt()).reshape(x.shape)
    return made * W[:, None, None] + B[:, None, None]


@pytest.mark.parametrize(
    ("it", "actual", "words"),
    [
        (NORM, normed(X, torch.ones(32)), "the scale of the normalisation is dropped"),
        (NORM, normed(X, bias=None), "the bias of the normalisation is dropped"),
        (NORM, normed(X, B, W), "the scale and the bias of the normalisation are"),
        (NORM, functional.group_norm(X, 8, W, B, 1e-3), "epsilon is 0.001 instead of"),
        (NORM, functional.group_norm(X, 4, W, B), "the normalisation has 4 groups"),
        (NORM, half(X + 0), "statistics in float16"),
        (NORM, normed(Y), "it is made of silu_3: in another value's place"),
        (NORM, normed(X.roll(1, 1)), "its input is shifted by one along axis 1"),
        (ADD, X + 0.999 * Y, "other_1 is scaled by 0.999 before it is added"),
        (ADD, 1.002 * X + Y, "self_1 is scaled by 1.002 before it is added"),
        (ADD, X + Y.roll(1, 1), "what is added is shifted by one along axis 1"),
        (CONV, convolved(X, KERNEL.flip(2, 3)), "read flipped in height and width"),
        (CONV, convolved(X, mode="replicate"), "padded with the edge"),
        (
            ATTENTION,
            attended(Q, K, V, 1 / 8),
            "the scale of attention is applied twice",
        ),
        (ATTENTION, attended(Q, K, V, 0.4), "attention's scale is 0.4, not 0.35355"),
        (ATTENTION, attended(Q, K, V, dim=1), "softmax runs over axis 1"),
        (ATTENTION, attended(Q, K, K), "attention takes its keys for values"),
        (SOFTMAX, ROWS.softmax(1), "softmax runs over axis 1, not axis 2"),
        (SOFTMAX, (1.002 * ROWS).softmax(-1), "softmax of 1.002 times its argument"),
        (LINEAR, ROWS @ MATRIX, "its weight is read transposed"),
        (LINEAR, ROWS @ MATRIX.half().float().T, "weights of fewer bits"),
        (LINEAR, ROWS @ MATRIX.roll(7, 0).flip(1).T, "with other weights"),
        (EMBEDDING, TABLE[IDS + 1], "each id takes another row, +1 from its own"),
    ],
)
def test_a_form_is_recognised(it, actual, words):
    right = RIGHT[it.op].numpy()
    assert words in error_pattern(right, actual.numpy(), FLOOR, it.op, it=it)


def few_rows(count):
    """Return a linear layer of a few rows, and its value with a weight of 8 bits."""
    rows = torch.randn(count, 16, generator=torch.Generator().manual_seed(5))
    it = operation("linear", {"input": rows}, {"weight": MATRIX})
    step = MATRIX.abs().max() / 127
    rounded = (MATRIX / step).round() * step
    return it, (rows @ MATRIX.T).numpy(), (rows @ rounded.T).numpy()


@pytest.mark.parametrize("count", [18, 24])
def test_fewer_bits_are_shown_by_few_more_rows_than_inputs(count):
    it, right, actual = few_rows(count)
    assert "weights of fewer bits" in error_pattern(right, actual, FLOOR, it.op, it=it)


@pytest.mark.parametrize("count", [12, 18, 24])
def test_noise_is_no_weight_of_fewer_bits(count):
    it, right, _ = few_rows(count)
    noise = np.random.default_rng(0).normal(size=right.shape) * 1e-2
    found = error_pattern(right, (right + noise).astype("f"), FLOOR, it.op, it=it)
    assert found.endswith("more than float32 rounds")


@pytest.mark.parametrize(
    ("it", "theirs", "words"),
    [
        (LINEAR, ROWS @ MATRIX, "the graph's weight is transposed"),
        (LINEAR, ROWS @ (MATRIX * OTHER[:16, :16]).T, "other weights"),
        (CONV, convolved(X, KERNEL.flip(2, 3)), "the graph's weight is flipped"),
        (CONV, convolved(X, KERNEL + 1e-3), "other weights"),
        (EMBEDDING, TABLE.roll(-1, 0)[IDS], "each id takes another row"),
        (EMBEDDING, (TABLE * OTHER)[IDS], "other weights"),
    ],
)
def test_a_weight_of_the_graph_that_is_not_pytorchs_is_told(it, theirs, words):
    """The candidate computes what its graph says, and PyTorch's value is `theirs`."""
    actual = RIGHT[it.op].numpy()
    assert words in error_pattern(theirs.numpy(), actual, FLOOR, it.op, it=it)


def test_other_weights_show_through_a_runtimes_own_rounding():
    made = convolved(X).numpy()
    right = convolved(X, KERNEL + 1e-4).numpy()
    noise = 0.1 * abs(made - right).mean() * torch.randn(made.shape, generator=G)
    found = error_pattern(right, made + noise.numpy(), FLOOR, "conv2d", it=CONV)
    assert "the graph's initialiser is another one than PyTorch's" in found


def test_tiles_alone_round_by_hundreds_of_floors_where_the_weights_are_right():
    right = convolved(X).numpy()
    noisy = right + 400 * FLOOR * torch.randn(right.shape, generator=G).numpy()
    found = error_pattern(right, noisy, FLOOR, "conv2d", it=CONV)
    assert found.endswith("rounding, not a rule")


def test_a_masked_attention_is_recognised_without_its_mask():
    mask = torch.tril(torch.ones(16, 16, dtype=torch.bool))
    tensors = {"query": Q, "key": K, "value": V, "attn_mask": mask}
    it = operation("scaled_dot_product_attention", tensors)
    right = functional.scaled_dot_product_attention(Q, K, V, mask).numpy()
    found = error_pattern(right, attended(Q, K, V).numpy(), FLOOR, it.op, it=it)
    assert found == "the mask of attention is dropped"


def test_parts_in_another_order_and_a_product_in_another_layout_are_recognised():
    both = [("tensors", "sin", X.numpy()), ("tensors", "cos", Y.numpy())]
    cat = Operation(op="cat", settings={"dim": 1}, arguments=both)
    right, wrong = torch.cat([X, Y], 1).numpy(), torch.cat([Y, X], 1).numpy()

    assert "are exchanged" in error_pattern(right, wrong, FLOOR, "cat", it=cat)

    keys = K.mT
    it = operation("matmul", {"self": Q, "other": keys})
    read = Q @ K.reshape(keys.shape)

    found = error_pattern((Q @ keys).numpy(), read.numpy(), FLOOR, "matmul", it=it)

    assert "an operand is reshaped where PyTorch transposes it" in found


def test_an_operator_like_no_form_of_its_own_gets_no_form():
    noise = torch.randn(X.shape, generator=G)
    right = normed(X)
    found = error_pattern(right.numpy(), (right + noise).numpy(), FLOOR, "", it=NORM)
    assert found == ""


SHARED = torch.randn(2, 2, 2, 16, 8, generator=G)


@pytest.mark.parametrize(
    ("it", "right"),
    [
        (
            operation(
                "scaled_dot_product_attention",
                {"query": torch.cat([Q, Q], 1), "key": SHARED[0], "value": SHARED[1]},
            ),
            functional.scaled_dot_product_attention(
                torch.cat([Q, Q], 1), SHARED[0], SHARED[1], enable_gqa=True
            ),
        ),
        (operation("index", {"self": TABLE.T, "indices": IDS[0]}), TABLE.T[:, IDS[0]]),
        (operation("softmax", {"self": torch.tensor(1.0)}, dim=0), torch.tensor(1.0)),
    ],
    ids=["heads-that-share-keys", "an-index-of-another-axis", "no-axes"],
)
def test_operands_that_fit_no_form_describe_nothing(it, right):
    wrong = right.numpy() * 1.5 + 0.25
    assert isinstance(error_pattern(right.numpy(), wrong, FLOOR, it.op, it=it), str)


VARIANCE = torch.rand(4, 16, 1, generator=G) * 1e-4


@pytest.mark.parametrize(
    ("actual", "words"),
    [
        (VARIANCE.sqrt(), "epsilon 1e-05 is not under the root"),
        (VARIANCE.sqrt() + 1e-3, "epsilon is 0.001 outside the root, not 1e-05 under"),
    ],
)
def test_an_epsilon_that_is_not_under_a_root_is_found(actual, words):
    under = VARIANCE + 1e-5
    it = operation("sqrt", {"self": under})
    found = error_pattern(under.sqrt().numpy(), actual.numpy(), FLOOR, "sqrt", it=it)
    assert found.startswith(words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c * 1.1, "the constant that is added to self_1 is 1.1 times"),
        (lambda c: c.flip(-1).square(), "another constant is added to self_1"),
    ],
)
def test_another_constant_that_is_no_parameter_is_found(change, words):
    x = torch.randn(2, 10, 16, generator=G)
    constant = torch.linspace(0, 1, 16)
    it = operation("add", {"self": x})
    right, wrong = x + constant, x + change(constant)
    found = error_pattern(right.numpy(), wrong.numpy(), FLOOR, "add", it=it)
    assert found.startswith(words)


BIAS = torch.randn(16, generator=G)
BIASED = operation("linear", {"input": ROWS}, {"weight": MATRIX, "bias": BIAS})
PADDED = operation(
    "conv2d",
    {"input": X},
    {"weight": KERNEL, "bias": B[:8]},
    stride=[1, 1],
    padding=[1, 1],
    dilation=[1, 1],
    groups=1,
)


def linear(x):
    return x @ MATRIX.T + BIAS


def padded(x):
    return convolved(x) + B[:8, None, None]


@pytest.mark.parametrize(
    ("it", "of", "x", "change", "words"),
    [
        (
            PADDED,
            padded,
            X,
            lambda x: x / 0.18215,
            "its input is 5.49 (1/0.18215) times",
        ),
        (PADDED, padded, X, lambda x: x * 0.18215, "its input is 0.18215 times"),
        (PADDED, padded, X, lambda x: 2 * x - 1, "2 times PyTorch's, and -1 off"),
        (PADDED, padded, X, lambda x: x - 0.5, "1 times PyTorch's, and -0.5 off"),
        (BIASED, linear, ROWS, lambda x: x / 0.13025, "(1/0.13025) times PyTorch's"),
        (BIASED, linear, ROWS, lambda x: -x, "its input is -1 times PyTorch's"),
        *(
            (operation(op, {"self": X}), of, X, lambda x: 1.1 * x, "its input is 1.1 ")
            for op, of in {"silu": functional.silu, "tanh": torch.tanh}.items()
        ),
    ],
)
def test_a_factor_in_front_of_an_operator_is_told(it, of, x, change, words):
    right, wrong = of(x).numpy(), of(change(x)).numpy()
    assert words in error_pattern(right, wrong, FLOOR, it.op, it=it)


def test_without_its_weights_a_factor_in_front_may_also_be_one_of_the_weight():
    right, wrong = padded(X).numpy(), padded(X / 0.18215).numpy()
    found = error_pattern(right, wrong, FLOOR, "Conv2d")
    assert "5.49 times what it should be but for an amount of its own, a bias" in found
    assert "a factor on its input or its weight" in found


def test_a_factor_that_holds_for_some_items_alone_is_not_told_of_the_input():
    scale = torch.tensor([1.0, 3.0])[:, None, None, None]
    found = error_pattern(
        padded(X).numpy(), padded(scale * X).numpy(), FLOOR, "conv2d", it=PADDED
    )
    assert "times PyTorch's" not in found


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        (slice(0, 8), slice(0, 16, 2), "every second place along axis 2, not one half"),
        (slice(8, 16), slice(1, 16, 2), "every second place along axis 2, not one"),
        (slice(0, 16, 2), slice(0, 8), "one half along axis 2, not every second place"),
        (slice(0, 8), slice(4, 12), ""),
    ],
)
def test_interleaved_rotary_pairs_are_told_from_halves(theirs, ours, words):
    it = operation("slice", {"self": ROWS})
    right, wrong = ROWS[..., theirs].numpy(), ROWS[..., ours].numpy()
    found = error_pattern(right, wrong, FLOOR, "slice", it=it)
    assert words in found
    assert ("rotary" in found) is bool(words)


@pytest.mark.parametrize(
    ("places", "written", "words"),
    [
        (
            [0, 4, 9],
            [0, 4, 4],
            "does not write place 9, and 4 has what 9 gets: an index",
        ),
        ([0, 4, 9], [0, 4], "along axis 1 it does not write place 9"),
        ([0, 4, 63], [0, 4, 5], "place 63, and 5 has what 63 gets: other indices"),
    ],
)
def test_rows_that_are_not_written_or_written_twice_are_named(places, written, words):
    new = torch.randn(4, 3, 16, generator=G)

    def put(places):
        made = ROWS.clone()
        for at, place in enumerate(places):
            made[:, place] = new[:, at]
        return made.numpy()

    tensors = {"self": ROWS, "values": new, "indices": torch.tensor([0, 4, -1])}
    it = operation("index_put", tensors)
    found = error_pattern(put(places), put(written), FLOOR, "index_put", it=it)

    assert words in found


def test_a_row_that_a_negative_index_does_not_reach_is_named_with_the_index():
    right = ROWS.clone()
    right[:, -1] = 1.0
    it = operation("index_put", {"self": ROWS, "indices": torch.tensor([-1])})
    found = error_pattern(right.numpy(), ROWS.numpy(), FLOOR, "index_put", it=it)
    assert found == "along axis 1 it does not write place 63, where an index is -1"
