"""Write a suite of recorded calls: its folder, its two TOML files, its test."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.errors import SpecError
from harness.core.runtime import EXACT, runtimes
from harness.core.settings import SUITE_FILE
from harness.core.toml_file import did_you_mean
from harness.judge.tolerance import TIER_NAMES
from harness.plugins.capture.forms import CallForm
from harness.recipes.calls import write_captured

TEST_FILE = '''\
"""Parity of the deployed models with PyTorch: `pytest -m parity`."""

from pathlib import Path

import pytest

from harness.suite.suite import load_suite

SUITE = load_suite(Path(__file__).parent / "parity.toml")


@pytest.mark.parity
@pytest.mark.parametrize("check", SUITE.checks())
def test_parity(check, parity):
    parity.require(check)
'''
"""The test of a suite, which `parity init` writes too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One component of a suite of recorded calls.

    Attributes:
        name: Name of the component.
        module: Where its module comes from, as a suite says it.
        form: Its recorded calls.
        folder: The folder of its network in the checkpoint; empty for none.
        rounded: The wider bounds of layers, by runtime; each is a bound in TOML and the
            reason.

    """

    name: str
    module: str
    form: CallForm
    folder: str = ""
    rounded: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """What a suite of recorded calls tests, as `harness.check` takes it.

    Attributes:
        runtimes: Names of runtimes.
        variants: Names of variants: of each runtime, or by runtime.
        exporter: As ``exporter`` of a suite; empty for the default.
        opset: As ``opset`` of a suite; 0 for the default.
        optimize: As ``optimize`` of a suite; None for the default.
        patch: As ``patch`` of a suite.
        tier: The tier of every value; empty for the first tier of each variant.
        tolerance: Bounds of the outputs, by name.
        seeds: How many further inputs are drawn, which resemble the recorded ones.
        checkpoint: The folder of [source]; empty for none.

    """

    runtimes: Sequence[str] = ()
    variants: Sequence[str] | Mapping[str, Sequence[str]] = ()
    exporter: str = ""
    opset: int = 0
    optimize: bool | None = None
    patch: str = ""
    tier: str = ""
    tolerance: Mapping[str, float] = field(default_factory=dict)
    seeds: int = 0
    checkpoint: str = ""

    def __post_init__(self) -> None:
        known = runtimes()
        for name in (
            *self.runtimes,
            *(self.variants if isinstance(self.variants, Mapping) else ()),
        ):
            if name not in known:
                msg = (
                    f"there is no runtime {name!r}; {did_you_mean(name, tuple(known))}"
                )
                raise SpecError(msg)
        if self.tier and self.tier not in TIER_NAMES:
            msg = (
                f"there is no tier {self.tier!r}; {did_you_mean(self.tier, TIER_NAMES)}"
            )
            raise SpecError(msg)
        for runtime, names in self.variants_of.items():
            for name in names:
                if name not in known[runtime].variants:
                    hint = did_you_mean(name, tuple(known[runtime].variants))
                    msg = f"{runtime} has no variant {name!r}; {hint}"
                    raise SpecError(msg)
        if self.seeds < 0:
            msg = f"seeds is a number of further draws from 0, got {self.seeds}."
            raise SpecError(msg)

    @property
    def variants_of(self) -> dict[str, tuple[str, ...]]:
        """The variants of each runtime."""
        names = self.runtimes or tuple(
            one.name for one in runtimes().values() if one.is_first
        )
        if isinstance(self.variants, Mapping):
            return {name: tuple(self.variants.get(name, (EXACT,))) for name in names}
        return {name: tuple(self.variants) or (EXACT,) for name in names}


def write_suite(folder: Path, parts: Sequence[Part], choice: CheckSettings) -> Path:
    """Write a suite and its recorded calls into a folder; return the suite's file."""
    for part in parts:
        write_captured(
            folder / "captured" / part.name, part.form.captured, part.form.tensors
        )
    return write_texts(folder, parts, choice)


def write_texts(
    folder: Path,
    parts: Sequence[Part],
    choice: CheckSettings,
    captured: str = "captured",
) -> Path:
    """Write the two TOML files of a suite whose calls are there; return the suite's.

    The suite is written last, so a folder without one is not complete.
    """
    tolerances = folder / "tolerances.toml"
    tolerances.write_text(tolerances_text(parts, choice), encoding="utf-8")
    suite = folder / SUITE_FILE
    suite.write_text(suite_text(parts, choice, captured), encoding="utf-8")
    return suite


def suite_text(parts: Sequence[Part], choice: CheckSettings, captured: str) -> str:
    """Return the text of parity.toml; `captured` is the folder of the calls."""
    export = {
        "exporter": choice.exporter,
        "opset": choice.opset,
        "optimize": choice.optimize,
        "patch": choice.patch,
    }
    given = {
        key: value
        for key, value in export.items()
        if value is False or value  # an exporter's own default is not written
    }
    most = max(len(part.form.captured.sizes) for part in parts)
    samples = max(map(_turns, parts)) + choice.seeds * most
    opened = sorted({one for part in parts for one in part.form.captured.opened})
    lines = [
        "# The recorded calls of a module, and how its files are tested.",
        f"components = {_toml([part.name for part in parts])}",
        "",
    ]
    if choice.checkpoint:
        lines += ["[source]", f"checkpoint = {_toml(choice.checkpoint)}", ""]
    lines += [
        "[export]",
        *(f"{key} = {_toml(value)}" for key, value in given.items()),
        f"dynamic_axes = {_toml(opened)}",
        "",
        "[inputs]",
        'profiles = ["realistic"]   # the recorded calls, then draws like them',
        f"realistic = {samples}",
        "",
    ]
    for name, variants in choice.variants_of.items():
        lines += [f"[backend.{name}]", f"variants = {_toml(list(variants))}", ""]
    for part in parts:
        lines += [
            f"[component.{_key(part.name)}]",
            f"module = {_toml(part.module)}",
            *([f"folder = {_toml(part.folder)}"] if part.folder else []),
            f"captured = {_toml(f'{captured}/{part.name}')}",
            "",
        ]
        for sizes in part.form.captured.sizes:
            if sizes:
                lines += [
                    f"[[component.{_key(part.name)}.shapes]]",
                    *(f"{_key(key)} = {size}" for key, size in sizes.items()),
                    "",
                ]
    # A network that nobody has seen may have operators that a runtime fuses.
    lines += ["[limits]", "coverage = 0.5", "jobs = 2"]
    return "\n".join(lines) + "\n"


def _turns(part: Part) -> int:
    """Return how many realistic samples show every recorded call."""
    captured = part.form.captured
    sizes = captured.sizes
    return len(sizes) * max(len(captured.calls_of(own)) for own in sizes)


def tolerances_text(parts: Sequence[Part], choice: CheckSettings) -> str:
    """Return the text of tolerances.toml."""
    lines = ["# How far a value may be from PyTorch's. Tiers, from tight to loose:"]
    lines.append(f"#   {', '.join(TIER_NAMES)}")
    for name, variants in choice.variants_of.items():
        for variant in variants:
            tier = choice.tier or runtimes()[name].variants[variant].tier
            bounds = {"tier": tier, **choice.tolerance}
            outputs = _inline(bounds) if choice.tolerance else _toml(tier)
            lines += [
                "",
                f"[{name}.{_key(variant)}]",
                f"outputs = {outputs}",
                f"layers = {_toml(tier)}",
            ]
            if variant != EXACT or choice.tier:
                continue
            for part in parts:
                if bound := part.rounded.get(name):
                    lines += [
                        "",
                        f"[{_key(part.name)}.{name}.{_key(variant)}]",
                        f"layers = {bound[0]}",
                        f"why = {_toml(bound[1])}",
                    ]
    return "\n".join(lines) + "\n"


def rounded_in(module: Any) -> dict[str, tuple[str, str]]:
    """Return the wider bounds of layers that a module's activations need, by runtime.

    `Runtime.first_bounds` has them. A tanh inside a function of a module is not seen.
    """
    tanh = {"GELUTanh", "NewGELUActivation", "FastGELUActivation", "PytorchGELUTanh"}
    has = any(
        type(part).__name__ in tanh or getattr(part, "approximate", "") == "tanh"
        for part in module.modules()
    )
    return {
        one.name: one.first_bounds["gelu"]
        for one in runtimes().values()
        if has and "gelu" in one.first_bounds
    }


def relative(path: Path, folder: Path) -> str:
    """Return a path relative to a folder, with slashes."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def _toml(value: object) -> str:
    # TOML reads JSON's strings, except for the character that ASCII ends with.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    plain = name.replace("-", "").replace("_", "")
    return name if plain.isalnum() and plain.isascii() else _toml(name)


def _inline(bounds: Mapping[str, object]) -> str:
    return (
        "{ "
        + ", ".join(f"{key} = {_toml(value)}" for key, value in bounds.items())
        + " }"
    )
