"""Messages about a foreign model: what was compared, and with which reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.core.case import ANOTHER_FILE, ITSELF
from harness.core.record import LAYERS, OUTPUTS, CaseRecord, Key, coverage_share
from harness.core.text import Line, count, few, wrapped

NO_LAYERS = (
    "neither names nor scopes nor weights of the file say which of its values is which "
    "of PyTorch's, so only its outputs can be compared; `layers = false` under its "
    "[[shapes]] asks for no more"
)
_ITS_OWN_REFERENCE = (
    "compared with the ONNX file in ONNX Runtime, unoptimised: without PyTorch there "
    "is no float64 run, and no noise floor"
)
_ANOTHER_REFERENCE = (
    "compared with the reference's ONNX file in ONNX Runtime, unoptimised, value by "
    "value of one name: there is no float64 run, and no noise floor"
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


def foreign_words(record: CaseRecord, what: str) -> Iterator[str]:
    """Yield messages: what one check of a foreign model compared, and what not."""
    if not record.foreign or record.failure:
        return
    foreign = record.foreign
    if foreign["by"] == ITSELF:
        yield _ITS_OWN_REFERENCE
    elif foreign["by"] == ANOTHER_FILE:
        yield _of_another_file(foreign)
    elif foreign["by"] == OUTPUTS:
        yield "only its outputs could be compared"
    elif what == LAYERS and (counts := record.coverage or {}).get("computing"):
        reach = (counts["computing"] - counts["unmatched"]) / counts["computing"]
        yield (
            f"lined up by {foreign['by']}, which reach {reach:.0%} of PyTorch's "
            f"values; {coverage_share(record):.1%} of these compared"
        )
        if unpaired := foreign.get("unpaired"):
            yield _alone(unpaired)
    if what == OUTPUTS and foreign["left_out"]:
        yield f"the file has no {', '.join(foreign['left_out'])}"
    if what == OUTPUTS and foreign["extra"]:
        yield f"the file's {', '.join(foreign['extra'])} was compared with nothing"
    if foreign["unfed"]:
        yield f"the file does without {', '.join(foreign['unfed'])}"


def _of_another_file(foreign: Mapping[str, Sequence[str]]) -> str:
    unpaired = foreign.get("unpaired")
    if not unpaired:
        return _ANOTHER_REFERENCE
    has = "has" if len(unpaired) == 1 else "have"
    number = count(len(unpaired), "value")
    return (
        f"{_ANOTHER_REFERENCE}; {number} of the reference {has} no value of that name "
        f"in the file: {few(list(unpaired))}"
    )


def _alone(unpaired: Mapping[str, str]) -> str:
    """Return a message about values that the file lacks, and how to see them."""
    places = list(dict.fromkeys(module or name for name, module in unpaired.items()))
    return (
        f"{count(len(unpaired), 'value')} of PyTorch's found no pair in the file, such "
        f"as {few(places, 2)}: if it was rewritten, take the file from before as well, "
        "by `onnx` in a component of its own with the same `recipe`"
    )


def all_words(record: CaseRecord) -> list[str]:
    """Return the messages of both checks, each once."""
    both = (*foreign_words(record, LAYERS), *foreign_words(record, OUTPUTS))
    return list(dict.fromkeys(both))


def foreign_lines(
    records: Iterable[CaseRecord], names: Mapping[Key, str]
) -> Iterator[Line]:
    """Yield a run's lines about foreign models; similar cases share a line."""
    yield from shared_lines((names[r.key], "; ".join(all_words(r))) for r in records)


def shared_lines(messages: Iterable[tuple[str, str]]) -> Iterator[Line]:
    """Yield each message with the names of its cases; empty ones are left out."""
    alike: dict[str, list[str]] = {}
    for case, words in messages:
        if words:
            alike.setdefault(words, []).append(case)
    for words, cases in alike.items():
        yield from wrapped(f"{few(cases)}: {words}", indent=" ", tone="quiet")
