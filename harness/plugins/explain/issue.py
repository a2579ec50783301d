"""The text of a bug report for `parity repro --post`, in Markdown.

Names of operators and values come from a model's file, and messages from a runtime.
They are shown as they are where they are plain words, and as code elsewhere: no link,
picture, mention or HTML of theirs takes effect where the text is posted.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from harness.core.case import Case
from harness.core.environment import environment, version_of
from harness.core.private import without_paths
from harness.core.record import CaseRecord
from harness.core.runtime import runs_exported, runtime
from harness.core.text import count, operator
from harness.judge.reference import of_reference
from harness.plugins.explain.excerpts import Around
from harness.plugins.explain.repro import EXPORTED
from harness.report.markdown import fenced, word
from harness.suite.places import script_of


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
    looks = of_reference(around.layer.looks)
    title = f"{declared.title} {word(str(ran.get('version', '?')))}"
    operators = count(int(meta["nodes"]), "operator")
    threads = count(case.device.threads, "thread")
    made_as = without_paths(" ".join((case.variant.kind, *case.variant.flags)))
    own = script_of(case.device)
    command = own.command if own else "python repro.py"
    needs = own.needs if own else f"numpy and {' or '.join(declared.distributions)}"
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
            f"Run `{command}` in this folder. It reads `repro.json`, needs {needs}, "
            "and ends with exit code 1 while the two differ. The noise is the error "
            "that float32 arithmetic has by itself. Here the script prints:"
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
    if own:
        detail = dict(ran.get("detail", ()))
        places = [detail.get(name, "") for name in ("package", "machine", "adapter")]
        parts.append(f"- {word(', '.join(filter(None, places)))}")
    if left_out:
        named = ", ".join(map(word, left_out))
        parts.append(f"- Without the options {named}, whose values are paths")
    parts += [
        f"- {word(_converter(case, record))}",
        f"- {word(f'{here.cpu}, {platform.system()}, {python}')}",
    ]
    return "\n".join((*parts, versions))


def _sentence(looks: str) -> str:
    return f" {word(f'{looks[:1].upper()}{looks[1:]}')}." if looks else ""


def _converter(case: Case, record: CaseRecord) -> str:
    """Return a sentence about what made the file."""
    declared = runtime(case.backend)
    if runs_exported(case.backend, case.variant.kind):
        return "The file is the exported graph, without conversion"
    made: Any = (record.artifacts or {}).get(case.backend, {}).get("meta", {})
    if os.sep in str(made.get("converter", "")):
        return "Converted by a native converter, whose version is not known"
    here = version_of(declared)
    return f"Converted by {declared.title} {case.variant.converter or here}"
