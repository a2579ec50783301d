"""Tunings made by hand, as a run on many inputs is read."""

from harness.core.case import Sample
from harness.core.record_form import TriedInput
from harness.plugins.tune.record import Tuning
from harness.suite.judge import Judge
from tests.unit import reports

SHAPES = (("batch", 1),)


def tried(name, usage, why="independent", profile="realistic", **about):
    about = {"layers": False, **about}
    sample = Sample(profile=profile, index=0, shapes=SHAPES, label=name, **about)
    return TriedInput(sample=sample, why=why, usage=usage)


def case_of(*rows, draws=200, case=reports.CASE, usage=0.5, others=()):
    """A case whose rows are the extent of so many draws, and of one suite sample."""
    inputs = [tried("suite-0", 0.2, "suite")]
    inputs += [
        tried(f"draw-{at}", 0.1 if at else usage, layers=at < 20) for at in range(draws)
    ]
    return reports.record(*rows, case=case, tried=(*inputs, *others))


def tuning_of(*cases, path="parity.toml"):
    return Tuning(
        id="2026-11-21T10-00-00",
        suite=str(path),
        versions={"torch": "2.13.0", "mnn": "3.6.1", "onnxruntime": "1.31.1"},
        cases={case.case: case for case in cases},
    )


def judge_of(folder, text, gaps=()):
    return Judge(
        policy=reports.policy_of(folder, text), gaps=tuple(gaps), min_coverage=0.9
    )
