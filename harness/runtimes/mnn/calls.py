"""The calls that a bundle makes of MNN's driver, and those that a receiver makes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated, Literal

from msgspec import Meta, field

from harness.runtimes.calls import PLACE, Call, Model, Name, Said, Threads
from harness.runtimes.mnn import HINTS

_Number = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class _Config(Said, frozen=True):
    """What a session is made with; MNN has no more settings than these for a card."""

    backend: Literal["CPU", "METAL", "CUDA", "OPENCL", "VULKAN"]
    precision: Literal["high", "normal", "low"]
    numThread: Threads  # noqa: N815  # the name is MNN's


class _Open(Said, frozen=True, omit_defaults=True):
    """How a file is loaded; earlier bundles do not name the API."""

    model: Model
    config: _Config
    hints: tuple[tuple[_Number, _Number], ...]
    api: Literal["", "session", "module"] = ""


class _Names(Said, frozen=True):
    names: tuple[Name, ...]


class _Watch(Said, frozen=True, omit_defaults=True):
    """What is shown of layers; earlier bundles name no values for a module."""

    wanted: tuple[Name, ...] | dict[Name, int]
    made: dict[Name, Name]
    suffix: Name
    values: dict[Name, Name] = field(default_factory=dict)


class OpenMnn(Call, frozen=True, tag="open"):
    """Load a file."""

    said: _Open


class RunMnn(Call, frozen=True, tag="run"):
    """Run the open session."""

    said: Said = Said()


class Outputs(Call, frozen=True, tag="outputs"):
    """Show the outputs of the last run."""

    said: _Names


class Watch(Call, frozen=True, tag="watch"):
    """Run, and show values of layers."""

    said: _Watch


CALLS = OpenMnn | RunMnn | Outputs | Watch


def refusals(
    call: OpenMnn | RunMnn | Outputs | Watch, files: Collection[str]
) -> Iterator[str]:
    """Yield why a receiver does not make a call, a clause each; none if it makes it.

    `files` are the names of the bundle's files.
    """
    if isinstance(call, Watch):
        yield "asks for values of layers, and outputs alone are compared"
    if not isinstance(call, OpenMnn):
        return
    if call.said.model.removeprefix(PLACE) not in files:
        yield "loads another file than its own"
    for number, _ in call.said.hints:
        if not 0 <= number < len(HINTS):
            yield f"gives MNN the hint {number}, and it has 0 to {len(HINTS) - 1}"
