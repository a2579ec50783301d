"""Messages about a foreign model: what was compared, and with which reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.core.case import ANOTHER_FILE, ITSELF
from harness.core.record import LAYERS, OUTPUTS, CaseRecord, coverage_share
from harness.core.text import count, few
from harness.judge.value import JudgedRow

_ITS_OWN_REFERENCE = (
    "compared with the ONNX file in ONNX Runtime, unoptimised: without PyTorch there "
    "is no float64 run, and no noise floor"
)
_ANOTHER_REFERENCE = (
    "compared with the reference's ONNX file in ONNX Runtime, unoptimised, value by "
    "value of one name: there is no float64 run, and no noise floor"
)


def compared(record: CaseRecord, what: str, rows: Sequence[JudgedRow]) -> Iterator[str]:
    """Yield messages: what one check of a foreign model compared, and what not."""
    del rows
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
