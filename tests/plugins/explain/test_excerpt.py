"""An excerpt is a case of its own; its variant's flags name values of the excerpt."""

from dataclasses import replace

import pytest

from harness.engine.store import Store
from harness.plugins.explain.excerpt import excerpt_of
from harness.suite.suite import load_suite
from tests.places import DIGITS

CASES = {case.id: case for case in load_suite(DIGITS).cases}
HALF, EIGHT = "unet/onnxruntime/fp16", "unet/mnn/int8-weights"
PLAN = "--compressionParamsFile=my-plan.json"


@pytest.mark.parametrize(
    ("case", "flags", "renamed", "left"),
    [
        (HALF, ("--keep=conv,gone,Softmax",), True, ("--keep=v3,Softmax",)),
        (HALF, ("--keep=gone", "--per-channel"), True, ("--per-channel",)),
        (EIGHT, (PLAN, "--hqq"), True, ("--hqq",)),
        (EIGHT, (PLAN, "--hqq"), False, (PLAN, "--hqq")),
    ],
    ids=["values", "none of them", "drawn, with a file", "cut, with a file"],
)
def test_a_variant_names_what_the_excerpt_has(tmp_path, case, flags, renamed, left):
    files = tuple((one, tmp_path / "plan") for one in flags if one == PLAN)
    whole = CASES[case]
    whole = replace(
        whole,
        samples=whole.samples[:1],
        variant=replace(whole.variant, flags=flags, files=files),
    )
    meta = {
        "given": {"x0": "x0"},
        "begins": ["x0"],
        "nodes": 1,
        "inputs": [["x0", [2, 8], "float32"]],
        "outputs": [["v9", [2, 8], "float32"]],
        "kept": {"conv": "v3", "Softmax": "Softmax"},
    }
    entry = Store(root=tmp_path).make("excerpt", {"case": case}, lambda _: meta)

    variant = excerpt_of(whole, entry, renamed=renamed).case.variant

    assert variant.flags == left
    assert bool(variant.files) == (PLAN in left)
