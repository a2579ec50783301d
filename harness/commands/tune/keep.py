"""Keep the worst inputs that were found, so that every later run tries them."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.commands.tune.proposal import has_gap
from harness.commands.tune.record import CaseTuning, Tuning
from harness.commands.tune.toml_edit import quoted
from harness.core.case import Sample
from harness.core.toml_file import dotted
from harness.judge.known_gaps import Gap

WORSE: Final = 1.05
"""An input is kept if it uses so much more of the limit than the suite's own do."""

_HEAD = """\
# Inputs that `parity tune` found to be worse than the suite's own, run beside them.
# The next tuning of a case writes its entry anew.
"""


def kept(tuning: Tuning, gaps: Sequence[Gap]) -> dict[str, tuple[Sample, str]]:
    """Return the input that each case is to keep, and why; cases with none are absent.

    A case that is known to fail keeps none: every input is bad there.
    """
    found = {}
    for name, case in tuning.cases.items():
        if has_gap(gaps, name):
            continue
        known = {t.sample.id: t for t in tuning.tried[case.record.component]}
        own = _worst(case, (p for p, t in known.items() if t.why == "suite"))
        worst = case.worst
        if known[worst.sample].why == "suite" or worst.usage < WORSE * own:
            continue
        why = (
            f"uses {worst.usage:.2g} of the limit of {tuning.date}, and no sample of "
            f"the suite more than {own:.2g}"
        )
        found[name] = (known[worst.sample].sample, why)
    return found


def worst_inputs_text(path: Path, tuning: Tuning, gaps: Sequence[Gap]) -> str:
    """Return worst_inputs.toml with the entries of the tuned cases written anew."""
    entries = _without(path, tuning.cases)
    for name, (sample, why) in kept(tuning, gaps).items():
        body = "\n".join(f"{k} = {_toml(v)}" for k, v in _about(sample).items())
        names, reason = entries.get(body, ([], why))
        entries[body] = ([*names, name], reason)
    return _text(entries)


def pruned_text(path: Path, gone: Collection[str]) -> str:
    """Return worst_inputs.toml without cases that are gone; empty if that is all."""
    return _text(_without(path, gone))


def _without(path: Path, gone: Collection[str]) -> dict[str, tuple[list[str], str]]:
    """Return what a file keeps of other cases: body to the cases and the reason."""
    entries: dict[str, tuple[list[str], str]] = {}
    if path.is_file():
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        for entry in data.get("input", ()):
            names = [name for name in entry.pop("cases") if name not in gone]
            reason = entry.pop("why", "")
            if names:
                body = "\n".join(f"{key} = {_toml(v)}" for key, v in entry.items())
                entries.setdefault(body, ([], reason))[0].extend(names)
    return entries


def _text(entries: Mapping[str, tuple[list[str], str]]) -> str:
    blocks = []
    for body, (names, why) in entries.items():
        because = f"\nwhy = {quoted(why)}" if why else ""
        blocks.append(f"[[input]]\ncases = {_toml(names)}\n{body}{because}\n")
    return "\n".join([_HEAD, *blocks]) if blocks else ""


def _worst(case: CaseTuning, names: Iterable[str]) -> float:
    wanted = set(names)
    return max((p.usage for p in case.points if p.sample in wanted), default=0.0)


def _about(sample: Sample) -> dict[str, object]:
    about: dict[str, object] = {
        "label": sample.id,
        "profile": sample.profile,
        "index": sample.index,
        "seed": sample.seed,
        "shapes": dict(sample.shapes),
    }
    if sample.knobs:
        about["knobs"] = dict(sample.knobs)
    return about


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{dotted((k,))} = {_toml(v)}" for k, v in value.items())
        return f"{{ {pairs} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return quoted(value) if isinstance(value, str) else repr(value)
