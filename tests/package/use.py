"""What a user of the library writes; mypy reads it against the installed package."""

from pathlib import Path

import numpy as np

from harness import Comparison, Outcome, Suite, compare, load_report, load_suite


def largest(expected: np.ndarray, actual: np.ndarray) -> float:
    found: Comparison = compare(expected=expected, actual=actual)
    return found.max_abs


def ids(folder: Path) -> list[str]:
    suite: Suite = load_suite(folder / "parity.toml")
    return [case.id for case in suite.cases]


def failed(runs: Path) -> list[str]:
    report = load_report(runs, "last")
    ends = report.ends.items()
    return [case for (_, case, _), end in ends if not Outcome(end.outcome).passed]


if __name__ == "__main__":
    one = np.ones(3, np.float32)
    print(largest(one, 2 * one), ids(Path("digits")), failed(Path("reports/runs")))
    print(*Outcome)
