"""Tunings made by hand, as a measuring process would bring them back."""

from pathlib import Path

from harness.commands.tune.plan import Effort, Point, Tried
from harness.commands.tune.record import CaseTuning, Tuning
from harness.core.case import Sample
from harness.core.record import LAYERS
from harness.judge.policy import Policy
from harness.suite.judge import Judge
from tests.unit import reports

SHAPES = (("batch", 1),)


def sample(name, profile="realistic", knobs=()):
    return Sample(
        profile=profile, index=0, shapes=SHAPES, layers=False, knobs=knobs, label=name
    )


def point(name, row, usage=0.5):
    comparison = row.comparison
    return Point(
        sample=name,
        usage=usage,
        floors=comparison.floor_multiple,
        sqnr_db=comparison.sqnr_db,
        required_atol=comparison.required_atol,
    )


def case_of(*rows, draws=200, case=reports.CASE, usage=0.5, worst="draw-0"):
    """A case whose rows are the extent of so many draws, and of one suite sample."""
    output = next((row for row in rows if row.what != LAYERS), rows[0])
    points = [point("suite-0", output, usage=0.2)]
    points += [
        point(f"draw-{at}", output, usage if f"draw-{at}" == worst else 0.1)
        for at in range(draws)
    ]
    return CaseTuning(
        record=reports.record(*rows, case=case),
        points=tuple(points),
        layers=tuple(f"draw-{at}" for at in range(min(draws, 20))),
        noise=(),
    )


def tuning_of(*cases, path="parity.toml", draws=200):
    tried = [Tried(sample=sample("suite-0"), why="suite")]
    tried += [
        Tried(sample=sample(f"draw-{at}"), why="independent") for at in range(draws)
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
    path = Path(folder) / "tolerances.toml"
    path.write_text(text)
    return Judge(policy=Policy.load(path), gaps=tuple(gaps), min_coverage=0.9)
