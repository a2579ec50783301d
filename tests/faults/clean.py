"""Clean runs: nothing is wrong, so whatever is said is a false alarm."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from harness.core.case import PROFILES, Case, Sample
from tests.faults.stand import Stand
from tests.faults.trial import said

SEEDS = (1001, 1002, 1003)
"""Of inputs that no tolerance was set with: digits' own seed is 0."""

COMPONENTS = (
    "text_encoder",
    "unet",
    "controlnet",
    "controlled_unet",
    "vae_encoder",
    "vae_decoder",
)
BACKENDS = ("onnxruntime", "mnn")
REALISTIC = 2
"""Draws of the realistic profile for each seed; of the others there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanRun:
    """One sample in one runtime, with nothing wrong.

    Attributes:
        id: Component, runtime, variant, profile and seed.
        alarm: What the harness says of it; empty if it passes.
        peers: Rule of a peer to whether it tells.

    """

    id: str
    alarm: str
    peers: Mapping[str, bool]


def clean_runs(stand: Stand) -> Iterator[CleanRun]:
    """Run every component in both runtimes on samples that nobody has seen."""
    for component in COMPONENTS:
        for backend in BACKENDS:
            case = stand.case(component, backend)
            drawn = [of_seed(case, seed) for seed in SEEDS]
            every = tuple(sample for part in drawn for sample in part.samples)
            stand.artifacts.prepare(case, every)  # one export serves all references
            for seed, part in zip(SEEDS, drawn, strict=True):
                yield from _runs(stand, part, seed)


def of_seed(case: Case, seed: int) -> Case:
    """Return a case with a sample of every profile, of both batch sizes in turn."""
    sizes = tuple(dict.fromkeys(sample.shapes for sample in case.samples))
    drawn = [(profile, 0) for profile in PROFILES]
    drawn += [("realistic", index) for index in range(1, REALISTIC)]
    samples = tuple(
        Sample(
            profile=profile, index=index, shapes=sizes[(place + seed) % 2], seed=seed
        )
        for place, (profile, index) in enumerate(drawn)
    )
    return replace(case, samples=samples)


def _runs(stand: Stand, case: Case, seed: int) -> Iterator[CleanRun]:
    trial = stand.run(case)
    for sample in case.samples:
        rows = tuple(row for row in trial.record.rows if row.sample == sample.id)
        record = replace(trial.record, rows=rows)
        yield CleanRun(
            id=f"{case.id}/{sample.id}/seed-{seed}",
            alarm=said(record, stand.judged(record)),
            peers=trial.told.get(sample.id, {}),
        )
