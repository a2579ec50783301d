"""Try every fault and every clean run, print the score, and write it to reports/.

python -m tests.faults [--store FOLDER] [--faults NAME ... | --machine NAME | --table]
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.core.environment import installed
from tests.faults import elsewhere
from tests.faults.catalogue import FAULTS
from tests.faults.catalogue.fault import FAMILIES
from tests.faults.clean import CleanRun, clean_runs
from tests.faults.score import Result, missed, table
from tests.faults.trials import HARNESS, Trials, planted
from tests.machines.machine import ATEN, Machine, machines

KEPT = elsewhere.REPORTS / "faults.json"
MACHINES = {machine.name: machine for machine in machines(ATEN[-1])}
TERMS = """\
A fault is planted in each runtime that it can be planted in. It is *caught* if a check
fails under the tolerances as shipped. It *has a place* if an operator's value is wrong
and there are values to compare; it is *localised* if the first divergence, or the first
operator whose own error is out of tolerance, is that operator exactly, or, where the
runtime fuses or folds the operator away, one that reads it. It is *explained* if the
words that are printed say what it is. It has *wrong words* if what is printed of how
the error looks has a clause that is not true of the fault: each fault has the list of
what is (`Fault.allows`). Rules of our own are caught if one of the
harness's own tests fails.

Other machines are this one with other instruction sets. In rewritten files the fault is
planted first, and the file is rewritten then by tools and by algebra. The table counts
each machine and each runtime.

The other rules see the final outputs of the same runs, as they do in life; a run that
fails for them too counts as caught. A clean run is one sample of one component in one
runtime, fp32, with seeds that no tolerance was set with.
"""
PACKAGES = ("torch", "onnxruntime", "onnxruntime-gpu", "MNN", "onnx", "numpy")


def main() -> None:
    """Run it all; some faults alone print their words and write nothing."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--store", help="keep what is exported in this folder")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--faults", nargs="*", help="only these, with their words")
    only.add_argument(
        "--machine", choices=MACHINES, help="plant them where PyTorch computes so"
    )
    only.add_argument(
        "--table", action="store_true", help="write faults.md of what reports/ has"
    )
    asked = parser.parse_args()
    if asked.table:
        render()
    elif asked.machine:
        _become(MACHINES[asked.machine])
        elsewhere.note_faults(asked.machine, _caught_here(asked.store))
    else:
        _try_all(asked.store, asked.faults)


def _try_all(store: str | None, names: Sequence[str]) -> None:
    with ExitStack() as stack:
        root = store or stack.enter_context(TemporaryDirectory())
        trials = stack.enter_context(Trials(Path(root), peers=True))
        results = [
            _shown(trials.of(fault, backend), words=bool(names))
            for fault, backend in planted()
            if not names or fault.name in names
        ]
        if not names:
            write(results, [_shown_clean(run) for run in clean_runs(trials.stand)])
            render()


def _caught_here(store: str | None) -> list[Result]:
    """Return which faults in a runtime are caught, with references made anew.

    A store has exports of an earlier run, which no machine changes.
    """
    with TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        if store:
            left_out = shutil.ignore_patterns("reference")
            shutil.copytree(store, root, ignore=left_out)
        with Trials(root, isolate=False) as trials:
            return [
                _shown(trials.of(fault, backend), words=False)
                for fault, backend in planted()
                if backend != HARNESS  # on no machine's inputs
            ]


def _become(machine: Machine) -> None:
    """Start again as this machine, unless it is done: PyTorch asks when it starts."""
    if not machine.environment.items() <= os.environ.items():
        command = [sys.executable, "-m", "tests.faults", *sys.argv[1:]]
        sys.exit(
            subprocess.run(
                command, env={**os.environ, **machine.environment}, check=False
            ).returncode
        )


def write(results: Sequence[Result], clean: Sequence[CleanRun]) -> None:
    """Write what became of every trial."""
    about = {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": installed(PACKAGES),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    rows = {
        "faults": [_kept(result) for result in results],
        "clean": [asdict(run) for run in clean],
    }
    KEPT.write_text(json.dumps({**about, **rows}, indent=1) + "\n", encoding="utf-8")


def render() -> None:
    """Print the score of what was kept, and write it as a page."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    results = [Result(said="", took_s=0.0, **row) for row in kept["faults"]]
    clean = [CleanRun(**row) for row in kept["clean"]]
    of = {fault.name: fault.family for fault in FAULTS}
    beside = {
        family: (
            elsewhere.caught_elsewhere(family),
            elsewhere.caught_rewritten(family, of),
        )
        for family in (*FAMILIES, "all")
    }
    tools = ", ".join(f"{name} {number}" for name, number in kept["versions"].items())
    text = (
        f"# Planted faults\n\n`python -m tests.faults` on {kept['date']}: {tools}; "
        f"{kept['machine']}.\n\n{table(results, clean, beside)}\n\n{TERMS}\n"
        f"{elsewhere.text()}\n\n## What fell short\n\n{missed(results, clean)}\n"
    )
    KEPT.with_suffix(".md").write_text(text, encoding="utf-8")
    print(f"\n{text}")


def _kept(result: Result) -> dict[str, object]:
    """Return a result without its words, which name folders, and its time."""
    left_out = {"said", "took_s"}
    return {key: value for key, value in asdict(result).items() if key not in left_out}


def _shown(result: Result, *, words: bool) -> Result:
    marks = (
        "caught" if result.caught else "NOT CAUGHT",
        ""
        if not result.places
        else "localised"
        if result.localised
        else "NOT LOCALISED",
        "explained" if result.explained else "not explained",
        f"WRONG WORDS {result.wrong}" if result.wrong else "",
    )
    print(
        f"{result.fault:42} {result.backend:12} {result.took_s:5.1f} s  "
        + ", ".join(mark for mark in marks if mark),
        flush=True,
    )
    if words:
        print(f"  places {result.places}\n  {result.said}\n", flush=True)
    return result


def _shown_clean(run: CleanRun) -> CleanRun:
    print(f"{run.id:64} {'FALSE ALARM' if run.alarm else 'silent'}", flush=True)
    return run


if __name__ == "__main__":
    main()
