"""Every way a probe, or a whole case, can end. Nothing ends without one."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How a probe or a stage ended.

    Numbers come from holding two arrays against each other; stages end before
    there are arrays to hold. Only `WITHIN`, `ANOTHER`
    and `GAP` pass.
    """

    WITHIN = "within"
    """Inside its tolerance."""

    ANOTHER = "another"
    """Another value than the reference's of this name, in a file that others made; all
    that reads it agrees, and so do the outputs."""

    EXCEEDS = "exceeds"
    """Finite, same shape, and further apart than the tolerance allows."""

    NONFINITE = "nonfinite"
    """NaN or infinity on either side, where the probe does not declare it."""

    CONSTANT = "constant"
    """One value everywhere: it would agree with anything broken the same way."""

    BLACK = "black"
    """A picture that is black all over, which is what NaN becomes on a screen."""

    MISREAD = "misread"
    """What is read from an output is another: a digit in a picture, a ranking."""

    SCHEDULE = "schedule"
    """Timesteps or sigmas differ, before any network has run."""

    SHAPE = "shape"
    """Shapes differ; nothing is broadcast."""

    DTYPE = "dtype"
    """Kinds of number differ (integer, floating point, boolean)."""

    EMPTY = "empty"
    """No element to compare."""

    MISSING = "missing"
    """A value the contract promises is not there."""

    COVERAGE = "coverage"
    """Too few of the reference's computing operators could be compared."""

    FELL_BACK = "fell-back"
    """It ran, but on another device, provider or precision than asked."""

    REFERENCE = "reference"
    """The reference is unsound: random, in train mode, or it changes its inputs."""

    DEAD_INPUT = "dead-input"
    """An input that matters to PyTorch has no effect in the deployed file."""

    EXCHANGED = "exchanged"
    """The deployed file takes two inputs for one another."""

    UNSTEADY = "unsteady"
    """The same inputs give another answer when the file is asked again."""

    WEIGHTS = "weights"
    """The graph holds other weights than PyTorch's module, whatever they do."""

    ATTRIBUTES = "attributes"
    """The graph tells an operator otherwise than PyTorch's program, likewise."""

    FROZEN = "frozen"
    """A size that is to stay open is fixed in the deployed file."""

    EXPORT = "export"
    """PyTorch to ONNX failed."""

    CONVERT = "convert"
    """ONNX to the deployed file failed."""

    LOAD = "load"
    """The runtime refused the artifact, or the artifact is damaged."""

    RUN = "run"
    """The runtime loaded the artifact and failed to run it."""

    MEMORY = "memory"
    """A stage is forecast to need more memory than there is; it was not started."""

    CRASHED = "crashed"
    """The child process died (segmentation fault, killed, out of memory)."""

    TIMED_OUT = "timed-out"
    """The child process was still running at its time limit."""

    UNAVAILABLE = "unavailable"
    """The runtime is not installed here."""

    GAP = "gap"
    """Failed exactly as a known gap says it does."""

    STALE_GAP = "stale-gap"
    """A known gap says this fails, and it passes or fails in another way."""

    @property
    def passed(self) -> bool:
        """Whether the case counts as agreeing."""
        return self in _PASSED

    @property
    def of_graph(self) -> bool:
        """Whether the graph itself shows it, whatever a run of it makes."""
        return self in {Outcome.WEIGHTS, Outcome.ATTRIBUTES}

    @property
    def measured(self) -> bool:
        """Whether both sides were compared, so that parity is known either way."""
        return self in _MEASURED


PARITY, NO_PARITY, CANNOT_TELL = 0, 1, 2
"""Exit codes; `harness.judge.run` says which one a run has."""

_PASSED = frozenset({Outcome.WITHIN, Outcome.ANOTHER, Outcome.GAP})
_MEASURED = frozenset(
    {
        Outcome.WITHIN,
        Outcome.ANOTHER,
        Outcome.EXCEEDS,
        Outcome.NONFINITE,
        Outcome.CONSTANT,
        Outcome.BLACK,
        Outcome.MISREAD,
        Outcome.SCHEDULE,
        Outcome.SHAPE,
        Outcome.DTYPE,
        Outcome.EMPTY,
        Outcome.DEAD_INPUT,
        Outcome.EXCHANGED,
        Outcome.UNSTEADY,
        Outcome.WEIGHTS,
        Outcome.ATTRIBUTES,
        Outcome.GAP,
        Outcome.STALE_GAP,
    }
)
