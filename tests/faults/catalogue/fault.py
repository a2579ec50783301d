"""What a planted fault is: where it goes in, and what the harness must say of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.runtimes.session import Session

if TYPE_CHECKING:
    import onnx

FAMILIES = ("operator", "export", "conversion", "runtime", "metric")


@dataclass(frozen=True, slots=True, kw_only=True)
class InGraph:
    """Changes the exported graph.

    `change` returns the value that is wrong from then on, or nothing where the fault
    has no one place. `exporter` replaces the suite's.
    """

    change: Callable[[onnx.ModelProto], str | None]
    exporter: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InModule:
    """Changes the PyTorch module; `faulty_recipe` knows how by the fault's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InConverter:
    """Takes the place of MNN's converter: a Python program with its arguments."""

    script: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InFiles:
    """Changes a deployed folder.

    Attributes:
        change: Gets the folder, and that of the variant `other`.
        other: A variant of the same component, or nothing.
        sealed: Whether the change comes after the store has taken the files' digests.

    """

    change: Callable[[Path, Path], None]
    other: str = ""
    sealed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class InSession:
    """Stands between the harness and a loaded file.

    Attributes:
        wrap: Makes a session of a session.
        place: The exported value that it makes wrong; empty where it is outputs.

    """

    wrap: Callable[[Session], Session]
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InRule:
    """Changes one line of the harness's own comparison.

    Attributes:
        module: Path of the file within the repository.
        right: The text as it is; stands there once.
        wrong: What replaces it.
        tests: The file whose tests must tell, below ``tests/unit``; empty for those
            that are named after the module.

    """

    module: str
    right: str
    wrong: str
    tests: str = ""


Plant = InGraph | InModule | InConverter | InFiles | InSession | InRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        name: What the field calls it, kebab-case.
        family: One of `FAMILIES`.
        plant: How it goes in.
        expects: The harness explains it if it says any one of these.
        also: What else is true of it. A description of an error is made of clauses; one
            with none of `expects` and none of these in it is wrong.
        component: Digits' component that it is planted in; empty for a rule.
        backends: Runtimes that it can be planted in.
        variant: Whose file it is planted in.
        hangs: Whether it never ends, and is to be tried with a short limit.

    """

    name: str
    family: str
    plant: Plant
    expects: tuple[str, ...]
    component: str = ""
    backends: tuple[str, ...] = ("onnxruntime", "mnn")
    variant: str = "fp32"
    hangs: bool = False
    also: tuple[str, ...] = ()

    def allows(self, clause: str) -> bool:
        """Whether a clause says what is true of the fault."""
        return any(word in clause for word in (*self.expects, *self.also))


def fault(
    family: str, plant: Plant, name: str, component: str, *expects: str, **rest: Any
) -> Fault:
    """Return a fault, which the harness explains if it says any of `expects`."""
    return Fault(
        name=name,
        family=family,
        component=component,
        plant=plant,
        expects=expects,
        **rest,
    )


def in_graph(
    family: str,
    component: str,
    name: str,
    change: Callable[[onnx.ModelProto], str | None],
    *expects: str,
    exporter: str = "",
    **rest: Any,
) -> Fault:
    """Return a fault that is planted in the exported graph."""
    plant = InGraph(change=change, exporter=exporter)
    return fault(family, plant, name, component, *expects, **rest)
