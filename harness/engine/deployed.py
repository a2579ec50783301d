"""A deployed file, and the samples that are read from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.core.entry import Entry
from harness.engine.export_files import GRAPH, MODEL


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
        asked: What the reference was asked about single inputs; None to ask nothing.

    """

    artifact: Entry
    model: str
    probes: Path
    readings: tuple[Reading, ...]
    asked: Entry | None = None

    @property
    def graph(self) -> Path:
        """The exported graph, or what stands for one that nobody has.

        An ``.mnn`` file of others has its own operators in that place.
        """
        exported = self.probes.parent / MODEL
        return exported if exported.is_file() else self.artifact.path / GRAPH
