"""The text of a bug report for `parity repro --post`, in Markdown.

Names of operators and values come from a model's file, and messages from a runtime.
They are shown as they are where they are plain words, and as code elsewhere: no link,
picture, mention or HTML of theirs takes effect where the text is posted.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final, cast

from harness.commands.explain.excerpts import Around
from harness.commands.explain.repro import EXPORTED
from harness.core.case import Case
from harness.core.environment import environment, version_of
from harness.core.private import without_paths
from harness.core.record import CaseRecord
from harness.core.runtime import runs_exported, runtime
from harness.core.text import LOG, count, operator, printable

_MARKS: Final = re.compile(
    r"[`*<>\[\]|\\~&@#$!]|://|www\.|(?<!\w)_|_(?!\w)", re.IGNORECASE
)
"""What Markdown, or a page that shows it, may take for more than text."""


def about_drawn(around: Around) -> dict[str, str]:
    """Return what is said of an excerpt with drawn numbers."""
    title = runtime(around.excerpt.case.backend).title
    what = operator(around.layer.op)
    return {
        "title": f"{what} in {title} differs from ONNX's evaluator",
        "answer": "ONNX's reference evaluator's answer, computed in float64,",
    }


def issue(
    around: Around, folder: Path, left_out: Sequence[str], numbers: str, versions: str
) -> str:
    """Return the text to post: what differs, the graph, the versions, the numbers.

    Args:
        around: The excerpt that shows the divergence, and its run.
        folder: The folder to post.
        left_out: Names of the provider's options that the script leaves out.
        numbers: What the script prints.
        versions: A table of other versions; empty if there are none.

    """
    case, record = around.excerpt.case, around.record
    declared = runtime(case.backend)
    meta = cast("dict[str, Any]", around.excerpt.entry.meta)
    ran = cast("dict[str, Any]", record.ran or {})
    here = environment()
    looks = around.layer.looks
    title = f"{declared.title} {word(str(ran.get('version', '?')))}"
    operators = count(int(meta["nodes"]), "operator")
    threads = count(case.device.threads, "thread")
    made_as = without_paths(" ".join((case.variant.kind, *case.variant.flags)))
    python = f"Python {platform.python_version()}"
    parts = [
        f"# {word(about_drawn(around)['title'])}",
        "",
        (
            f"{title} and ONNX's reference evaluator give different results for "
            f"{operators}.{_sentence(looks)}"
        ),
        "",
        "## To reproduce",
        "",
        (
            "Run `python repro.py` in this folder. It reads `repro.json`, needs numpy "
            f"and {' or '.join(declared.distributions)}, and ends with exit code 1 "
            "while the two differ. The noise is the error that float32 arithmetic has "
            "by itself. Here the script prints:"
        ),
        "",
        fenced(without_paths(numbers)),
        "",
        (
            "All weights and inputs are drawn at random. `expected.npy` is the result "
            f"of `onnx.reference.ReferenceEvaluator` of onnx {metadata.version('onnx')}"
            " in float64."
        ),
    ]
    if (folder / EXPORTED).is_file():
        before = "`exported.onnx` is the model before conversion, in the same names."
        parts.append(before)
    parts += [
        "",
        "## The graph",
        "",
        fenced("\n".join(meta["listing"])),
        "",
        "## Where",
        "",
        (
            f"- {title} on {word(case.device.device)}, precision "
            f"{word(case.device.precision)}, {threads}, made as {word(made_as)}"
        ),
    ]
    if left_out:
        named = ", ".join(map(word, left_out))
        parts.append(f"- Without the options {named}, whose values are paths")
    parts += [
        f"- {word(_converter(case, record))}",
        f"- {word(f'{here.cpu}, {platform.system()}, {python}')}",
    ]
    return "\n".join((*parts, versions))


def word(text: str) -> str:
    r"""Return a text of others within a line of Markdown.

    >>> word("conv2d in MNN, 3 threads"), word("a_b"), word("<img src=x>")
    ('conv2d in MNN, 3 threads', 'a_b', '`<img src=x>`')
    >>> word("a`b\n# c")
    '``a`b # c``'
    """
    text = printable(" ".join(text.split()))
    if not _MARKS.search(text):
        return text
    ticks = _ticks(text, least=1)
    blank = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{blank}{text}{blank}{ticks}"


def cell(text: str) -> str:
    r"""Return a text of others as a cell of a table in Markdown.

    >>> cell("a|b")
    '`a\\|b`'
    """
    return word(text).replace("|", r"\|")


def fenced(text: str) -> str:
    r"""Return lines of others as a block of code in Markdown.

    >>> print(fenced("one\n```"))
    ````
    one
    ```
    ````
    """
    text = printable(text, LOG, lines=True)
    ticks = _ticks(text, least=3)
    return f"{ticks}\n{text}\n{ticks}"


def _ticks(text: str, least: int) -> str:
    """Return more backticks than stand together in a text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


def _sentence(looks: str) -> str:
    return f" {word(f'{looks[:1].upper()}{looks[1:]}')}." if looks else ""


def _converter(case: Case, record: CaseRecord) -> str:
    """Return a sentence about what made the file."""
    declared = runtime(case.backend)
    if runs_exported(case.backend, case.variant.kind):
        return "The file is the exported graph, without conversion"
    made: Any = (record.artifacts or {}).get(case.backend, {}).get("meta", {})
    if Path(str(made.get("converter", ""))).is_absolute():
        return "Converted by a native converter, whose version is not known"
    here = version_of(declared)
    return f"Converted by {declared.title} {case.variant.converter or here}"
