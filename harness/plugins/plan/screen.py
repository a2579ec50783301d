"""The screen of a plan: sizes and errors, bits, and why a layer keeps its bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.core.settings import near
from harness.core.text import Line, count, few, in_bytes, in_seconds, wrapped
from harness.plugins.plan.place import moved_by
from harness.plugins.plan.run import MOST_CONVERSIONS, Found
from harness.plugins.plan.search import tried
from harness.plugins.plan.text import (
    bits_words,
    by_bits,
    fewer,
    moved_words,
    share_words,
    why,
)
from harness.plugins.plan.times import time_lines

_SHOWN = 5
_NAME = 24


def plan_lines(found: Found) -> Iterator[Line]:
    """Yield sizes and errors of every file, the bits, and what was verified."""
    place = found.place
    where = place.what if place.drawing is None else f"{place.what} of {place.subject}"
    yield Line(text=f" {'':{_NAME}} {'size':>9}   worst of the bound")
    for name, judged in (*found.uniform.items(), (found.variant.name, found.planned)):
        size, worst = in_bytes(judged.size_bytes), judged.worst.verdict
        text = f" {name:<{_NAME}} {size:>9}   {worst.usage:>7.0%}  {worst.reason}"
        yield Line(text=text, tone="" if judged.passed else "quiet")
    yield Line(text="")
    bits = Counter(found.bits)
    words = ", ".join(
        f"{count(bits[number], 'layer')} in {bits_words(number)}"
        for number in sorted(bits)
    )
    yield from wrapped(f"{words}, of {count(len(found.bits), 'layer')}.", indent=" ")
    yield from _largest(found)
    low, high = min(found.additivity.values()), max(found.additivity.values())
    yield from wrapped(
        f"The sum of the layers' single squared errors is {low:.2f} to {high:.2f} of "
        f"the squared error of the whole, over {count(len(found.additivity), 'value')} "
        f"of {where}.",
        indent=" ",
    )
    for words in moved_words(moved_by(found.planned)):
        yield from wrapped(words, indent=" ")
    worst = found.unseen.worst.verdict
    yield from wrapped(
        f"On {count(found.unseen_count, 'input')} that "
        f"the search did not see, the plan uses {worst.usage:.0%} of the bound "
        f"at most ({worst.reason}).",
        indent=" ",
    )
    if found.times is not None:
        yield from time_lines(found.times)
    yield Line(
        text=f" {found.conversions} of {MOST_CONVERSIONS} conversions, "
        f"{in_seconds(found.took_s)}",
        tone="quiet",
    )


def _largest(found: Found) -> Iterator[Line]:
    """Yield the layers with the most bits, those that matter most first."""
    most = max(found.bits)
    kept = [
        layer
        for layer, bits in zip(found.layers, found.bits, strict=True)
        if bits == most > min(layer.costs)
    ]
    if most == min(found.bits) or not kept:
        return
    kept.sort(key=lambda layer: -layer.share(tried(layer.costs)))
    names = [f"{one.name} ({one.share(tried(one.costs)):.0%})" for one in kept]
    numbers = " or ".join(map(bits_words, sorted({tried(one.costs) for one in kept})))
    text = (
        f"In {bits_words(most)}, with the share of the bound that each alone would "
        f"use in {numbers}: {few(names, _SHOWN)}."
    )
    yield from wrapped(text, indent=" ")


def written_lines(paths: Sequence[Path], next_command: str) -> Iterator[Line]:
    """Yield the written files, and the command that tests the new variant."""
    names = ", ".join(near(path) for path in paths)
    yield Line(text=f" wrote {names}")
    yield Line(text=f" next  {next_command}", tone="quiet")


def layer_lines(record: Mapping[str, Any], layer: Mapping[str, Any]) -> Iterator[Line]:
    """Yield why a layer has its bits."""
    name = (layer["modules"] or layer["names"])[0]
    bits = int(layer["bits"])
    yield Line(
        text=f"{name} ({', '.join(layer['names'])}) is stored in {bits_words(bits)}, "
        f"{layer['bytes']:,} bytes."
    )
    shares = by_bits(layer, "shares")
    if not shares:
        yield from wrapped(why(layer), indent=" ")
        return
    number = tried(shares)
    every = sorted(one["shares"].get(str(number), 0.0) for one in record["layers"])
    rank = len(every) - every.index(shares[number])
    yield from wrapped(
        f"In {bits_words(number)} this layer alone would use "
        f"{share_words(shares[number])} "
        f"of the bound of {record['within']}: number {rank} of "
        f"{count(len(every), 'layer')}.",
        indent=" ",
    )
    seconds = by_bits(layer, "seconds")
    if seconds:
        took = [
            f"{1e3 * one:.3g} ms in {bits_words(at)}" for at, one in seconds.items()
        ]
        text = f"In runs of the uniform files it took {', '.join(took)}."
        yield from wrapped(text, indent=" ")
    words = why(layer)
    if fewer(layer) is not None:
        words += (
            f" Elsewhere that much error saves more {'time' if seconds else 'bytes'}, "
            "or the bound is used up."
        )
    yield from wrapped(words, indent=" ")
