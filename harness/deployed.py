"""A deployed file, and the samples that are read from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.entry import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One sample to run: its id, its inputs, its reference, and how much to watch."""

    sample: str
    inputs: Entry
    reference: Entry
    layers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """One deployed file and the samples that it serves.

    Attributes:
        artifact: Holds the file and its weights.
        model: The file's name in it.
        probes: Path of the exported graph's probe table.
        readings: In file order.
        asked: What PyTorch was asked about single inputs; None to ask nothing.

    """

    artifact: Entry
    model: str
    probes: Path
    readings: tuple[Reading, ...]
    asked: Entry | None = None
