"""Tune components of a suite: make what is missing, measure, and record it all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from msgspec import structs

from harness.commands.tune.inputs import Shapes, baked, is_wide, shapes_of
from harness.commands.tune.kept import last_kept
from harness.commands.tune.plan import Candidate, Effort, Findings, Plan
from harness.commands.tune.record import CaseTuning, Tuning
from harness.core.case import Case
from harness.core.environment import installed
from harness.core.errors import ParityError, StageError, SuiteError, first_line
from harness.core.groups import sample_groups, samples_of
from harness.core.memory import available_bytes
from harness.core.outcome import Outcome
from harness.core.record import OUTPUTS, CaseRecord
from harness.engine import export_files, tasks
from harness.engine.artifacts import Makers, native_converter
from harness.engine.deployed import Deployed
from harness.engine.run import missing, open_store, path_of
from harness.engine.worker_pool import Progress, Workshop
from harness.judge.policy import Policy
from harness.suite.suite import Suite

_TIMES_FILE = 3
"""Memory of a loaded session over the size of its file, at most, if not forecast."""

Files = Mapping[Shapes, Deployed]

_INPUTS_A_LIMIT = 10
"""Inputs that a stage's time limit is meant for; a tuning gets it so many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user asked for on the command line.

    Attributes:
        effort: How much is tried.
        store: Folder of artifacts; empty for the default.
        mnn_convert: Native converter; empty for one on PATH or the wheel's.

    """

    effort: Effort
    store: str = ""
    mnn_convert: str = ""


def tune(
    suite: Suite,
    cases: Sequence[Case],
    asked: Asked,
    now: datetime,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Tuning, tuple[str, ...]]:
    """Measure cases on many inputs.

    Returns:
        The tuning, and a sentence for each case that could not be measured.

    Raises:
        ParityError: Nothing could be measured, or the suite's files are wrong.

    """
    policy = Policy.load(suite.tolerances_path)
    effort = asked.effort
    inputs = 2 * (effort.samples + effort.searched) + 4 * effort.layers
    times = max(1, inputs / _INPUTS_A_LIMIT)
    limits = structs.replace(suite.limits, timeout_s=suite.limits.timeout_s * times)
    store = open_store(asked.store)
    workshop = Workshop.of(limits, on_progress)
    makers = Makers(store, workshop, native_converter(asked.mnn_convert or None))
    found: dict[str, list[Findings]] = {}
    failed: list[str] = []
    try:
        for together in _by_component(cases, failed):
            with TemporaryDirectory(prefix="parity-tune-") as kept:
                try:
                    plan = _plan(makers, policy, together, effort, Path(kept))
                except StageError as error:
                    failed.append(str(error))
                    continue
                for part in _parts(plan):
                    found.setdefault(plan.component.name, []).extend(
                        _measured(workshop, part, failed, say)
                    )
    except (KeyboardInterrupt, ParityError) as error:
        # Hours of measuring are not lost with what came after them.
        if not any(found.values()):
            raise
        failed.append(f"stopped: {str(error) or 'nothing further was tuned'}")
    finally:
        workshop.close()
        store.sweep()
    if not any(found.values()):
        reason = failed[0] if failed else "no case was chosen."
        msg = f"nothing could be tuned: {reason}"
        raise SuiteError(msg)
    return _tuning(suite, cases, effort, found, now), tuple(failed)


def _by_component(cases: Sequence[Case], failed: list[str]) -> Iterator[list[Case]]:
    together: dict[str, list[Case]] = {}
    for case in cases:
        if gone := missing(case):
            failed.append(f"{case.id}: {gone[0]} is not installed.")
        else:
            together.setdefault(case.component.name, []).append(case)
    yield from together.values()


def _plan(
    makers: Makers, policy: Policy, cases: Sequence[Case], effort: Effort, kept: Path
) -> Plan:
    """Make every file that the cases need, and say what is to be measured."""
    first = cases[0]
    every = samples_of(cases)
    readings = makers.prepare(first, every)
    groups = {
        baked(group.samples[0].shapes, first.export): group
        for group in sample_groups(first, every)
    }
    candidates = []
    for case in cases:
        files = {}
        for sizes, group in groups.items():
            onnx = makers.graph(case, group)
            artifact, model = makers.deploy(case, onnx)
            files[sizes] = Deployed(
                artifact=artifact,
                model=model,
                probes=onnx.file(export_files.PROBES),
                readings=(),
            )
        rule = policy.for_probe(
            component=case.subject,
            backend=case.backend,
            variant=case.how,
            group=OUTPUTS,
            probe=first.component.outputs[0].name,
        )
        candidates.append(
            Candidate(
                case=case.id,
                backend=case.backend,
                device=case.device,
                wide=is_wide(case),
                limit=rule.tolerance,
                files=files,
                need_bytes=_need(makers, case, case.backend, files),
            )
        )
    return Plan(
        root=makers.store.root,
        component=first.component,
        export=first.export,
        reference=first.reference,
        groups={sizes: replace(g, samples=()) for sizes, g in groups.items()},
        suite=every,
        readings=readings,
        shapes=shapes_of(cases),
        candidates=tuple(candidates),
        effort=effort,
        need_bytes=_need(makers, first, "torch", candidates[0].files),
        kept=kept,
    )


def _need(makers: Makers, case: Case, host: str, files: Files) -> int:
    """Return what a stage is forecast to take; a guess where nobody forecasts."""
    if need := makers.need(case, host, case.samples):
        return need.size_bytes
    return _TIMES_FILE * sum(file.artifact.size_bytes for file in files.values())


def _parts(plan: Plan) -> Iterator[Plan]:
    """Split a plan where its files would not fit into memory together."""
    room = available_bytes()
    part: list[Candidate] = []
    held = plan.need_bytes
    for candidate in plan.candidates:
        if part and held + candidate.need_bytes > room:
            yield replace(plan, candidates=tuple(part))
            part, held = [], plan.need_bytes
        part.append(candidate)
        held += candidate.need_bytes
    yield replace(plan, candidates=tuple(part))


def _measured(
    workshop: Workshop, plan: Plan, failed: list[str], say: Callable[[str], None]
) -> Iterator[Findings]:
    """Measure a plan; if that fails, each of its cases alone, to lose only one."""
    name = plan.component.name
    try:
        result = workshop.job(
            "tune",
            tasks.TUNE,
            plan,
            subject=name,
            label=f"{name}: tuning",
            failure=Outcome.RUN,
        )
    except StageError as error:
        if len(plan.candidates) == 1:
            failed.append(f"{plan.candidates[0].case}: {error}")
            # What a process found before it died is an answer too.
            if found := last_kept(plan):
                yield found
            return
        say(f"  {name}: {first_line(error)}")
        say(f"  {name}: its {len(plan.candidates)} cases are measured one by one now")
        for candidate in plan.candidates:
            alone = replace(plan, candidates=(candidate,))
            yield from _measured(workshop, alone, failed, say)
    else:
        yield cast("Findings", result.value)


def _tuning(
    suite: Suite,
    cases: Sequence[Case],
    effort: Effort,
    found: dict[str, list[Findings]],
    now: datetime,
) -> Tuning:
    every = [(name, part) for name, parts in found.items() for part in parts]
    measured = {case: m for _, part in every for case, m in part.cases.items()}
    tried = {}
    for name, parts in found.items():
        known = {t.sample.id: t for part in parts for t in part.tried}
        tried[name] = tuple(known.values())
    tunings = {}
    for case in cases:
        if case.id not in measured:
            continue
        one = measured[case.id]
        tunings[case.id] = CaseTuning(
            record=CaseRecord(
                case=case.id,
                component=case.subject,
                backend=case.backend,
                variant=case.how,
                suite=path_of(suite),
                rows=one.rows,
                asked=asdict(case.device),
                ran=one.ran,
                coverage=one.coverage,
            ),
            points=one.points,
            layers=one.layers,
            noise=one.noise,
        )
    return Tuning(
        id=now.strftime("%Y-%m-%dT%H-%M-%S"),
        date=now.strftime("%Y-%m-%d"),
        suite=path_of(suite),
        effort=effort,
        versions={
            **installed(("torch",)),
            **{m.ran["backend"]: m.ran["version"] for m in measured.values()},
        },
        tried=tried,
        overflowed={
            name: tuple(o for part in parts for o in part.overflowed)
            for name, parts in found.items()
        },
        cases=tunings,
        took_s={name: sum(p.took_s for p in parts) for name, parts in found.items()},
    )
