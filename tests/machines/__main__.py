"""Run every small suite's float32 cases as other machines would, and count alarms.

python -m tests.machines [--first N] [--suites NAME ...] [--seeds N] [--store FOLDER]
                         [--lines FILE]

An export does not depend on the machine that made it; PyTorch's own float32 does. So
each component is exported and deployed once, and its references are made anew on each
machine, by processes that see that machine's instruction sets and threads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from harness.core.case import GIVEN, Case
from harness.core.errors import StageError
from harness.core.groups import Group, sample_groups
from harness.core.outcome import Outcome
from harness.core.record import LAYERS, OUTPUTS, CaseRecord
from harness.core.runtime import reference_host
from harness.core.settings import Settings
from harness.engine import tasks
from harness.engine.artifacts import Artifacts
from harness.engine.deployed import Deployed, Reading
from harness.engine.export_files import PROBES
from harness.engine.run import open_store
from harness.engine.store import Store
from harness.engine.worker_pool import WorkerPool
from harness.measure.trace import VALUES
from harness.plugins.start.init.write import write_suite
from harness.suite.judge import Judge
from harness.suite.suite import Suite, load_suite
from tests.faults.elsewhere import BY_INIT, note_clean
from tests.faults.trial import said
from tests.machines import inside
from tests.machines.machine import ATEN, Machine, machines
from tests.places import FIXTURES

LARGE = {"sd15", "full_size"}
SEEDS = (2001, 2002, 2003)
"""Of inputs that no tolerance was set with."""

RUNTIMES = ("onnxruntime", "mnn")
AT_ONCE = 2
"""Machines that are simulated beside each other; each keeps about one core busy."""

LIMIT_S = 900.0
CHECKPOINT = ("model_index.json", "config.json")


def suites(names: Sequence[str], written: Path) -> Iterator[Suite]:
    """Yield every small suite, or those of some names.

    Each checkpoint has a second one: what `parity init` writes for it, to `written`.
    """
    for path in sorted(FIXTURES.rglob("parity.toml")):
        folder = path.parent
        small = not LARGE & set(path.relative_to(FIXTURES).parts)
        if not small or (names and folder.name not in names):
            continue
        yield load_suite(path)
        if any((folder / name).is_file() for name in CHECKPOINT):
            into = written / f"{BY_INIT}{folder.name}"
            write_suite(folder, into, force=True, on_notice=lambda _: None)
            yield load_suite(into / path.name)


def cases(suite: Suite, seeds: Sequence[int]) -> Iterator[tuple[Case, Group]]:
    """Yield each clean case, with its samples.

    A clean case computes in float32, has PyTorch as its reference and no known gap.
    OpenVINO has none, because it computes with oneDNN, which the variables would limit.
    """
    gaps = Judge.of(suite, Settings()).gaps
    for case in suite.cases:
        single = case.variant.kind in {"fp32", GIVEN} and not case.variant.flags
        checks = [f"{case.id}/{what}" for what in case.whats]
        known = any(gap.matches(check) for gap in gaps for check in checks)
        ours = case.backend in RUNTIMES and reference_host(case) == "torch"
        if single and not known and ours:
            group = sample_groups(case, case.samples)[0]
            drawn = tuple(inside.samples(group.samples, seeds))
            yield replace(case, samples=drawn), replace(group, samples=drawn)


class Field:
    """Runs cases on one machine; a context manager, for it owns child processes."""

    def __init__(self, kept: Path) -> None:
        self._worker_pool = WorkerPool(LIMIT_S)
        self._store = Store(root=kept)
        self._artifacts = Artifacts(self._store, self._worker_pool, None)
        self._readings: dict[Path, list[Reading]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker_pool.close()

    def prepare(self, case: Case, group: Group) -> None:
        """Export and deploy a case's file, if the store lacks it."""
        self._artifacts._take(case)  # a file of others, into the store
        self._worker_pool.job(
            "torch",
            inside.prepare,
            self._store.root,
            case.component,
            case.export,
            group,
            subject=case.subject,
            label=case.id,
            failure=Outcome.EXPORT,
        )
        self._artifacts.deploy(case, self._artifacts.graph(case, group))

    def run(self, case: Case, group: Group, machine: Machine, root: Path) -> CaseRecord:
        """Run a case against references of this machine, which `root` keeps."""
        if root not in self._readings:
            device = replace(case.reference, threads=machine.threads)
            self._readings[root] = self._worker_pool.job(
                "torch",
                inside.record,
                self._store.root,
                root,
                case.component,
                case.export,
                group,
                device,
                subject=case.subject,
                label=case.id,
                failure=Outcome.REFERENCE,
            ).value
        graph = self._artifacts.graph(case, group)
        artifact, model = self._artifacts.deploy(case, graph)
        file = Deployed(
            artifact=artifact,
            model=model,
            probes=graph.file(PROBES),
            readings=tuple(self._readings[root]),
        )
        result = self._worker_pool.job(
            case.backend,
            tasks.RUN_CANDIDATE,
            case.id,
            case.component,
            case.device,
            case.backend,
            (file,),
            subject=case.id,
            label=case.id,
            failure=Outcome.RUN,
        )
        return CaseRecord(
            case=case.id,
            component=case.subject,
            backend=case.backend,
            variant=case.how,
            asked=asdict(case.device),
            **result.value,
        )

    def digests(self, root: Path) -> dict[str, str]:
        """Return a digest of each sample's reference that `root` keeps."""
        return {
            reading.sample: reading.reference.files[VALUES].digest
            for reading in self._readings[root]
        }


def runs(
    suite: Suite, case: Case, record: CaseRecord, references: Mapping[str, str]
) -> Iterator[dict[str, object]]:
    """Yield each sample as a run of its own, with what the harness says of it."""
    for sample in case.samples:
        alone = replace(
            record, rows=tuple(r for r in record.rows if r.sample == sample.id)
        )
        judge = Judge.of(suite, Settings())
        verdicts = tuple(judge.check(alone, what) for what in (LAYERS, OUTPUTS))
        yield {
            "suite": suite.name,
            "case": case.id,
            "sample": sample.id,
            "reference": references[sample.id],
            "alarm": said(alone, verdicts),
        }


def on_this_machine(
    machine: Machine, chosen: Sequence[str], seeds: Sequence[int], kept: Path
) -> None:
    """Print a line of JSON for each run; the environment is the machine's already."""
    with Field(kept) as field, TemporaryDirectory() as root:
        for suite in suites(chosen, Path(root) / "init"):
            for case, group in cases(suite, seeds):
                references = Path(root) / suite.name / case.subject
                try:
                    record = field.run(case, group, machine, references)
                except StageError as error:
                    text = f"{error.outcome}: {error}"
                    found = {"suite": suite.name, "case": case.id, "sample": ""}
                    rows = [{**found, "reference": "", "alarm": text}]
                else:
                    digests = field.digests(references)
                    rows = list(runs(suite, case, record, digests))
                for row in rows:
                    print(json.dumps({"machine": machine.name, **row}), flush=True)


def prepare(chosen: Sequence[str], seeds: Sequence[int], kept: Path) -> None:
    """Export and deploy whatever the store lacks."""
    with Field(kept) as field, TemporaryDirectory() as root:
        for suite in suites(chosen, Path(root) / "init"):
            for case, group in cases(suite, seeds):
                field.prepare(case, group)


def capability() -> str:
    """Return the largest instruction set that PyTorch finds here, one of `ATEN`."""
    import torch

    return torch.backends.cpu.get_cpu_capability().lower()


def main() -> int:
    """Return 0 if no run on any machine gave an alarm, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.machines")
    parser.add_argument("--first", type=int, help="so many machines; all when left out")
    parser.add_argument("--suites", nargs="*", default=[], help="all when left out")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--store", help="where exports are kept")
    parser.add_argument("--machine", help=argparse.SUPPRESS)
    parser.add_argument("--lines", type=Path, help="append each run to this file")
    asked = parser.parse_args()
    seeds, kept = SEEDS[: asked.seeds], open_store(asked.store or "").root
    if asked.machine:
        by_name = {machine.name: machine for machine in machines(ATEN[-1])}
        on_this_machine(by_name[asked.machine], asked.suites, seeds, kept)
        return 0
    prepare(asked.suites, seeds, kept)
    chosen = machines(capability())[: asked.first]
    found = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        each = pool.map(lambda machine: _elsewhere(machine, asked), chosen)
        for machine, (lines, seconds) in zip(chosen, each, strict=True):
            found += lines
            _note(machine, lines, asked)
            alarms = [line for line in lines if line["alarm"]]
            print(
                f"{machine.name:48} {len(lines):4} runs  {len(alarms):2} alarms  "
                f"{seconds:4.0f} s",
                flush=True,
            )
            for line in alarms:
                print(f"  {line['suite']}/{line['case']} {line['sample']}")
                print(f"    {line['alarm'].splitlines()[0]}", flush=True)
    return told(found, len(chosen))


def told(found: Sequence[Mapping[str, str]], count: int) -> int:
    """Print what the machines' runs come to, and return the exit code."""
    alarms = sum(bool(line["alarm"]) for line in found)
    first = sum(line["suite"].startswith(BY_INIT) for line in found)
    print(
        f"{len(found):,} clean runs on {count} machines: {alarms} false alarms "
        f"({len(found) - first:,} runs by the suites' own tolerances, {first:,} by "
        "those that parity init writes)"
    )
    references = {line["reference"] for line in found} - {""}
    samples = {
        (one["suite"], one["case"].split("/")[0], one["sample"]) for one in found
    }
    print(f"{len(references):,} different references of {len(samples):,} samples")
    # Machines that compute the same bits would show nothing.
    same = count > 1 and len(references) <= len(samples)
    return int(bool(alarms) or same or not found)


def _note(
    machine: Machine, lines: Sequence[dict[str, str]], asked: argparse.Namespace
) -> None:
    """Keep a machine's runs where they are asked for."""
    if not asked.suites:  # the whole of a machine is kept in reports/
        note_clean(machine.name, lines)
    if asked.lines:
        with asked.lines.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


def _elsewhere(
    machine: Machine, asked: argparse.Namespace
) -> tuple[list[dict[str, str]], float]:
    """Run the suites in a process that sees another machine; its runs and seconds."""
    start = time.monotonic()
    command = [sys.executable, "-m", "tests.machines", "--machine", machine.name]
    command += ["--seeds", str(asked.seeds)]
    command += ["--store", asked.store] if asked.store else []
    command += ["--suites", *asked.suites] if asked.suites else []
    with ExitStack() as stack:
        child = stack.enter_context(
            subprocess.Popen(
                command,
                env={**os.environ, **machine.environment},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert child.stdout is not None
        lines = list(child.stdout)
    if child.returncode:
        sys.exit(f"{machine.name}: the process ended with {child.returncode}")
    return [json.loads(line) for line in lines], time.monotonic() - start


if __name__ == "__main__":
    sys.exit(main())
