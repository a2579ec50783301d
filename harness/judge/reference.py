"""Which reference a record has: PyTorch, or an ONNX file."""

from __future__ import annotations

from harness.core.case import ANOTHER_FILE, ITSELF
from harness.core.record import CaseRecord

NO_LAYERS = (
    "neither names nor scopes nor weights of the file say which of its values is which "
    "of PyTorch's, so only its outputs can be compared; `layers = false` under its "
    "[[shapes]] asks for no more"
)


def has_pytorch(record: CaseRecord) -> bool:
    """Whether a record's reference is PyTorch; else it is an ONNX file, without floors.

    A case that ended before it was compared counts as one with PyTorch.
    """
    return (record.foreign or {}).get("by") not in {ITSELF, ANOTHER_FILE}


def of_reference(text: str) -> str:
    """Return words about PyTorch's values as words about those of another reference.

    >>> of_reference("every value is PyTorch's, rounded to float16")
    "every value is the reference's, rounded to float16"
    """
    return text.replace("PyTorch", "the reference")


def itself_words(record: CaseRecord) -> str:
    """Return how a file without another reference was compared; empty for others."""
    if record.failure or (record.foreign or {}).get("by") != ITSELF:
        return ""
    return "compared with itself, unoptimised in ONNX Runtime"
