"""What changed between two runs made by hand."""

from harness.core.text import screen
from harness.plugins.release.diff import diff
from harness.plugins.release.screen import diff_lines
from tests.unit.snapshots import exactly


def found(before, after, what="outputs", rtol=exactly):
    """What became of one thing of the one case."""
    findings = [one for one in diff(before, after, rtol).findings if one.what == what]
    assert len(findings) == 1, findings
    return findings[0]


def text(before, after):
    """What `parity diff` says."""
    return "\n".join(
        line.text for line in screen(diff_lines(diff(before, after, exactly)))
    )
