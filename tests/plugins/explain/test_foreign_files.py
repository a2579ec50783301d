"""What `explain` tries on files that others made, and says of them."""

import pytest

from harness.core.settings import Settings
from harness.engine.engine import Engine
from harness.engine.store import Store
from harness.plugins.explain.explain import explain
from harness.plugins.explain.setting_changes import plain_variant
from harness.plugins.start.init.write import write_suite
from harness.suite.judge import Judge
from harness.suite.suite import load_suite
from tests.places import EXPORTED
from tests.plugins.foreign.test_other_reference import (
    END,
    MATMUL,
    ONE,
    SCALE,
    TANH,
    V,
    W,
    folded,
    net,
)


@pytest.mark.parametrize(
    ("backend", "variant"), [("onnxruntime", "given"), ("mnn", "fp32")]
)
def test_the_other_runtime_has_a_file_under_its_own_name(backend, variant):
    cases = {case.id: case for case in load_suite(EXPORTED).cases}

    assert plain_variant(cases["unet/mnn/fp32"], backend).name == variant


def test_explain_says_that_the_file_is_wrong_and_not_its_runtime(tmp_path):
    nodes = [MATMUL, SCALE, TANH, END]
    before = net(tmp_path / "before.onnx", nodes, w=W, v=V, one=ONE)
    into = tmp_path / "suite"
    write_suite(before, into, after=folded(tmp_path / "after.onnx", w=W))
    suite = load_suite(into)
    case = next(case for case in suite.cases if case.backend == "onnxruntime")
    with Engine(Store(root=tmp_path / "store"), suite.limits) as engine:
        judge = Judge.of(suite, Settings())
        found = explain(engine, judge, case, lambda _: None)

    assert found.stage.startswith("export: ONNX's reference evaluator")
