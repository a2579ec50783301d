"""Keep the worst inputs that a tuning found, so that every later run tries them."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import tomlkit

from harness.core.case import Sample
from harness.judge.known_gaps import Gap
from harness.plugins.tune.proposal import has_gap
from harness.plugins.tune.record import Tuning, usage_of, worst_of
from harness.plugins.tune.toml_edit import inline

WORSE: Final = 1.05
"""An input is kept if it uses more of the limit than the suite's own by this factor."""

_HEAD = """\
# Inputs that `parity tune` found to be worse than the suite's own, run beside them.
# The next tuning of a case writes its entry anew.
"""
_ABOUT_CASES = ("cases", "why")

Entry = dict[str, Any]
"""One ``[[input]]`` of worst_inputs.toml."""


def kept(tuning: Tuning, gaps: Sequence[Gap]) -> dict[str, tuple[Sample, str]]:
    """Return the input that each case keeps, and why; cases with none are absent.

    A case with a known failure keeps none, because every input is bad there. A pipeline
    keeps none, because its inputs are not drawn from a sample.
    """
    found = {}
    for name, record in tuning.cases.items():
        if has_gap(gaps, name) or record.pipeline is not None:
            continue
        worst, usage = worst_of(record), usage_of(record)
        suites = [one.sample.id for one in record.tried if one.why == "suite"]
        own = max((usage[name] for name in suites if name in usage), default=0.0)
        most = usage[worst.sample.id]
        if worst.why == "suite" or most < WORSE * own:
            continue
        why = (
            f"uses {most:.2g} of the limit of {tuning.date}, and no sample of "
            f"the suite more than {own:.2g}"
        )
        found[name] = (worst.sample, why)
    return found


def worst_inputs_text(path: Path, tuning: Tuning, gaps: Sequence[Gap]) -> str:
    """Return worst_inputs.toml with new entries for the tuned cases."""
    entries = _without(path, tuning.cases)
    for name, (sample, why) in kept(tuning, gaps).items():
        entry: Entry = {
            "cases": [name],
            "label": sample.id,
            "profile": sample.profile,
            "index": sample.index,
            "seed": sample.seed,
            "shapes": dict(sample.shapes),
        }
        if sample.knobs:
            entry["knobs"] = dict(sample.knobs)
        entry["why"] = why
        same = (one for one in entries if _input(one) == _input(entry))
        if (known := next(same, None)) is not None:
            known["cases"].append(name)
        else:
            entries.append(entry)
    return _text(entries)


def pruned_text(path: Path, gone: Collection[str]) -> str:
    """Return worst_inputs.toml without cases that are gone; empty if none is left."""
    return _text(_without(path, gone))


def _input(entry: Entry) -> Entry:
    return {key: value for key, value in entry.items() if key not in _ABOUT_CASES}


def _without(path: Path, gone: Collection[str]) -> list[Entry]:
    """Return the entries of a file that are of other cases."""
    if not path.is_file():
        return []
    read = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    entries: list[Entry] = read.get("input", [])
    for entry in entries:
        entry["cases"] = [name for name in entry["cases"] if name not in gone]
    return [entry for entry in entries if entry["cases"]]


def _text(entries: Iterable[Entry]) -> str:
    blocks = []
    for entry in entries:
        table = tomlkit.table()
        for key, value in entry.items():
            # An inline table, on one line, not a sub-table.
            table[key] = inline(value) if isinstance(value, dict) else value
        several = tomlkit.aot()
        several.append(table)
        blocks.append(tomlkit.dumps({"input": several}))
    return "\n".join([_HEAD, *blocks]) if blocks else ""
