"""Kinds of ``[target.NAME]``, which plug-ins declare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.case import Case, Device, Target
from harness.core.plugins import added
from harness.core.toml_schema import Keys


def no_changes(_case: Case, _nodes: Sequence[str], /) -> Iterable[Any]:
    """Return the changes of a target that has no settings of its own: none."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproScript:
    """What shows a divergence on a kind of target without the harness.

    Attributes:
        text: A Python program up to the comparison. It reads ``repro.json``, and leaves
            what the runtime computes in ``actual``.
        files: Text of further files, by name.
        values: What it reads of ``repro.json`` beside the runtime's own.
        arguments: What the harness gives it where it runs it.
        command: The line that a person types in the folder.
        needs: What has to be installed, in words.

    """

    text: str
    files: Mapping[str, str]
    values: Mapping[str, str]
    arguments: tuple[str, ...]
    command: str
    needs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetKind:
    """What a plug-in declares as ``targets``: a kind of table ``[target.NAME]``.

    Attributes:
        kind: Name of the kind.
        table: The struct of its tables, a subclass of
            `harness.suite.schema.TargetTable`.
        targets: Function of a table's name and the table, which yields its targets.
        bundle: Function of a case's id, its device, and the folder of its bundle, which
            has the recorded calls and the deployed files. It writes what makes the
            calls on such a target, and a README.md. Without it a Python makes them.
        repro: Function of a case's device, which returns a `ReproScript`. Without it
            the runtime's own script runs in a Python.
        versions: Function of a target. It returns the target with each version that
            its runtime has, by version, the oldest first; it may raise a
            `ParityError`. None where a target has one version alone.
        changes: Function of a case on a target, and of the names of the nodes that
            its divergence is blamed on. It yields each change of the target's
            settings, a `SettingChange` of the plug-in `explain`.

    """

    kind: str
    table: type[Keys]
    targets: Callable[[str, Any], Iterable[Target]]
    bundle: Callable[[str, Device, Path], None] | None = None
    repro: Callable[[Device], ReproScript] | None = None
    versions: Callable[[Target], Mapping[str, Target]] | None = None
    changes: Callable[[Case, Sequence[str]], Iterable[Any]] = no_changes


def target_kinds() -> Mapping[str, TargetKind]:
    """Return the kinds of the installed plug-ins that can be loaded, by name."""
    found: Iterable[Any] = (one.function for one in added("targets"))
    return {one.kind: one for one in found if one is not None}


def kind_of(target: Target | None) -> TargetKind | None:
    """Return the kind of a target; None for this process, or a kind not installed."""
    return target_kinds().get(target.kind) if target else None


def script_of(device: Device) -> ReproScript | None:
    """Return the script of a repro on a device's target; None for the runtime's own."""
    kind = kind_of(device.target)
    return kind.repro(device) if kind and kind.repro else None
