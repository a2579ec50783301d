"""A deployed file, and the samples that it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from harness.core.case import Sample
from harness.core.entry import Entry
from harness.engine.export_files import GRAPH, MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One sample to run: id, inputs, reference, and whether to compare layers."""

    sample: str
    inputs: Entry
    reference: Entry
    layers: bool

    @classmethod
    def of(cls, sample: Sample, inputs: Entry, reference: Entry) -> Self:
        """Return the reading of a sample."""
        return cls(
            sample=sample.id, inputs=inputs, reference=reference, layers=sample.layers
        )

    @property
    def refused(self) -> str:
        """Why the reference does not run with the sample's sizes; empty if it does."""
        return str(self.reference.meta.get("refused", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """One deployed file and the samples that it runs.

    Attributes:
        artifact: The store's entry with the file and its weights.
        model: The file's name in the entry.
        probes: Path of the exported graph's probe table.
        readings: The samples, in file order.
        asked: The reference's answers of the input-sensitivity check; None to skip
            that check.

    """

    artifact: Entry
    model: str
    probes: Path
    readings: tuple[Reading, ...]
    asked: Entry | None = None

    @property
    def graph(self) -> Path:
        """The exported graph; if there is none, the graph of the deployed file.

        A foreign ``.mnn`` file has its own operators as the graph.
        """
        exported = self.probes.parent / MODEL
        return exported if exported.is_file() else self.artifact.path / GRAPH
