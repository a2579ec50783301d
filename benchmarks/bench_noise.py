"""How far two sound runtimes are apart, in noise floors: the limits of `parity diff`.

    python benchmarks/bench_noise.py [--store DIR] [--run REPORT] [--write]

ONNX Runtime and MNN share no kernel, so that the same value of the same inputs in full
precision differs by rounding alone. What nearly all of them stay below is no change
between two runs either: `harness/plugins/release/thresholds.py` has the limits.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import figures
import numpy as np

from harness.core.comparison import Comparison
from harness.engine.finished_run import Report, load_report
from harness.plugins.release.thresholds import PEAK_FLOORS, RMS_FLOORS

DIGITS = Path(__file__).parents[1] / "fixtures" / "digits"
RUNTIMES = ("onnxruntime", "mnn")
SHARES = (0.5, 0.9, 0.99, 1.0)


def run(store: str, runs: Path) -> Path:
    """Run every full-precision case of the digits fixture; return its report."""
    command = [sys.executable, "-m", "harness", "run", "*/*/fp32", "--suite", DIGITS]
    options = ["--runs", runs, *(["--store", store] if store else [])]
    subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)
    return next(runs.glob("*/report.json"))


def pairs(of: Report) -> dict[str, list[tuple[Comparison, Comparison]]]:
    """Return each value as both runtimes have it, by what kind of value it is."""
    found: dict[str, list[tuple[Comparison, Comparison]]] = defaultdict(list)
    records = {record.case: record for record in of.records.values()}
    for name, record in records.items():
        subject, runtime, variant = name.split("/")
        other = records.get(f"{subject}/{RUNTIMES[1]}/{variant}")
        if variant != "fp32" or runtime != RUNTIMES[0] or other is None:
            continue
        theirs = {(row.what, row.sample, row.probe): row for row in other.rows}
        for row in record.rows:
            match = theirs.get((row.what, row.sample, row.probe))
            if match and row.comparison.floor and match.comparison.floor:
                found[row.what].append((row.comparison, match.comparison))
    return found


def main() -> None:
    parser = figures.parser(__doc__)
    parser.add_argument("--store", default="")
    parser.add_argument("--run", type=Path, help="a report that is there already")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = given.run or run(given.store, Path(folder))
        of = load_report(Path(folder), str(path))
    print(f"limits: rms {RMS_FLOORS:g} floors, largest error {PEAK_FLOORS:g} floors")
    print(f"{'':<10}{'values':>8}  {'':<8}" + "".join(f"{s:>9.0%}" for s in SHARES))
    found = {}
    for what, both in pairs(of).items():
        peaks = [(a.required_atol[0], b.required_atol[0], a.floor) for a, b in both]
        for name, apart in (
            ("rms", [abs(a.rms - b.rms) / a.floor for a, b in both]),
            ("largest", [abs(one - two) / floor for one, two, floor in peaks]),
        ):
            quantiles = np.quantile(apart, SHARES).tolist()
            shares = "".join(f"{value:>9.3g}" for value in quantiles)
            print(f"{what:<10}{len(both):>8,}  {name:<8}{shares}")
            found[f"{what} {name}"] = (len(both), *quantiles)
    if given.write:
        figures.keep(
            "noise",
            script=__file__,
            what="the same value of digits in ONNX Runtime and in MNN, both in full "
            "precision: how far their errors are apart",
            measured="; ".join(
                f"{name}: {ninety_nine:.2g} floors in 99 % of {count:,} values, "
                f"at most {most:.2g}"
                for name, (count, _, _, ninety_nine, most) in found.items()
            ),
            values=found,
            code=["core", "measure", "runtimes"],
        )


if __name__ == "__main__":
    main()
