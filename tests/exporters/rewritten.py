"""A rewritten file in the place of the one it was made from: taken, run and judged.

What `parity run` does with ``onnx = "file"``, by the same functions. A network is built
and translated once for all of its files, which would take most of the time.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import onnx
import torch

from harness.core.case import Case, ForeignModel, Sample
from harness.core.digest import digest_file, digest_value
from harness.core.entry import Entry
from harness.core.errors import ParityError, StageError, SuiteError
from harness.core.groups import sample_groups
from harness.core.outcome import Outcome
from harness.core.record import CaseRecord, Failure
from harness.engine import export_files, keys, tasks
from harness.engine.deployed import Deployed, Reading
from harness.measure.name_map import Names
from harness.measure.trace import load_inputs
from harness.plugins.foreign.files import lineup
from harness.plugins.foreign.files.lineup import NAMES, take_onnx
from harness.runtimes.pytorch.prepare import Work
from harness.runtimes.pytorch.reference import record_reference
from harness.runtimes.pytorch.translation import TracedNetwork, translate_once
from tests.faults.stand import Stand
from tests.faults.trial import Trial

_PROGRAM = ("measure", "plugins/foreign/files", "runtimes/graph", "runtimes/pytorch")


class Rewritten:
    """One component of a suite, and whatever files are made of it."""

    def __init__(self, stand: Stand, component: str) -> None:
        self.stand = stand
        self.component = component
        self.cases = {
            backend: self._case(backend) for backend in ("onnxruntime", "mnn")
        }
        self._taken: dict[str, tuple[Entry, str]] = {}

    def _case(self, backend: str) -> Case:
        found = [
            case
            for case in self.stand.suite.cases
            if case.subject == self.component and case.backend == backend
        ]
        as_is = {"onnxruntime": ("fp32", "given"), "mnn": ("fp32",)}[backend]
        case = next(case for case in found if case.how in as_is)
        # Of each profile and size one: an epsilon shows where there is little variance.
        one_of = {(sample.profile, sample.shapes): sample for sample in case.samples}
        return replace(case, samples=tuple(one_of.values()))

    @functools.cached_property
    def _work(self) -> Work:
        case = self.cases["onnxruntime"]
        torch.set_num_threads(1)
        return Work(self.stand.store, case.component, case.export, case.reference)

    @functools.cached_property
    def original(self) -> Path:
        """The file that is rewritten."""
        case = self.cases["onnxruntime"]
        return self.stand.artifacts.export(case).file(export_files.MODEL)

    @functools.cached_property
    def network(self) -> TracedNetwork:
        """The network, as an export of it sees it."""
        case = self.cases["onnxruntime"]
        (group, *_) = sample_groups(case, case.samples)
        return self._work.network(group)

    def take(self, path: Path) -> tuple[Entry, str]:
        """Return a file's entry in the store, and how it was lined up.

        Raises:
            ParityError: It is refused.

        """
        digest = digest_file(path)
        if digest not in self._taken:
            self._taken[digest] = self._take(path, digest)
        return self._taken[digest]

    def _take(self, path: Path, digest: str) -> tuple[Entry, str]:
        case = self.cases["onnxruntime"]
        component = replace(case.component, foreign=ForeignModel(onnx=path))

        def build(folder: Path) -> Mapping[str, object]:
            take_onnx(path, replace(self.network, component=component), folder)
            return {}

        key = {
            "file": digest,
            "component": self._identity,
            "code": digest_file(Path(__file__)),
            "align": keys.code_digest(_PROGRAM),
        }
        entry = self.stand.store.make("onnx", key, build)
        names = Names.load(entry.path)
        return entry, names.by if names else ""

    @functools.cached_property
    def _identity(self) -> str:
        case = self.cases["onnxruntime"]
        bare = replace(case.component, foreign=None)
        return digest_value(
            tasks.GRAPH.key(bare, replace(case.export, dynamic=()), {"of": 1})
        )

    def readings(self, case: Case, by: str) -> tuple[Reading, ...]:
        """Return the samples, with the references of the program that `by` means."""
        (group, *more) = sample_groups(case, case.samples)
        assert not more, "a file for each size"
        return tuple(
            Reading(
                sample=sample.id,
                inputs=self._work.inputs(sample),
                reference=self._reference(sample, by_names=by == NAMES),
                layers=True,
            )
            for sample in group.samples
        )

    def _reference(self, sample: Sample, *, by_names: bool) -> Entry:
        inputs = self._work.inputs(sample)

        def build(folder: Path) -> Mapping[str, object]:
            return record_reference(
                self.network.module,
                self._names_program if by_names else self._module_program,
                self.network.component,
                load_inputs(inputs, self.network.component),
                folder,
                device="cpu",
            )

        key = {
            "component": self._identity,
            "inputs": keys.contents(inputs),
            "by_names": by_names,
            "code": keys.code_digest(_PROGRAM),
        }
        return self.stand.store.make("reference", key, build)

    @functools.cached_property
    def _names_program(self) -> lineup.Program:
        return translate_once(self.network).program

    @functools.cached_property
    def _module_program(self) -> lineup.Program:
        return lineup.program_of_module(self.network.module, self.network.example)

    def run(self, path: Path, backend: str) -> tuple[Trial, str]:
        """Run a file in a runtime to its verdicts; return them and how it lined up."""
        case = self.cases[backend]
        try:
            entry, by = self.take(path)
        except (SuiteError, StageError) as error:
            return self._refused(case, error), ""

        def deployed() -> Deployed:
            artifact, model = self.stand.artifacts.deploy(case, entry)
            return Deployed(
                artifact=artifact,
                model=model,
                probes=entry.file(export_files.PROBES),
                readings=self.readings(case, by),
            )

        return self.stand.run(case, deployed, altered=entry), by

    def _refused(self, case: Case, error: ParityError) -> Trial:
        outcome = getattr(error, "outcome", Outcome.MISSING)
        record = CaseRecord(
            case=case.id,
            component=case.subject,
            backend=case.backend,
            variant=case.how,
            asked={},
            failure=Failure(outcome=outcome, message=str(error)),
        )
        return Trial(record=record, verdicts=self.stand.judged(record))


def saved(model: onnx.ModelProto, path: Path) -> Path:
    """Write a model whose weights are in it; return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path
