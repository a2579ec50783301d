"""`harness.report.finish`: a run keeps what it measured."""

import shutil
from datetime import UTC, datetime

import pytest

from harness.core.errors import ParityError
from harness.core.settings import Settings
from harness.engine.run import path_of
from harness.engine.run_folder import RunFolder, load_report
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
