"""The screen of a plan: sizes and errors, bits, and why a layer keeps its bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.core.settings import near
from harness.core.text import Line, count, few, in_seconds, wrapped
from harness.plugins.plan.run import MOST_CONVERSIONS
from harness.plugins.plan.search import tried
from harness.plugins.plan.text import (
    Record,
    bits_words,
    by_bits,
    fewer,
    files_table,
    moved_words,
    sentences,
    share_words,
    why,
)
from harness.plugins.plan.times import PlanTimes, time_lines

_SHOWN = 5


def plan_lines(record: Record, times: PlanTimes | None) -> Iterator[Line]:
    """Yield sizes and errors of every file, the bits, and what was verified."""
    yield from files_table(record).lines()
    yield Line(text="")
    layers, added = record["layers"], record["additivity"].values()
    where = " of ".join(filter(None, (record["what"], record["pipeline"])))
    bits = Counter(layer["bits"] for layer in layers)
    words = ", ".join(
        f"{count(bits[number], 'layer')} in {bits_words(number)}"
        for number in sorted(bits)
    )
    sums = (
        "The sum of the layers' single squared errors is "
        f"{min(added):.2f} to {max(added):.2f} of the squared error of the whole, over "
        f"{count(len(added), 'value')} of {where}."
    )
    texts = [
        f"{words}, of {count(len(layers), 'layer')}.",
        _largest(layers),
        sums,
        *moved_words(record["moved"]),
        *sentences(record),
    ]
    for text in filter(None, texts):
        yield from wrapped(text, indent=" ")
    if times is not None:
        yield from time_lines(times)
    yield Line(
        text=f" {record['conversions']} of {MOST_CONVERSIONS} conversions, "
        f"{in_seconds(record['took_s'])}",
        tone="quiet",
    )


def _largest(layers: Sequence[Record]) -> str:
    """Return a sentence about the layers with the most bits, those that matter first.

    It is empty where all layers have them.
    """
    most = max(layer["bits"] for layer in layers)
    alone: dict[str, float] = {}
    numbers: set[int] = set()
    for layer in layers:
        costs = by_bits(layer, "costs")
        if layer["bits"] == most > min(costs):
            numbers.add(number := tried(costs))
            name = (layer["modules"] or layer["names"])[0]
            alone[name] = by_bits(layer, "shares").get(number, 0.0)
    if most == min(layer["bits"] for layer in layers) or not alone:
        return ""
    worst = sorted(alone, key=lambda name: -alone[name])
    names = few([f"{name} ({alone[name]:.0%})" for name in worst], _SHOWN)
    words = " or ".join(map(bits_words, sorted(numbers)))
    return (
        f"In {bits_words(most)}, with the share of the bound that each alone would "
        f"use in {words}: {names}."
    )


def written_lines(paths: Sequence[Path], next_command: str) -> Iterator[Line]:
    """Yield the written files, and the command that tests the new variant."""
    names = ", ".join(near(path) for path in paths)
    yield Line(text=f" wrote {names}")
    yield Line(text=f" next  {next_command}", tone="quiet")


def layer_lines(record: Record, layer: Record) -> Iterator[Line]:
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
