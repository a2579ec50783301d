"""Write the table of docs/families.md of families: what recorded runs say works.

    python docs/families.py --write         # from every run in reports/runs
    python docs/families.py RUN --write     # from these runs
    python docs/families.py --check         # exit code 1 if the table is stale

A row is a network and an exporter, a column a runtime, a cell the worst output of each
variant in noise floors. Of a case that several runs have, the newest run counts.
"""

import argparse
import sys
from itertools import chain
from pathlib import Path

from harness.core.case import GIVEN
from harness.core.errors import ParityError
from harness.core.outcome import Outcome
from harness.core.record import LAYERS, OUTPUTS, WHATS
from harness.core.runtime import runtimes
from harness.core.settings import Settings
from harness.core.text import number_of_floors
from harness.engine.finished_run import load_report
from harness.engine.run_folder import finished_runs
from harness.judge.value import max_floors
from harness.recipes.checkpoint import read_config, read_index
from harness.report.rejudge import rejudge
from harness.suite.suite import load_suite

PAGE = Path(__file__).parent / "families.md"
BEGIN = "<!-- families:begin -->"
END = "<!-- families:end -->"


def cases_of(reports):
    """Return each case of some runs with its verdicts by today's tolerances.

    A run whose suite is gone or wrong is named on stderr and left out. A case that its
    suite no longer has is left out as well.
    """
    verdicts, suites = {}, {}
    for report in sorted(reports, key=lambda report: report.id):
        try:
            read = {path: load_suite(Path(path)) for path in report.suites}
            again = rejudge(report, Settings())
        except ParityError as error:
            print(f"run {report.id} is left out: {error}", file=sys.stderr)
            continue
        newer = {}
        for verdict in again.verdicts:
            if verdict.what in WHATS:
                newer.setdefault(verdict.key, []).append(verdict)
        verdicts |= newer
        suites |= read
    return [
        (suite, case, verdicts[path, case.id])
        for path, suite in suites.items()
        for case in suite.cases
        if (path, case.id) in verdicts
    ]


def family_of(suite):
    """Return a checkpoint's pipeline or type of model; else the suite's name."""
    source = suite.source
    said = read_index(source).get("_class_name")
    if not said and (source.path / "config.json").is_file():
        said = read_config(source, "").get("model_type")
    return str(said or suite.name).removesuffix("Pipeline")


def row_of(suite, case):
    """Return where a case's row stands, which also holds the row's first cells."""
    recipe, name = case.component.recipe, case.subject
    foreign = case.component.foreign or recipe == GIVEN
    exporter = GIVEN if foreign else case.export.exporter
    return family_of(suite), suite.name, recipe, exporter, name


def family_table(cases):
    """Return the table, and below it each reason that a cell refers to.

    Args:
        cases: Triples of a row, as `row_of` returns it, a case and its verdicts.

    """
    reasons = {}
    rows = {}
    for row, case, verdicts in sorted(cases, key=lambda one: one[0]):
        cells = rows.setdefault(row, {})
        cells.setdefault(case.backend, []).append((case.variant.name, verdicts))
    there = {backend for cells in rows.values() for backend in cells}
    ran = [one for one in runtimes().values() if one.name in there]
    heads = ["Family", "Network", "Exporter", *(one.title for one in ran)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for (family, suite, recipe, exporter, name), cells in rows.items():
        network = f"`{recipe}`" + (f" (`{name}`)" if name != recipe else "")
        found = [
            " · ".join(cell(*one, reasons) for one in cells.get(runtime.name, ()))
            for runtime in ran
        ]
        lines.append(
            f"| {' | '.join((f'{family} (`{suite}`)', network, exporter, *found))} |"
        )
    lines += [""] if reasons else []
    lines += [
        f"{number}. {', '.join(ended)}: {why}"
        for number, (why, ended) in enumerate(reasons.items(), start=1)
    ]
    return "\n".join(lines) + "\n"


def cell(variant, verdicts, reasons):
    """Return ``fp32 1.3``, in floors; a cross where it fails, and its reasons.

    A reason that is new is added to `reasons`, with how its checks ended. One cause
    often ends both checks of a case; it has one number.
    """
    words = [variant]
    if not all(verdict.outcome.passed for verdict in verdicts):
        words.append("✗")
    outputs = (verdict.rows for verdict in verdicts if verdict.what == OUTPUTS)
    worst = max_floors(chain.from_iterable(outputs))
    if worst is not None:
        # Two digits: machines agree on no more.
        words.append(number_of_floors(float(f"{worst:.2g}")))
    numbers = {}
    for verdict in verdicts:
        if verdict.outcome is Outcome.WITHIN:
            continue
        why, ended = " ".join(verdict.reason.split()), verdict.outcome.value
        if verdict.gap:
            why, ended = verdict.gap.words, verdict.found.value
        elif verdict.what == LAYERS and verdict.rows:
            ended = f"{LAYERS}: {ended}"
        reasons.setdefault(why, {})[ended] = None
        numbers[f"[{list(reasons).index(why) + 1}]"] = None
    return " ".join((*words, *numbers))


def refreshed(text, table):
    """Return `text` with `table` between its markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        sys.exit(f"put the lines {BEGIN} and {END} where the table belongs")
    return f"{before}{BEGIN}\n\n{table}\n{END}{after}"


def main():
    """Print the table, write it, or say whether the file's is stale."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="RUN")
    parser.add_argument("--runs", type=Path, default=Path("reports/runs"))
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    names = given.names or finished_runs(given.runs)
    cases = cases_of(load_report(given.runs, name) for name in names)
    if not cases:
        sys.exit(f"no run in {given.runs} to make a table from")
    table = family_table(
        (row_of(suite, case), case, found) for suite, case, found in cases
    )
    if not (given.write or given.check):
        print(table, end="")
        return
    text = given.page.read_text(encoding="utf-8")
    fresh = refreshed(text, table)
    if given.check and fresh != text:
        sys.exit(f"{given.page} is stale; --write refreshes it")
    given.page.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
