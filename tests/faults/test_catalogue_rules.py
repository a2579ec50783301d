"""Rules of our own, broken on purpose: a test fails that is named after it."""

from types import SimpleNamespace
from typing import Any

import pytest

from harness.engine.host import Host
from tests.faults.catalogue.fault import Fault, InRule
from tests.faults.rules import PRELOAD, break_rule, failed_with, passes
from tests.faults.trials import of_families

pytestmark = pytest.mark.slow

SAME = "if record.failure is not None:\n        return Outcome"
AS_IT_WAS = Fault(
    name="as-it-was",
    family="metric",
    plant=InRule(module="harness/judge/case.py", right=SAME, wrong=SAME),
    expects=(),
)


@pytest.fixture(scope="module")
def host():
    with Host("rules", PRELOAD) as host:
        yield host


@pytest.mark.parametrize(("fault", "backend"), of_families("metric"))
def test_a_broken_rule_fails_a_test_that_is_named_after_it(holds, fault, backend):
    holds(fault, backend)


def test_a_rule_that_is_as_it_was_fails_no_test(host):
    assert break_rule(host, AS_IT_WAS) == (False, "")


@pytest.mark.parametrize(
    ("body", "passed"), [("pass", True), ("assert False", False), ("nowhere", False)]
)
def test_what_fails_with_nothing_broken_is_no_catch(host, tmp_path, body, passed):
    path = tmp_path / "test_alone.py"
    path.write_text(f"def test_it():\n    {body}\n")

    result = host.run(passes, path, "test_it", timeout_s=60, label="control")

    assert result.value is passed


def test_a_test_that_fails_anyway_is_named_and_not_counted():
    answers = {failed_with: "test_flaky", passes: False}
    host: Any = SimpleNamespace(
        run=lambda function, *_, **__: SimpleNamespace(value=answers[function])
    )

    said = "test_flaky fails without the fault too"
    assert break_rule(host, AS_IT_WAS) == (False, said)
