"""Make a few entries of a store anew, and compare them with those that are there.

Whoever can write to a shared store can put a wrong entry there, with digests that fit.
Nothing in the entry shows that. The checkpoint shows it: the same stages make the entry
again, in a store of its own, and the two are compared.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from harness.core.case import Case, Sample
from harness.core.entry import Entry
from harness.core.errors import StoreError
from harness.core.groups import Group, sample_groups
from harness.core.outcome import Outcome
from harness.engine import keys, tasks
from harness.engine.artifacts import Artifacts
from harness.engine.store import Store
from harness.engine.worker_pool import WorkerPool
from harness.suite.schema import Limits

_INPUTS, _GRAPH, _REFERENCE = (
    one.kind for one in (tasks.INPUTS, tasks.GRAPH, tasks.REFERENCE)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remade:
    """How an entry compares with the same one, made anew.

    Attributes:
        entry: The store's entry.
        subject: The component, and the sample if it is of one.
        differs: Whether it is another one.
        words: What differs, or what was found equal.

    """

    entry: Entry
    subject: str
    differs: bool
    words: str


@dataclass(frozen=True, slots=True)
class _Part:
    """An entry that a case needs: its kind, and the group and sample that it is of."""

    kind: str
    case: Case
    group: Group
    sample: Sample

    def find(self, store: Store) -> Entry | None:
        """Return the entry, if a store has it, made of what that store has."""
        case, sample = self.case, self.sample
        if self.kind == _INPUTS:
            return tasks.INPUTS.find(store, keys.whole(case.component), sample)
        if self.kind == _GRAPH:
            return tasks.find_graph(store, case, self.group)
        reading = tasks.find_reading(store, case, self.group, sample)
        return reading.reference if reading else None

    @property
    def subject(self) -> str:
        """The component, and the sample if the entry is of one."""
        name = self.case.component.name
        return name if self.kind == _GRAPH else f"{name}, {self.sample.id}"


def remake(
    store: Store, cases: Sequence[Case], limits: Limits, most: int
) -> Iterator[Remade]:
    """Make up to `most` entries anew, drawn at random, and yield how each compares.

    Raises:
        StoreError: An entry is damaged.
        ParityError: A stage ended without an answer.

    """
    worker_pool = WorkerPool.of(limits)
    try:
        with TemporaryDirectory() as scratch:
            fresh = Store(root=Path(scratch, "store"))
            artifacts = Artifacts(fresh, worker_pool, None)
            known = [artifacts.known(case) for case in cases]
            for part, entry in _drawn(store, known, most):
                samples = () if part.kind == _GRAPH else (part.sample,)
                artifacts.make_group(part.case, replace(part.group, samples=samples))
                made = part.find(fresh)
                if made is None:
                    msg = f"{part.subject}: the {part.kind} could not be made anew."
                    raise StoreError(msg)
                yield _compared(worker_pool, part, entry, made)
    finally:
        worker_pool.close()


def _drawn(
    store: Store, cases: Sequence[Case], most: int
) -> Iterator[tuple[_Part, Entry]]:
    """Yield entries that the store has, in an order that nobody can foresee."""
    parts = [
        _Part(kind, case, group, sample)
        for case in cases
        for group in sample_groups(case, case.samples)
        for sample in group.samples
        for kind in (_INPUTS, _GRAPH, _REFERENCE)
    ]
    random.SystemRandom().shuffle(parts)
    seen: set[str] = set()
    for part in parts:
        if len(seen) == most:
            return
        entry = part.find(store)
        if entry is not None and entry.id not in seen:
            seen.add(entry.id)
            yield part, entry


def _compared(pool: WorkerPool, part: _Part, entry: Entry, made: Entry) -> Remade:
    result = pool.job(
        "torch",
        tasks.COMPARE_REMADE,
        *(entry, made),
        subject=part.subject,
        label=f"{part.subject}: the {part.kind} made anew",
        failure=Outcome.REFERENCE,
    )
    differs, words = cast("tuple[bool, str]", result.value)
    return Remade(entry=entry, subject=part.subject, differs=differs, words=words)
