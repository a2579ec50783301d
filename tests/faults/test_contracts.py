"""Planted faults that break a component's contract are named by their contract."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from harness.core.groups import sample_groups
from harness.core.outcome import Outcome
from harness.plugins.contracts.judged import contract_breach
from tests.faults.catalogue import FAULTS
from tests.faults.planting import plant
from tests.faults.stand import Stand

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.case import Case
    from harness.core.entry import Entry
    from harness.engine.deployed import Deployed

pytestmark = pytest.mark.slow


class Asking(Stand):
    """A stand whose files are asked about single inputs, as a run asks them."""

    def deployed(self, case: Case, altered: Entry | None = None) -> Deployed:
        file = super().deployed(case, altered)
        (group,) = sample_groups(case, case.samples)
        return replace(file, asked=self.artifacts.asked(case, group))


@pytest.fixture(scope="module")
def stand(shared_store: Path):
    with Asking(shared_store) as stand:
        yield stand


@pytest.mark.parametrize(
    ("name", "backend", "outcome", "facts"),
    [
        ("timestep-folded", "onnxruntime", Outcome.DEAD_INPUT, ("'timestep'",)),
        *(
            (
                "inputs-of-one-shape-swapped",
                backend,
                Outcome.EXCHANGED,
                ("'down_block_res_sample_1'", "'down_block_res_sample_2'"),
            )
            for backend in ("onnxruntime", "mnn")
        ),
        (
            "example-inputs-aliased",
            "onnxruntime",
            Outcome.DEAD_INPUT,
            ("'down_block_res_sample_2'",),
        ),
    ],
)
def test_a_fault_of_an_input_is_named_with_it(stand, name, backend, outcome, facts):
    (fault,) = (fault for fault in FAULTS if fault.name == name)
    trial = plant(stand, fault, backend)

    assert trial.record.failure is None, trial.record.failure
    found = contract_breach(trial.record)
    assert found is not None
    assert found[0] is outcome
    assert [fact for fact in facts if fact not in found[1]] == []


def test_a_size_that_is_fixed_in_a_file_is_named(stand):
    (fault,) = (fault for fault in FAULTS if fault.name == "batch-axis-frozen")
    trial = plant(stand, fault, "onnxruntime")

    assert trial.record.failure.outcome is Outcome.FROZEN
    assert "'batch' (axis 0 of input 'input_ids')" in trial.record.failure.message
