"""The page of one case in many versions of its runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.core.text import FLOORS
from harness.core.whole_file import write_whole
from harness.report.html.page import templates
from harness.report.versions import WRONG, Answer, changes, table_of


def write_versions(title: str, answers: Sequence[Answer], path: Path) -> None:
    """Write the page: a table of the versions, and what changed.

    Raises:
        OSError: The file cannot be written.

    """
    head, *rows = table_of(answers)
    text = (
        templates()
        .get_template("versions.html")
        .render(
            title=title,
            head=head,
            rows=rows,
            changes=changes(answers),
            wrong={one.version for one in answers if one.state == WRONG},
            floors=FLOORS,
        )
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
