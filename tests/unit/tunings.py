"""Tunings made by hand, in the form in which a measuring process returns them."""

from harness.core.case import Sample
from harness.plugins.tune.record import CaseTuning, Effort, TriedInput, Tuning
from harness.suite.judge import Judge
from tests.unit import reports

SHAPES = (("batch", 1),)


def sample(name, profile="realistic", knobs=()):
    return Sample(
        profile=profile, index=0, shapes=SHAPES, layers=False, knobs=knobs, label=name
    )


def case_of(*rows, draws=200, case=reports.CASE, usage=0.5, worst="draw-0"):
    """A case whose rows are the extent of so many draws, and of one suite sample."""
    draws_used = {
        f"draw-{at}": usage if f"draw-{at}" == worst else 0.1 for at in range(draws)
    }
    return CaseTuning(
        record=reports.record(*rows, case=case),
        usage={"suite-0": 0.2, **draws_used},
        layers=tuple(f"draw-{at}" for at in range(min(draws, 20))),
    )


def tuning_of(*cases, path="parity.toml", draws=200):
    tried = [TriedInput(sample=sample("suite-0"), why="suite")]
    tried += [
        TriedInput(sample=sample(f"draw-{at}"), why="independent")
        for at in range(draws)
    ]
    return Tuning(
        id="2026-11-21T10-00-00",
        date="2026-11-21",
        suite=str(path),
        effort=Effort(),
        versions={"torch": "2.13.0", "mnn": "3.6.1", "onnxruntime": "1.31.1"},
        tried={case.record.component: tuple(tried) for case in cases},
        overflowed={},
        cases={case.record.case: case for case in cases},
        took_s={case.record.component: 1.0 for case in cases},
    )


def judge_of(folder, text, gaps=()):
    return Judge(
        policy=reports.policy_of(folder, text), gaps=tuple(gaps), min_coverage=0.9
    )
