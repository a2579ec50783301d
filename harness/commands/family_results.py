"""Which families of networks agree, as recorded runs say: the newest of each case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from harness.commands.family_table import Network, Ran
from harness.core.case import GIVEN, Case, Source
from harness.core.errors import ParityError
from harness.core.record import WHATS
from harness.core.settings import Settings
from harness.engine.run_folder import Report
from harness.judge.case import CaseVerdict
from harness.recipes.checkpoint import read_config, read_index
from harness.report.rejudge import rejudge
from harness.suite.suite import Suite, load_suite


def networks_of(
    reports: Iterable[Report], on_left_out: Callable[[str], None]
) -> dict[Network, list[Ran]]:
    """Return every case of the runs by network, judged by the tolerances of today.

    Of a case that several runs hold, the newest run speaks; a case that its suite no
    longer has is left out.

    Args:
        reports: The runs.
        on_left_out: Told in a sentence of each run whose suite is gone, or wrong.

    """
    verdicts: dict[tuple[str, str], dict[str, CaseVerdict]] = {}
    suites: dict[str, Suite] = {}
    for report in sorted(reports, key=lambda report: report.id):
        newer: dict[tuple[str, str], dict[str, CaseVerdict]] = {}
        try:
            read = {path: load_suite(Path(path)) for path in report.suites}
            again = rejudge(report, Settings())
        except ParityError as error:
            on_left_out(f"run {report.id} is left out: {error}")
            continue
        for verdict in again.verdicts:
            if verdict.what in WHATS:
                newer.setdefault(verdict.key, {})[verdict.what] = verdict
        verdicts |= newer
        suites |= read
    found: dict[Network, list[Ran]] = {}
    for path, suite in suites.items():
        for network, ran in _of_suite(suite, verdicts, path):
            found.setdefault(network, []).append(ran)
    return found


def _of_suite(
    suite: Suite,
    verdicts: dict[tuple[str, str], dict[str, CaseVerdict]],
    path: str,
) -> Sequence[tuple[Network, Ran]]:
    """Return the cases of a suite that ran, in the suite's order."""
    family = called(suite.source) or suite.name
    return [
        (
            Network(
                family=family,
                suite=suite.name,
                recipe=case.component.recipe,
                component=case.subject,
                exporter=_exporter(case),
            ),
            Ran(
                backend=case.backend,
                variant=case.variant.name,
                verdicts=tuple(verdicts[path, case.id].values()),
            ),
        )
        for case in suite.cases
        if (path, case.id) in verdicts
    ]


def _exporter(case: Case) -> str:
    """Return how a case became ONNX; a file of others says nobody's name."""
    taken = case.component.taken or case.component.recipe == GIVEN
    return GIVEN if taken else case.export.exporter


def called(source: Source) -> str:
    """Return what a checkpoint says that it is, empty where it says nothing.

    A diffusers checkpoint names its pipeline, a model of transformers its type.
    """
    said = read_index(source).get("_class_name")
    if not said and (source.path / "config.json").is_file():
        said = read_config(source, "").get("model_type")
    return str(said or "").removesuffix("Pipeline")
