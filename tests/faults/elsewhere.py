"""What other machines and rewritten files came to: kept in reports/, told as tables."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.core.environment import environment
from tests.exporters.rewrites import KEPT as REWRITES
from tests.exporters.rewrites import Tried
from tests.exporters.rewrites import table as rewrites_table
from tests.faults.score import Result, share
from tests.places import ROOT

REPORTS = ROOT / "reports"
MACHINES = REPORTS / "machines.json"
BY_INIT = "init-"
"""How the name of a suite begins that `parity init` wrote."""


def note_clean(machine: str, lines: Iterable[Mapping[str, Any]]) -> None:
    """Keep what the clean runs of one machine came to, in place of earlier ones.

    `lines` are as `tests.machines` yields them, one for each run.
    """
    runs = list(lines)
    by_init = [run for run in runs if run["suite"].startswith(BY_INIT)]
    _note(
        machine,
        "clean",
        {
            "runs": len(runs),
            "by_init": len(by_init),
            "references": len({run["reference"] for run in runs} - {""}),
            "alarms": [
                f"{run['suite']}/{run['case']} {run['sample']}"
                for run in runs
                if run["alarm"]
            ],
        },
    )


def note_faults(machine: str, results: Sequence[Result]) -> None:
    """Keep which of the planted faults were caught on one machine."""
    _note(
        machine,
        "faults",
        {
            "planted": dict(Counter(result.family for result in results)),
            "caught": dict(Counter(r.family for r in results if r.caught)),
            "not_caught": [f"{r.fault} ({r.backend})" for r in results if not r.caught],
        },
    )


def caught_elsewhere(family: str) -> str:
    """Return how many faults of a family were caught on other machines, of how many."""
    kept = [machine["faults"] for machine in _kept().values() if "faults" in machine]
    caught, planted = (
        sum(
            count
            for faults in kept
            for name, count in faults[word].items()
            if family in {name, "all"}
        )
        for word in ("caught", "planted")
    )
    return f"{caught} of {planted}" if planted else "–"


def caught_rewritten(family: str, of: Mapping[str, str]) -> str:
    """Return how many faults of a family were caught in rewritten files, of how many.

    `of` has the family of each fault.
    """
    planted = [
        one for one in _tried() if one.fault and family in {of[one.fault], "all"}
    ]
    return f"{sum(one.failed for one in planted)} of {len(planted)}" if planted else "–"


def text() -> str:
    """Return the tables of other machines and of rewritten files, in Markdown."""
    lines = [
        "## Other machines",
        "",
        (
            "Instruction sets of PyTorch's own kernels, of oneDNN and of MKL, and "
            "threads, simulated on the processor that the table names. References are "
            "made anew on each. `init` is what `parity init` "
            "writes for the same checkpoints. Faults are planted with the suite's own "
            "number of threads."
        ),
        "",
        "| Machine | On | Clean runs | Of these by init | Alarms | Faults caught |",
        "|---|---|--:|--:|--:|--:|",
    ]
    total: Counter[str] = Counter()
    for name, kept in sorted(_kept().items()):
        counts = defaultdict(int)
        if clean := kept.get("clean"):
            counts |= {
                "runs": clean["runs"],
                "by_init": clean["by_init"],
                "alarms": len(clean["alarms"]),
            }
        if faults := kept.get("faults"):
            counts |= {
                "caught": sum(faults["caught"].values()),
                "planted": sum(faults["planted"].values()),
            }
        total.update(counts)
        on = {part["processor"] for part in kept.values() if "processor" in part}
        lines.append(_line(name, counts, " and ".join(sorted(on)) or "not noted"))
    lines += [
        _line("all", total, "–"),
        "",
        "## Rewritten files",
        "",
        rewrites_table(_tried()),
    ]
    return "\n".join(lines)


def _line(name: str, counts: Mapping[str, int], processor: str) -> str:
    clean = [f"{counts[word]:,}" for word in ("runs", "by_init", "alarms")]
    if not counts["runs"]:
        clean = ["–"] * len(clean)
    caught = "–"
    if counts["planted"]:
        caught = share(counts["caught"], counts["planted"])
    return f"| {name} | {processor} | {' | '.join(clean)} | {caught} |"


def _tried() -> list[Tried]:
    rows = json.loads(REWRITES.read_text("utf-8")) if REWRITES.exists() else []
    return [Tried(said="", took_s=0.0, **row) for row in rows]


def _kept() -> dict[str, dict[str, Any]]:
    return json.loads(MACHINES.read_text("utf-8")) if MACHINES.exists() else {}


def _note(machine: str, what: str, found: Mapping[str, object]) -> None:
    kept = _kept()
    # MKL chooses its code by the vendor, so the real processor matters too.
    kept.setdefault(machine, {})[what] = {**found, "processor": environment().cpu}
    MACHINES.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "utf-8")
