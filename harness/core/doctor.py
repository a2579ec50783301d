"""What `parity doctor` finds, and what each runtime's own checks are made of.

A runtime's list of what it can do is not relied on. Each entry is tried: a model of one
operator runs in a child process with a time limit, and the result is compared with the
right one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np


class Status(StrEnum):
    """What a finding means for someone who wants to measure parity."""

    OK = "ok"
    WARN = "warn"
    """Works, and can mislead."""
    FAIL = "fail"
    """Parity cannot be measured until it is mended."""
    ABSENT = "absent"
    """Not here, and not needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at.

    Attributes:
        check: What was looked at; the first word is the topic it belongs to.
        status: What it means.
        says: What was seen, with the runtime's own words where it has some.
        mend: What mends it, best a command; empty where there is nothing to mend.

    """

    check: str
    status: Status
    says: str
    mend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a child process found out.

    Attributes:
        facts: What it wrote down; empty when it did not get that far.
        words: All it and the native code below it printed.
        ended: How it died, or empty when it ended well.

    """

    facts: Mapping[str, Any]
    words: str = ""
    ended: str = ""


Ask: TypeAlias = Callable[..., Answer]
"""Puts a question, with arguments, to a process that may die of it."""

# y = x + x over four float32 values; written out, so that asking needs no onnx.
ONE_OPERATOR = (
    b'\x08\x08:5\n\x0e\n\x01x\n\x01x\x12\x01y"\x03Add\x12\x01gZ\x0f\n\x01x\x12\n\n\x08'
    b"\x08\x01\x12\x04\n\x02\x08\x04b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08"
    b"\x04B\x04\n\x00\x10\r"
)
# float16 rounds this to 1, so the result also tells in which precision it was made.
FED = 1 + 2**-12


def compared(result: np.ndarray) -> dict[str, Any]:
    """Compare each element with the exact answer; doubling is exact in float32."""
    value = float(result.ravel()[0])
    return {"value": value, "fed": FED, "right": bool((result == 2 * FED).all())}


def ran(check: str, version: str, answer: Answer) -> Finding:
    """Return the finding about a model that ran."""
    if answer.facts["right"]:
        return Finding(check=check, status=Status.OK, says=f"{version} runs")
    says = f"runs, and 2 × {answer.facts['fed']} came out as {answer.facts['value']}"
    return Finding(check=check, status=Status.FAIL, says=says)
