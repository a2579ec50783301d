"""A variant must do what its name says, or change the file."""

import pytest

from harness.core.outcome import Outcome
from harness.core.record import CaseRecord
from harness.judge.stored_bits import stored_words, without_effect


def stored(variant, bits, backend="onnxruntime"):
    made = {} if bits is None else {"bits": bits}
    return CaseRecord(
        case=f"two/{backend}/{variant}",
        component="two",
        backend=backend,
        variant=variant,
        asked={},
        artifacts={backend: {"size_bytes": 1, "meta": made}},
    )


@pytest.mark.parametrize(
    ("backend", "variant", "asked"),
    [
        ("onnxruntime", "int8-weights", "8"),
        ("openvino", "int8-weights", "8"),
        ("mnn", "int8-weights", "8"),
        ("mnn", "int4-weights", "4"),
        ("mnn", "fp16-weights", "16"),
        ("mnn", "int8-weights@phone-low", "8"),
    ],
)
def test_a_variant_of_which_no_layer_is_stored_so_has_no_effect(
    variant, asked, backend
):
    none, some = {"32": 5}, {asked: 2, "32": 3}

    found = without_effect(stored(variant, none, backend))
    assert found is not None
    assert found[0] is Outcome.NO_EFFECT
    assert f"no layer of the deployed file is stored in {asked} bits" in found[1]
    assert without_effect(stored(variant, some, backend)) is None
    assert stored_words(stored(variant, some, backend)) == (
        f"2 of 5 layers in {asked} bits"
    )


@pytest.mark.parametrize(
    ("variant", "bits"),
    [
        ("fp32", {"32": 5}),
        ("fp16", {"32": 5}),
        ("int8-static", {"32": 5}),
        ("mine", {"32": 5}),
        ("int8-weights", None),
    ],
)
def test_a_name_that_says_no_bits_of_weights_promises_none(variant, bits):
    one = stored(variant, bits)

    assert without_effect(one) is None
    assert stored_words(one) == ""
