"""The attributes that every section of the page has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.report.run_facts import QUIET


@dataclass(frozen=True, kw_only=True)
class Section:
    """One section of the page; a subclass names the template that draws it.

    Attributes:
        state: ``good``, ``bad`` or ``quiet``: a mark and a colour.
        gist: One line that is visible while the section is closed.
        open: Whether the section is open at first.

    """

    template: ClassVar[str]

    id: str
    title: str
    state: str = QUIET
    gist: str = ""
    open: bool = False
