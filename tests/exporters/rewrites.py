"""Rewrite small networks' files by tools and by algebra, and plant faults in them.

python -m tests.exporters.rewrites [--python PYTHON] [--only WORD ...]

PYTHON has the tools of rewrites.txt; without it algebra alone is tried. A clean file
that fails is a false alarm; a planted fault that passes is not caught. A fault is
planted first and the file is rewritten then, by rewrites that take turns. What a whole
run with the tools comes to is kept in reports/.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import onnx

from harness.core.outcome import Outcome
from harness.plugins.foreign.rewritten import rewritten
from tests.exporters.algebra import REWRITES, rewrite
from tests.exporters.rewritten import Rewritten, saved
from tests.faults.catalogue import FAULTS
from tests.faults.catalogue.fault import Fault, InGraph
from tests.faults.stand import Stand
from tests.places import FIXTURES, ROOT

KEPT = ROOT / "reports" / "rewrites.json"
SCRIPT = Path(__file__).with_name("rewrite_with.py")
TOOLS = ("onnxsim", "onnxslim", "onnxoptimizer", "ort-basic", "ort-extended")
LIMIT_S = 600
NETWORKS = {
    "digits": ("text_encoder", "vae_decoder", "vae_encoder"),
    "dit": ("transformer", "transformer_torchscript"),
    "text_tasks/bert": ("text-classification",),
    "exported": ("text_encoder", "vae_decoder"),
}
BACKENDS = ("onnxruntime", "mnn")
TURNS = (
    *("onnxsim", "bias-moved", "onnxslim", "factor-into-q-weights", "onnxoptimizer"),
    *("transposes-pushed", "ort-basic", "norms-folded", "convolutions-scaled"),
    "values-scaled-in-attention",
)
"""Rewrites that faults are planted before, one after another."""

NO_FAULTS = (
    *("output-dropped", "output-renamed", "outputs-in-other-order"),
    "weights-as-inputs",
)
"""What a file of others may do: outputs in any order, fewer of them, which is said, and
tensors that are listed among its inputs. Nothing in it computes another number."""

UNDONE = {("dropout-left-in", "ort-basic"), ("dropout-left-in", "ort-extended")}
"""Faults that a rewrite takes out again: ONNX Runtime removes any Dropout."""

LARGE = ("controlnet", "controlled_unet")
"""Components of which only faults are tried, and the clean file of each rewrite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One rewritten file in one runtime; `rewrite` is a tool or an algebra.

    `by` is how its values were lined up; it is empty where it was refused before.
    `fault` is what was planted first; it is empty in a clean file. `failed` is whether
    a check failed or the file was refused, and `converts` whether there is a deployed
    file at all. `said` has the words of a run that failed, and of values that are other
    ones.
    """

    network: str
    rewrite: str
    backend: str
    by: str
    fault: str
    failed: bool
    converts: bool
    said: str
    took_s: float


class Rewrites:
    """Makes and runs rewritten files; a context manager, for it owns processes.

    `python` has the tools; it is None for algebra alone.
    """

    def __init__(self, store: Path, python: str | None) -> None:
        self._store = store
        self._python = python
        self._stack = ExitStack()
        self._stands: dict[str, Stand] = {}
        self._networks: dict[str, Rewritten] = {}

    def __enter__(self) -> Self:
        self._at = Path(self._stack.enter_context(TemporaryDirectory()))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def of(self, suite: str, component: str) -> Rewritten:
        """Return a network, made when it is first asked for."""
        name = f"{suite}/{component}"
        if suite not in self._stands:
            stand = Stand(self._store, isolate=False, suite=FIXTURES / suite)
            self._stands[suite] = self._stack.enter_context(stand)
        if name not in self._networks:
            self._networks[name] = Rewritten(self._stands[suite], component)
        return self._networks[name]

    def rewritten(self, source: Path, name: str, target: Path) -> str:
        """Rewrite a file; return why not, or nothing."""
        if name in REWRITES:
            model = onnx.load(source)
            if not rewrite(model, name):
                return "nothing to rewrite"
            saved(model, target)
            return ""
        if self._python is None:
            return "no tools"
        target.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [self._python, str(SCRIPT), name, str(source), str(target)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        told = [line for line in done.stdout.splitlines() if line.startswith('{"file')]
        return json.loads(told[-1])["refused"] if told else done.stderr[-200:]

    def clean(
        self, suite: str, component: str, names: Sequence[str]
    ) -> Iterator[Tried]:
        """Rewrite a network's file in each way that finds something, and run it."""
        network = self.of(suite, component)
        for name in names:
            path = self._at / suite / component / f"{name}.onnx"
            if not self.rewritten(network.original, name, path):
                yield from self._run(network, f"{suite}/{component}", name, path)

    def planted(self, fault: Fault, turn: int) -> Iterator[Tried]:
        """Plant a fault in digits' file, rewrite that, and run it."""
        network = self.of("digits", fault.component)
        model = onnx.load(network.original)
        fault.plant.change(model)
        del model.graph.value_info[:]
        wrong = saved(model, self._at / "faults" / f"{fault.name}.onnx")
        path = wrong.with_name(f"{fault.name}-rewritten.onnx")
        for name in (*TURNS[turn % len(TURNS) :], *TURNS, "identities-inserted"):
            undone = (fault.name, name) in UNDONE
            if not undone and not self.rewritten(wrong, name, path):
                break
        yield from self._run(
            network,
            f"digits/{fault.component}",
            name,
            path,
            fault=fault.name,
            backends=fault.backends,
        )

    def _run(
        self,
        network: Rewritten,
        called: str,
        name: str,
        path: Path,
        *,
        fault: str = "",
        backends: Sequence[str] = BACKENDS,
    ) -> Iterator[Tried]:
        for backend in backends:
            start = time.perf_counter()
            trial, by = network.run(path, backend)
            failure = trial.record.failure
            converts = failure is None or failure.outcome != Outcome.CONVERT
            told = [
                t
                for v in trial.verdicts
                for t in rewritten(trial.record, v.what, v.rows)
            ]
            yield Tried(
                network=called,
                rewrite=name,
                backend=backend,
                by=by,
                fault=fault,
                failed=trial.caught,
                converts=converts,
                said=trial.said or "; ".join(told),
                took_s=round(time.perf_counter() - start, 2),
            )


def faults() -> list[Fault]:
    """Return the catalogue's faults that are planted in an ONNX graph as it is."""
    found = [
        fault
        for fault in FAULTS
        if isinstance(fault.plant, InGraph) and fault.variant == "fp32"
        if fault.name not in NO_FAULTS
    ]
    return sorted(found, key=lambda fault: fault.component in LARGE)


def table(tried: Sequence[Tried]) -> str:
    """Return what was tried in lines of Markdown, by rewrite."""
    lines = [
        "| Rewrite | Clean runs | False alarms | Faults planted | Caught |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in (*TOOLS, *REWRITES, "all"):
        some = [t for t in tried if name in {t.rewrite, "all"} and t.converts]
        clean = [t for t in some if not t.fault]
        planted = [t for t in tried if name in {t.rewrite, "all"} and t.fault]
        if clean or planted:
            lines.append(
                f"| {name} | {len(clean)} | {sum(t.failed for t in clean)} "
                f"| {len(planted)} | {sum(t.failed for t in planted)} |"
            )
    by = Counter(t.by for t in tried if not t.fault and t.by)
    files = {(t.network, t.rewrite) for t in tried if not t.fault}
    refused = sum(not t.converts for t in tried if not t.fault)
    lines += [
        "",
        (
            f"{len(files)} clean files, {refused} of them not converted by MNN; lined "
            f"up by {', '.join(f'{way} {count}' for way, count in by.most_common())}."
        ),
    ]
    return "\n".join(lines)


def try_all(rewrites: Rewrites, only: Sequence[str] = ()) -> Iterator[Tried]:
    """Run every clean file, then every fault."""

    def wanted(*words: str) -> bool:
        return not only or any(word in only for word in words)

    every = (*TOOLS, *REWRITES)
    names = [name for name in every if name in only] or every
    for suite, components in NETWORKS.items():
        for component in components:
            if wanted("clean", suite, f"{suite}/{component}"):
                yield from rewrites.clean(suite, component, names)
    used: dict[str, set[str]] = {}
    for turn, fault in enumerate(faults()):
        if wanted("faults", fault.name, fault.component):
            for tried in rewrites.planted(fault, turn):
                used.setdefault(fault.component, set()).add(tried.rewrite)
                yield tried
    for component in LARGE:
        # What fails without a fault as well says nothing of the fault.
        yield from rewrites.clean("digits", component, sorted(used.get(component, ())))


def main() -> None:
    """Try all, print it, and write it down."""
    parser = argparse.ArgumentParser(prog="python -m tests.exporters.rewrites")
    parser.add_argument("--python", help="has the tools of rewrites.txt")
    parser.add_argument("--store", help="keep what is exported in this folder")
    parser.add_argument("--only", nargs="*", default=(), help="clean, faults, a name")
    asked = parser.parse_args()
    tried = []
    with ExitStack() as stack:
        root = asked.store or stack.enter_context(TemporaryDirectory())
        rewrites = stack.enter_context(Rewrites(Path(root), asked.python))
        for one in try_all(rewrites, asked.only):
            tried.append(one)
            print(_line(one), flush=True)
    if asked.python and not asked.only:
        rows = [_kept(one) for one in tried]
        KEPT.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    print(f"\n{table(tried)}")


def _kept(one: Tried) -> dict[str, object]:
    """Return what was tried without its words, which name folders, and its time."""
    left_out = {"said", "took_s"}
    return {key: value for key, value in asdict(one).items() if key not in left_out}


def _line(one: Tried) -> str:
    what = f"{one.network} {one.rewrite} {one.fault}"
    if one.fault:
        state = "caught" if one.failed else "NOT CAUGHT"
    elif not one.converts:
        state = "not converted"
    else:
        state = "FALSE ALARM" if one.failed else "silent"
    said = f"\n    {one.said}" if state in {"FALSE ALARM", "NOT CAUGHT"} else ""
    return f"{what:78} {one.backend:11} {one.by:8} {one.took_s:5.1f} s  {state}{said}"


if __name__ == "__main__":
    main()
