"""What is tuned together: as many builds beside the reference as there is room for."""

from pathlib import Path

import pytest

from harness.commands.tune import tune
from harness.commands.tune.plan import Candidate, Effort, Plan
from harness.core.case import Device, ExportSettings
from harness.judge.tolerance import Tolerance
from harness.recipes import describe
from tests.unit.recipes.test_inputs import SOURCE

NEEDS = (4, 3, 5)


def plan():
    candidates = tuple(
        Candidate(
            case=str(place),
            backend="mnn",
            device=Device(),
            wide=False,
            limit=Tolerance(atol=1.0, rtol=0.0),
            files={},
            need_bytes=need,
        )
        for place, need in enumerate(NEEDS)
    )
    return Plan(
        root=Path(),
        component=describe("vae_decoder", "vae_decoder", SOURCE),
        export=ExportSettings(),
        reference=Device(),
        groups={},
        suite=(),
        readings={},
        shapes=(),
        candidates=candidates,
        effort=Effort(),
        need_bytes=10,
        kept=Path(),
    )


@pytest.mark.parametrize(
    ("room", "cases"),
    [
        (22, ["012"]),  # the reference's 10, and all of them
        (21, ["01", "2"]),
        (17, ["01", "2"]),
        (16, ["0", "1", "2"]),
        (1, ["0", "1", "2"]),  # each is tried alone, and may be refused there
    ],
)
def test_builds_are_tuned_together_while_there_is_room(monkeypatch, room, cases):
    monkeypatch.setattr(tune, "available_bytes", lambda: room)

    parts = list(tune._parts(plan()))

    assert ["".join(c.case for c in part.candidates) for part in parts] == cases
