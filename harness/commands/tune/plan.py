"""What a tuning is asked to measure, and what it brings back; nouns that travel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.commands.tune.inputs import Shapes
from harness.core.case import Component, Device, ExportSettings, Sample
from harness.core.errors import SpecError
from harness.core.groups import Group
from harness.core.record import Row
from harness.engine.deployed import Deployed, Reading
from harness.judge.tolerance import Tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is tried.

    Attributes:
        samples: Independent draws of each family; confidence rests on them.
        searched: Further draws of each family, led by the worst found.
        layers: How many of the independent draws have their layers compared too.
        noise: On how many inputs repeats and thread counts are tried.
        seed: Of all draws.

    """

    samples: int = 200
    searched: int = 60
    layers: int = 59
    noise: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < 1 or min(self.searched, self.layers, self.noise) < 0:
            msg = (
                "a tuning needs 1 or more samples, and counts that are not negative; "
                f"got {self.samples}, {self.searched}, {self.layers}, {self.noise}."
            )
            raise SpecError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One case of the component: its files, and what its search is led by.

    Attributes:
        case: Its id.
        backend: Its runtime.
        device: Where it runs.
        wide: Whether inputs beyond realistic ones are asked of it.
        limit: What its outputs are held to today; a worse sample uses more of it.
        files: Sizes that a graph bakes in to the file made from that graph.
        need_bytes: Memory that its sessions are forecast to take.

    """

    case: str
    backend: str
    device: Device
    wide: bool
    limit: Tolerance
    files: Mapping[Shapes, Deployed]
    need_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that one component's measuring process is told.

    Attributes:
        root: Of the store.
        component: Which.
        export: How it becomes ONNX; the reference's program comes of it.
        reference: Where PyTorch runs.
        groups: Baked sizes to the group whose graph serves them.
        suite: The suite's own samples.
        readings: What the store has recorded of them.
        shapes: Sizes that may be drawn.
        candidates: The cases to measure.
        effort: How much.
        need_bytes: Memory that PyTorch is forecast to take.
        kept: Folder for the references of outputs, which the next process finds there.

    """

    root: Path
    component: Component
    export: ExportSettings
    reference: Device
    groups: Mapping[Shapes, Group]
    suite: tuple[Sample, ...]
    readings: Mapping[Sample, Reading] = field(repr=False)
    shapes: tuple[Shapes, ...]
    candidates: tuple[Candidate, ...]
    effort: Effort
    need_bytes: int
    kept: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One input and why it was tried.

    Attributes:
        sample: The input.
        why: ``suite``, ``kept`` by an earlier tuning, ``independent`` or ``searched``.

    """

    sample: Sample
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How far outputs move when nothing but the circumstances do.

    Attributes:
        kind: ``repeat``, ``threads 1``, ``watched``, …
        max_abs: Largest difference from the outputs as deployed.
        floors: The same as RMS in noise floors; None where there is no floor.

    """

    kind: str
    max_abs: float
    floors: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One sample's outputs in one case, as bad as the worst of them.

    Attributes:
        sample: Its id.
        usage: Part of today's limit that is used.
        floors: Error in noise floors.
        sqnr_db: Signal to error.
        required_atol: At each rtol of the ladder.

    """

    sample: str
    usage: float
    floors: float | None
    sqnr_db: float
    required_atol: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one case left.

    Attributes:
        rows: One for each probe and output: the extent of all its samples.
        points: Outputs, sample by sample.
        layers: How many samples had their layers compared, by family and reason.
        noise: Circumstances.
        ran: What really ran.
        coverage: Of computing operators, as in a run.

    """

    rows: tuple[Row, ...] = field(repr=False)
    points: tuple[Point, ...] = field(repr=False)
    layers: tuple[str, ...]
    noise: tuple[Noise, ...]
    ran: Mapping[str, Any]
    coverage: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What one component's process brings back.

    Attributes:
        tried: Every input, in order.
        overflowed: Ids of inputs on which the reference itself is not finite; they
            are left out of everything else.
        cases: Case to what was measured.
        took_s: Seconds.

    """

    tried: tuple[Tried, ...] = field(repr=False)
    overflowed: tuple[str, ...]
    cases: Mapping[str, Measured]
    took_s: float
