"""The words of a run's summary, in golden files: on a screen and in Markdown.

`pytest tests/unit/report/test_golden.py --snapshot-update` writes them again.
"""

import pytest

from harness.core.text import screen
from harness.report.layers import layer_lines
from harness.report.summary import markdown, summary
from tests.unit.scenes import SCENES, scene


@pytest.mark.parametrize("name", SCENES)
def test_a_summary_has_these_words_in_markdown(name, tmp_path, snapshot):
    facts = scene(name, tmp_path)

    assert markdown(facts, list(summary(facts, report="report.html"))) == snapshot


@pytest.mark.parametrize(
    "name", ["agrees", "many", "local error", "crashed", "picture"]
)
def test_a_case_lists_its_values_in_these_words(name, tmp_path, snapshot):
    facts = scene(name, tmp_path)
    record = facts.requested[0]

    lines = layer_lines(record, facts.checks[record.key])

    assert "\n".join(line.text for line in screen(lines)) == snapshot
