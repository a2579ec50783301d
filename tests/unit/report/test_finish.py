"""`harness.report.finish`: a run keeps what it measured."""

import shutil
from datetime import UTC, datetime

import pytest

from harness.core.errors import ParityError, SuiteError
from harness.core.settings import Settings
from harness.core.text import screen
from harness.engine.finished_run import load_report
from harness.engine.run import path_of
from harness.engine.run_folder import RunFolder
from harness.report.finish import conclude
from harness.suite.suite import load_suite
from tests.places import FIXTURES
from tests.unit.reports import output, record

BERT = FIXTURES / "text_tasks" / "bert"


def test_a_run_of_which_a_file_was_spoilt_meanwhile_keeps_its_measurements(tmp_path):
    suite = load_suite(shutil.copytree(BERT, tmp_path / "bert"))
    case = suite.cases[0].id
    folder = RunFolder.create(tmp_path / "runs", datetime.now(UTC))
    folder.record_once((path_of(suite), case), lambda: record(output(1), case=case))
    suite.tolerances_path.write_text('[mnn.fp32]\noutputs = "standrd"\n')

    with pytest.raises(ParityError, match=r"'standard'.*are kept: `parity"):
        conclude(
            folder,
            [suite],
            Settings(),
            asked=[(path_of(suite), case, "outputs")],
            argv=["parity", "run"],
            about={},
        )

    report = load_report(tmp_path / "runs", folder.id)
    assert [end.outcome for end in report.ends.values()] == ["inconclusive"]
    assert len(report.records[path_of(suite), case].rows) == 1


def concluded(folder, suite, *cases):
    lines, code = conclude(
        folder,
        [suite],
        Settings(),
        asked=[(path_of(suite), case, "outputs") for case in cases],
        argv=["parity", "run"],
        about={},
    )
    return " ".join(line.text for line in screen(lines)), code


def test_a_case_that_left_no_record_is_could_not_tell(tmp_path):
    """As where a folder was removed and made again by another process."""
    suite = load_suite(BERT)
    one, other = (case.id for case in suite.cases[:2])
    folder = RunFolder.create(tmp_path / "runs", datetime.now(UTC))
    folder.record_once((path_of(suite), one), lambda: record(output(0), case=one))
    text, code = concluded(folder, suite, one, other)
    assert code == 2, text
    assert f"1 case left no record: {other}" in text


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made-again"])
def test_a_folder_that_is_removed_while_a_run_writes_is_a_sentence(tmp_path, again):
    suite = load_suite(BERT)
    one, other = (case.id for case in suite.cases[:2])
    folder = RunFolder.create(tmp_path / "runs", datetime.now(UTC))
    folder.record_once((path_of(suite), one), lambda: record(output(0), case=one))
    shutil.rmtree(folder.path)
    if again:
        folder.path.mkdir()

    with pytest.raises(SuiteError, match="was removed while the run wrote to it"):
        folder.record_once((path_of(suite), other), lambda: record(case=other))
    with pytest.raises(SuiteError, match="was removed while the run wrote to it"):
        concluded(folder, suite, one)
