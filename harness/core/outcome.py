"""Every way in which a probe, or a whole case, can end."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """How a probe or a stage ended.

    Some outcomes come from a comparison of two arrays. A stage may also end before
    there are arrays to compare. Only `WITHIN`, `ANOTHER` and `GAP` pass.
    """

    WITHIN = "within"
    """The error is inside its tolerance."""

    ANOTHER = "another"
    """In a foreign model, a name stands for another value than in the reference. All
    values computed from it agree, and so do the outputs."""

    EXCEEDS = "exceeds"
    """The values are finite, have the same shape, and differ by more than the
    tolerance."""

    NONFINITE = "nonfinite"
    """A NaN or infinity is on either side, and the probe does not declare it."""

    CONSTANT = "constant"
    """All values are equal, so a network that is broken in the same way would agree."""

    BLACK = "black"
    """A picture is completely black, which is how NaN looks on a screen."""

    MISREAD = "misread"
    """The result read from an output differs, such as a digit in a picture, a ranking,
    or an id."""

    WORSE = "worse"
    """Over many pictures, more are worse than their limit than may be."""

    OPEN = "inconclusive"
    """Too few pictures were drawn to tell whether more are worse than may be."""

    SCHEDULE = "schedule"
    """Timesteps or sigmas differ, before any network has run."""

    SHAPE = "shape"
    """The shapes differ; nothing is broadcast."""

    DTYPE = "dtype"
    """The kinds of number differ: integer, floating point or boolean."""

    EMPTY = "empty"
    """There is no element to compare."""

    MISSING = "missing"
    """A value that the contract promises is not there."""

    COVERAGE = "coverage"
    """Too few of the reference's computing operators were compared."""

    FELL_BACK = "fell-back"
    """The file ran on another device, provider or precision than the suite requests."""

    REFERENCE = "reference"
    """The reference is not sound: it is random, in train mode, or changes its
    inputs."""

    DEAD_INPUT = "dead-input"
    """An input that matters in PyTorch has no effect in the deployed file."""

    EXCHANGED = "exchanged"
    """The deployed file exchanges two inputs."""

    UNSTEADY = "unsteady"
    """A second run on the same inputs gives another result."""

    WEIGHTS = "weights"
    """The graph's weights differ from those of PyTorch's module, whatever their
    effect."""

    ATTRIBUTES = "attributes"
    """The graph gives an operator another setting than PyTorch's program does, whatever
    its effect."""

    NO_EFFECT = "no-effect"
    """A variant has flags of its own, and the deployed file is the same as without
    them."""

    CHECK = "check"
    """A check of a plug-in found something wrong; the reason names the plug-in."""

    FROZEN = "frozen"
    """A size that must stay open is fixed in the deployed file."""

    PATCH = "patch-differs"
    """The patch of the exported copy changes what it computes, or cannot be applied."""

    EXPORT = "export"
    """The export from PyTorch to ONNX failed."""

    CONVERT = "convert"
    """The conversion from ONNX to the deployed file failed."""

    LOAD = "load"
    """The runtime refused the file, or the file is damaged."""

    RUN = "run"
    """The runtime loaded the file and failed to run it."""

    MEMORY = "memory"
    """A stage needs more memory than there is: it was forecast to and was not started,
    or the runtime said so."""

    CRASHED = "crashed"
    """The worker process died: segmentation fault, killed, or out of memory."""

    TIMED_OUT = "timed-out"
    """The worker process was still running at its time limit."""

    UNAVAILABLE = "unavailable"
    """The runtime is not installed on this machine."""

    ABSENT = "absent"
    """A target or version that the suite asks for cannot be started, or lacks Python,
    numpy or the runtime; or an installed runtime lacks a package that it needs."""

    GAP = "gap"
    """The case failed exactly as a known gap says."""

    STALE_GAP = "stale-gap"
    """A known gap says that the case fails, but it passes or fails in another way."""

    @property
    def passed(self) -> bool:
        """Whether the outcome counts as agreement."""
        return self in _PASSED

    @property
    def of_graph(self) -> bool:
        """Whether the graph itself shows it, whatever a run of the graph computes."""
        return self in {Outcome.WEIGHTS, Outcome.ATTRIBUTES}

    @property
    def measured(self) -> bool:
        """Whether both sides were compared, so that agreement or its lack is known."""
        return self in _MEASURED


PARITY, NO_PARITY, CANNOT_TELL = 0, 1, 2
"""Exit codes. `harness.judge.run` decides which one a run has."""

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
        Outcome.WORSE,
        Outcome.SCHEDULE,
        Outcome.SHAPE,
        Outcome.DTYPE,
        Outcome.EMPTY,
        Outcome.DEAD_INPUT,
        Outcome.EXCHANGED,
        Outcome.UNSTEADY,
        Outcome.WEIGHTS,
        Outcome.ATTRIBUTES,
        Outcome.NO_EFFECT,
        Outcome.CHECK,
        Outcome.GAP,
        Outcome.STALE_GAP,
    }
)


class Precedence(IntEnum):
    """Where a finding counts; the first of several findings counts."""

    INSTEAD = 0
    """In the place of every value: the values tell nothing then."""

    BEFORE = 1
    """Before every value, however small its effect is."""

    AFTER = 2
    """After the values: it is the outcome only where they agree."""


class CheckFinding(NamedTuple):
    """What a check of a case shows beside the values that it compares."""

    outcome: Outcome
    message: str
    place: Precedence = Precedence.BEFORE
