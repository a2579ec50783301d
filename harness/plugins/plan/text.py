"""The record of a plan, in words that the screen and the page share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.core.rounding import FLOAT, HALF
from harness.core.table import Column, ReportTable
from harness.core.text import count, share
from harness.plugins.pictures.words import CURVES

ALONE, FED_BACK = CURVES
"""Kinds of steps: each alone, from PyTorch's own latents, and with errors fed back."""

PICTURE = "picture"
MEBI = 2**20

Record = Mapping[str, Any]
"""The record of a plan, as `keep.record_of` makes it."""


def bits_words(bits: int) -> str:
    """Return a number of bits as a phrase.

    >>> bits_words(4), bits_words(16), bits_words(32)
    ('4 bits', 'float16', 'float32')
    """
    return {FLOAT: "float32", HALF: "float16"}.get(bits, f"{bits} bits")


def share_words(share: float) -> str:
    """Return a share of a bound in percent, with three digits.

    >>> share_words(0.04182), share_words(38.27)
    ('4.18 %', '3,830 %')
    """
    rounded = float(f"{100 * share:.3g}")
    return f"{rounded:,.0f} %" if rounded >= 100 else f"{rounded:g} %"  # noqa: PLR2004


def usage_words(file: Record) -> str:
    """Return how much of the bound a file uses."""
    return "more than any number" if file["usage"] is None else share(file["usage"])


def files_table(record: Record) -> ReportTable:
    """Return a table of every file of a plan."""
    files = record["files"]
    columns = [
        Column("file", [file["name"] for file in files]),
        Column("MB", [file["size_bytes"] / MEBI for file in files], "number"),
        Column("of the bound", [file["usage"] for file in files], "percent"),
        Column("worst value", [file["reason"] for file in files]),
    ]
    if any(file.get("time_ms") for file in files):
        times = [file.get("time_ms") for file in files]
        columns.insert(2, Column("ms", times, "number", "a run"))
    return ReportTable(
        id="files-table",
        caption="Every file",
        unit="file",
        columns=columns,
        tones=["" if file["passed"] else "quiet" for file in files],
    )


def sentences(record: Record) -> Iterator[str]:
    """Yield how much of the bound the plan uses, also on inputs not searched."""
    planned = next(f for f in record["files"] if f["name"] == record["variant"])
    unseen = record["unseen"]
    yield f"It uses {usage_words(planned)} of the bound: {planned['reason']}."
    inputs = f"On {count(unseen['count'], 'input')} that the search did not see"
    yield f"{inputs}: {usage_words(unseen)}, {unseen['reason']}."


def by_bits(layer: Mapping[str, Any], name: str) -> dict[int, float]:
    """Return what a layer of the record has for each number of bits, a text in JSON.

    It is the ``shares`` of the bound that the layer alone uses, its ``costs`` in bytes,
    or its ``seconds``, which are absent unless the plan is to be fast.
    """
    return {int(bits): value for bits, value in layer.get(name, {}).items()}


def fewer(layer: Mapping[str, Any]) -> int | None:
    """Return the next lower number of bits of a layer, or None if it saves nothing."""
    bits, shares = int(layer["bits"]), by_bits(layer, "shares")
    prices = by_bits(layer, "seconds") or by_bits(layer, "costs")
    below = max(
        (price for price in prices if price < bits and price in shares), default=bits
    )
    return below if prices[below] < prices[bits] else None


def why(layer: Mapping[str, Any]) -> str:
    """Return a sentence that says why a layer has its bits and not fewer."""
    bits, shares = int(layer["bits"]), by_bits(layer, "shares")
    if not shares and layer["modules"]:
        return (
            "With the fewest bits a value is no longer finite, so the layer stays in "
            "float32."
        )
    if not shares:
        return (
            "The converter changed these weights, so they are none of PyTorch's, and "
            "what rounding does to them was not measured: the layer stays in float32."
        )
    below, seconds = fewer(layer), by_bits(layer, "seconds")
    if below is None:
        slower = max((second for second in seconds if second < bits), default=None)
        if slower is not None:
            return f"It is not faster with {bits_words(slower)}."
        return "The plan has no fewer bits to give."
    costs = by_bits(layer, "costs")
    saved = f"{costs[bits] - costs[below]:,} bytes smaller"
    if seconds:
        saved = f"{1e3 * (seconds[bits] - seconds[below]):.3g} ms faster"
    more = shares[below] - shares.get(bits, 0.0)
    return (
        f"In {bits_words(below)} in place of {bits_words(bits)} it would be {saved} "
        f"and use {share_words(more)} more of the bound."
    )


def moved_words(moved: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Yield which step of denoising, and which picture, a plan moves most.

    `moved` has decibels of the plan's error, for each kind of values in order. A role
    that runs before the first step moves no step alone.

    >>> print(*moved_words({ALONE: [40.0, 30.0], "picture": [33.3]}))
    Rounding moves step 2 of 2 most (SQNR 30.0 dB), and step 1 least (40.0 dB).
    """
    steps = moved.get(ALONE) or moved.get(FED_BACK, ())
    pictures = moved.get(PICTURE, ())
    for noun, metric, errors in (
        ("step", "SQNR", steps),
        ("picture", "PSNR", pictures),
    ):
        low, high = min(errors, default=0.0), max(errors, default=0.0)
        if low < high:
            yield (
                f"Rounding moves {noun} {errors.index(low) + 1} of {len(errors)} most "
                f"({metric} {low:.1f} dB), and {noun} {errors.index(high) + 1} least "
                f"({high:.1f} dB)."
            )
