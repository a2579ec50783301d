"""Put facts into the templates of a first suite."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.core.runtime import EXACT, Runtime, runtimes
from harness.core.text import printable

NEAR: Final = 2
"""A relative path goes up at most so many folders; a farther path is absolute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The variants that a first suite runs.

    Attributes:
        variants: By runtime and variant, whether it runs, and the words beside it.
        only: By component, its variants where it does not run all of the suite's.
        failed: By component and runtime, the reason why the exact variant failed there.

    """

    variants: dict[str, dict[str, tuple[bool, str]]]
    only: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def left_out(self) -> dict[str, str]:
        """Components that failed in each runtime, with the reasons."""
        return {
            name: "; ".join(f"{one}/{EXACT}: {why}" for one, why in failed.items())
            for name, failed in self.failed.items()
            if name in self.only and not self.only[name]
        }

    def reasons(self, component: str) -> list[str]:
        """Return lines that say why a component runs not everywhere."""
        return [
            line
            for one, why in self.failed.get(component, {}).items()
            for line in textwrap.wrap(
                f'"{one}/{EXACT}" failed here: {why}', 84, break_on_hyphens=False
            )
        ]


def render(kind: str, **facts: object) -> tuple[str, str]:
    """Return parity.toml and tolerances.toml, of a folder of ``templates/``.

    `facts` are the variables that the templates use.
    """
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("harness.plugins.start.init"),
        autoescape=False,  # noqa: S701  # TOML and not HTML; see `quoted` and `in_a_line`
        finalize=in_a_line,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"quoted": quoted, "key": key}
    facts |= {"runtimes": first_runtimes(), "EXACT": EXACT}
    suite, tolerances = (
        templates.get_template(f"{kind}/{name}.toml.jinja").render(facts)
        for name in ("parity", "tolerances")
    )
    return suite, tolerances


def quoted(value: str | Sequence[str]) -> str:
    r"""Return a text, or texts, as a value of TOML.

    >>> print(quoted('a"b\n'), quoted(["x"]))
    "a\"b\n" ["x"]
    """
    # TOML reads JSON's strings, except for the character that ASCII ends with.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def key(name: str) -> str:
    """Return a name as a key of TOML.

    >>> print(key("batch"), key("a b.c"))
    batch "a b.c"
    """
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quoted(name)


def in_a_line(value: object) -> object:
    """Return a value of a template, which neither ends a line nor a comment there."""
    return printable(value) if isinstance(value, str) else value


def no_variant(*, is_run: bool = False) -> Choice:
    """Return the choice of fp32 alone, with the risk beside each other variant.

    A measurement needs the choice of every variant, which `is_run` makes of it.
    """
    return Choice(
        variants={
            runtime.name: {
                name: (is_run, variant.risk)
                for name, variant in runtime.variants.items()
                if name != EXACT
            }
            for runtime in first_runtimes()
        }
    )


def first_runtimes() -> list[Runtime]:
    """Return the runtimes of a first suite."""
    return [runtime for runtime in runtimes().values() if runtime.is_first]


def path_from(folder: Path, path: Path) -> str:
    """Return a path relative to the folder, or the absolute path if it is far."""
    here, there = folder.resolve(), path.resolve()
    if here.parts[:2] != there.parts[:2]:  # two drives, or nothing else in common
        return there.as_posix()
    relative = Path(os.path.relpath(there, here))
    return (there if relative.parts.count("..") > NEAR else relative).as_posix()
