"""What is timed of a suite, on which sample, and with how many threads."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from harness.commands.bench.timing import COMPILE, EAGER, Plan, Subject
from harness.core.case import REFERENCE, Case, Device, Sample
from harness.core.pipeline import MIXED, Chain
from harness.core.text import count
from harness.suite.suite import Suite, Tested


def timed_cases(suite: Suite, names: Collection[str]) -> list[Tested]:
    """Return what of a suite is meant; chains of several runtimes if a name says so.

    Those are there to tell who brings an error, and nobody deploys two dozen of them.
    """
    chosen = suite.select(tuple(names))
    if any(MIXED in name for name in names):
        return list(chosen)
    return [case for case in chosen if case.backend != MIXED]


def subjects_of(cases: Iterable[Case | Chain]) -> dict[str, list[Subject]]:
    """Return what is timed of each component and pipeline: PyTorch first.

    Of a component compiled too; a pipeline's networks would each be compiled anew.
    """
    found: dict[str, list[Subject]] = {}
    for case in cases:
        own = found.setdefault(case.subject, [])
        if not own:
            own += [
                Subject(case=case, runtime=REFERENCE, how=how)
                for how in ((EAGER,) if isinstance(case, Chain) else (EAGER, COMPILE))
            ]
        own.append(Subject(case=case, runtime=case.backend, how=case.how))
    return found


def timed_sample(case: Case) -> Sample:
    """Return the sample that is timed: the first, outputs alone."""
    return case.samples[0]


def device_of(subject: Subject, plan: Plan) -> Device:
    """Return where a subject runs; PyTorch has as many threads as what it is beside."""
    case = subject.case
    if isinstance(case, Chain):
        used = [one.device.threads for _, one in case.seats if one is not None]
        return replace(case.device, threads=plan.threads or max(used))
    device = case.device
    if subject.runtime == REFERENCE:
        device = replace(case.reference, threads=case.device.threads)
    return replace(device, threads=plan.threads or device.threads)


def inputs_words(case: Case | Chain) -> str:
    """Return in words what a case is timed on."""
    if isinstance(case, Chain):
        pipeline = case.pipeline
        pictures = count(len(pipeline.texts), "picture")
        size = f"{pipeline.width} × {pipeline.height}"
        return f"{pictures} of {size}, {count(pipeline.steps, 'step')}"
    sample = timed_sample(case)
    return " ".join((sample.id, *(f"{name} {size}" for name, size in sample.shapes)))
