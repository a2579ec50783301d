"""The screen of a plan: sizes and errors, bits, and why a layer keeps its bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.commands.plan.place import JudgedFile
from harness.commands.plan.run import MOST_CONVERSIONS, Found
from harness.commands.plan.times import bits_words, time_lines
from harness.core.settings import near
from harness.core.text import Line, count, few, in_bytes, in_seconds, wrapped

_SHOWN = 5
_NAME = 24


def plan_lines(found: Found) -> Iterator[Line]:
    """Yield sizes and errors of every file, the bits, and what was verified."""
    place = found.place
    where = place.what if place.drawing is None else f"{place.what} of "
    where += "" if place.drawing is None else place.drawing.subject
    yield Line(text=f" {'':{_NAME}} {'size':>9}   worst of the bound")
    for name, judged in (*found.uniform.items(), (found.variant.name, found.planned)):
        yield _file_line(name, judged)
    yield Line(text="")
    bits = Counter(found.bits)
    words = ", ".join(
        f"{count(bits[number], 'layer')} in {bits_words(number)}"
        for number in sorted(bits)
    )
    yield from wrapped(f"{words}, of {count(len(found.bits), 'layer')}.", indent=" ")
    yield from _largest(found)
    low, high = min(found.additivity), max(found.additivity)
    yield from wrapped(
        f"The sum of the layers' single squared errors is {low:.2f} to {high:.2f} of "
        f"the squared error of the whole, over {count(len(found.additivity), 'value')} "
        f"of {where}.",
        indent=" ",
    )
    worst = found.unseen.worst
    yield from wrapped(
        f"On {count(found.unseen_count, 'input')} that "
        f"the search did not see, the plan uses {worst.verdict.usage:.0%} of the bound "
        f"at most ({worst.verdict.reason}).",
        indent=" ",
    )
    if found.times is not None:
        yield from time_lines(found.times)
    yield Line(
        text=f" {found.conversions} of {MOST_CONVERSIONS} conversions, "
        f"{in_seconds(found.took_s)}",
        tone="quiet",
    )


def _file_line(name: str, judged: JudgedFile) -> Line:
    worst = judged.worst
    text = (
        f" {name:<{_NAME}} {in_bytes(judged.size_bytes):>9}   "
        f"{worst.verdict.usage:>7.0%}  {worst.verdict.reason}"
    )
    return Line(text=text, tone="" if judged.passed else "quiet")


def _largest(found: Found) -> Iterator[Line]:
    """Yield the layers with the most bits, those that matter most first."""
    most = max(found.bits)
    if most == min(found.bits):
        return
    lowest = min(bits for bits in found.layers[0].costs)
    kept = [
        layer
        for layer, bits in zip(found.layers, found.bits, strict=True)
        if bits == most
    ]
    kept.sort(key=lambda layer: -layer.share(lowest))
    names = [f"{one.name} ({one.share(lowest):.0%})" for one in kept]
    text = (
        f"In {bits_words(most)}, with the share of the bound that each alone would "
        f"use in {lowest} bits: {few(names, _SHOWN)}."
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
    shares = {int(number): share for number, share in layer["shares"].items()}
    if not shares:
        why = (
            "With the fewest bits a value is no longer finite"
            if layer["modules"]
            else "The converter changed these weights, so they are none of PyTorch's, "
            "and what rounding does to them was not measured"
        )
        yield from wrapped(f"{why}: the layer stays in float32.", indent=" ")
        return
    lowest = min(shares)
    every = sorted(
        (max(map(float, one["shares"].values()), default=0.0))
        for one in record["layers"]
    )
    rank = len(every) - every.index(max(shares.values()))
    yield from wrapped(
        f"With {lowest} bits this layer alone would use {_share(shares[lowest])} of "
        f"the bound of {record['within']}: number {rank} of "
        f"{count(len(every), 'layer')}.",
        indent=" ",
    )
    seconds = {int(number): took for number, took in layer.get("seconds", {}).items()}
    if seconds:
        took = [
            f"{1e3 * one:.3g} ms in {bits_words(at)}" for at, one in seconds.items()
        ]
        text = f"In runs of the uniform files it took {', '.join(took)}."
        yield from wrapped(text, indent=" ")
    below = max((n for n in seconds or shares if n < bits), default=None)
    if below is None:
        yield Line(text=" The plan has no fewer bits to give.")
        return
    if seconds and seconds[below] >= seconds[bits]:
        yield Line(text=f" It is not faster with {bits_words(below)}.")
        return
    saved = f"{layer['costs'][str(bits)] - layer['costs'][str(below)]:,} bytes smaller"
    if seconds:
        saved = f"{1e3 * (seconds[bits] - seconds[below]):.3g} ms faster"
    more = shares[below] - shares.get(bits, 0.0)
    yield from wrapped(
        f"With {below} in place of {bits_words(bits)} it would be {saved} "
        f"and use {_share(more)} more of the bound. Elsewhere that much error "
        f"saves more {'time' if seconds else 'bytes'}, or the bound is used up.",
        indent=" ",
    )


def _share(value: float) -> str:
    return f"{100 * value:.3g} %"
