"""What is timed of a suite, on which sample, and with how many threads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from harness.benching.timing import COMPILE, EAGER, Plan, Subject
from harness.spec import REFERENCE, Case, Device, Sample


def subjects_of(cases: Iterable[Case]) -> dict[str, list[Subject]]:
    """Return what is timed of each component: PyTorch, eager and compiled, first."""
    found: dict[str, list[Subject]] = {}
    for case in cases:
        own = found.setdefault(case.subject, [])
        if not own:
            own += [
                Subject(case=case, runtime=REFERENCE, how=how)
                for how in (EAGER, COMPILE)
            ]
        own.append(Subject(case=case, runtime=case.backend, how=case.how))
    return found


def timed_sample(case: Case) -> Sample:
    """Return the sample that is timed: the first, outputs alone."""
    return case.samples[0]


def device_of(subject: Subject, plan: Plan) -> Device:
    """Return where a subject runs; PyTorch has as many threads as what it is beside."""
    case = subject.case
    device = case.device
    if subject.runtime == REFERENCE:
        device = replace(case.reference, threads=case.device.threads)
    return replace(device, threads=plan.threads or device.threads)
