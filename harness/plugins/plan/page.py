"""The page of a plan: error against size and time, the network, and why.

It is made from the plan's record alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.core.rounding import FLOAT
from harness.core.runtime import runtime
from harness.core.table import Column, ReportTable
from harness.core.text import count, in_bytes, in_seconds
from harness.plugins.page.charts import LAYOUT, PALETTE, Chart, limit_line, plain
from harness.plugins.page.page import html_of
from harness.plugins.page.section import Section
from harness.plugins.plan.text import (
    ALONE,
    FED_BACK,
    MEBI,
    Record,
    bits_words,
    by_bits,
    files_table,
    moved_words,
    sentences,
    usage_words,
    why,
)

_LONGEST_NUMBER = 10
"""Digits of a step's number; names of values are somebody else's."""

_COSTS = {
    "size_bytes": (MEBI, "file, MB", "MB"),
    "time_ms": (1.0, "a run, ms", "ms"),
}
"""What a file costs: the key of the record, its unit, a title and the unit's name."""

_LEAST_USAGE = 0.01
"""Share of the bound at the foot of a chart: a smaller error is drawn there."""

_KEPT = (
    "The errors of all layers together must stay within the bound. So the search takes "
    "bits away where that saves most bytes for the error."
)
_ADDED = (
    "The search adds up the squared errors of the layers, each rounded alone. The "
    "table has this sum over the squared error of the whole plan: 1 means that errors "
    "add up exactly."
)
_CURVES = {
    ALONE: "Dotted: each step alone, from PyTorch's own latents.",
    FED_BACK: "Solid: errors feed back, as in use.",
}
_TICK_DB = 5
"""Decibels between two marks of the axis on the right."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A layer in the drawing of the network; `words` say what it is."""

    bits: int
    words: str


@dataclass(frozen=True, kw_only=True)
class Blocks(Section):
    """The network: a row for each of its blocks, with a square for each layer.

    Attributes:
        rows: Path of a block and its layers, in the order of the file.
        legend: Number of bits and its meaning.

    """

    template: ClassVar[str] = "blocks.html"

    rows: Mapping[str, Sequence[Block]]
    legend: Mapping[int, str]


@dataclass(frozen=True, kw_only=True)
class PlanPage:
    """The content of the page, from its top to its end."""

    title: str
    sentences: Sequence[str]
    facts: Mapping[str, str]
    sections: Sequence[Section]


def plan_page(record: Record) -> str:
    """Return the page of a plan as HTML, in one file; the record is `parity plan`'s."""
    page = page_of_plan(record)
    return html_of("plan.html", page.sections, page=page)


def page_of_plan(record: Record) -> PlanPage:
    """Return the content of a plan's page."""
    planned = next(f for f in record["files"] if f["name"] == record["variant"])
    bound = (record["within"], record["what"], record["pipeline"])
    return PlanPage(
        title=f"{record['component']}: {in_bytes(planned['size_bytes'])} within the "
        "bound",
        sentences=[*sentences(record)],
        facts={
            "bound": " of ".join(filter(None, dict.fromkeys(bound))),
            "runtime": runtime(record["backend"]).title,
            "variant": f"{record['backend']}/{record['variant']}",
            "search": f"{count(record['conversions'], 'conversion')}, "
            f"{in_seconds(record['took_s'])}",
        },
        sections=[*_sections(record)],
    )


def _sections(record: Record) -> Iterator[Section]:
    yield _choices(record, "size_bytes")
    if any(file.get("time_ms") for file in record["files"]):
        yield _choices(record, "time_ms")
    yield _blocks(record["layers"])
    if kept := [one for one in record["layers"] if one["bits"] == FLOAT]:
        layers = count(len(record["layers"]), "layer")
        yield Section(
            id="kept",
            title=f"Kept in float32: {len(kept):,} of {layers}",
            gist="and why",
            open=True,
            notes=(_KEPT,),
            table=ReportTable(
                id="kept-table",
                caption="Layers in float32, the largest first",
                unit="layer",
                columns=(
                    *_names(kept),
                    Column("KB", [one["bytes"] / 2**10 for one in kept], "number"),
                    Column("why", [why(one) for one in kept]),
                ),
                sort="KB",
            ),
        )
    if FED_BACK in record["moved"]:
        yield _steps(record["moved"])
    yield _added(record["additivity"])
    yield _layers(record["layers"])


def _choices(record: Record, cost: str) -> Section:
    """Return the section of errors against one cost of the files."""
    by_size = cost == "size_bytes"
    files = [one for one in record["files"] if one.get(cost)]
    drawn = [file for file in files if file["usage"] is not None]
    unit, title, _ = _COSTS[cost]
    words = ", ".join(
        f"{file['name']} {file[cost] / unit:.3g}, {usage_words(file)} of the bound"
        for file in files
    )
    front = [one for one in record["front"] if one.get(cost)]
    notes = [
        f"An error below {_LEAST_USAGE:.0%} of the bound is drawn at its foot.",
        "A cross is a file that does not hold the bound.",
    ]
    if front:
        notes.append(
            "The line is what the integer program gives for other bounds. Its errors "
            "are foretold: the sum of the single squared errors."
        )
    return Section(
        id="sizes" if by_size else "times",
        title="Error against size" if by_size else "Error against time",
        gist=f"{count(len(files), 'file')}, with every layer alike and as planned",
        open=True,
        chart=Chart(
            id=f"{'sizes' if by_size else 'times'}-chart",
            figure=_figure(record, drawn, front, cost),
            alt=f"Error against {title}: {words}.",
        ),
        notes=notes,
        table=files_table(record) if by_size else None,
    )


def _figure(
    record: Record, files: Sequence[Record], front: Sequence[Record], cost: str
) -> dict[str, Any]:
    """Return a figure of errors, as shares of the bound, against a cost."""
    from plotly import graph_objects as go

    unit, title, short = _COSTS[cost]

    def points(some: Sequence[Record]) -> dict[str, Any]:
        return {
            "x": [one[cost] / unit for one in some],
            "y": [max(one["usage"], _LEAST_USAGE) for one in some],
        }

    figure = go.Figure()
    if front:
        figure.add_scatter(
            **points(front),
            name="foretold",
            mode="lines+markers",
            line={"width": 1.5, "color": PALETTE[10], "dash": "dot"},
            marker={"size": 4},
            hovertemplate=f"foretold<br>%{{x:.3g}} {short}, %{{y:.3p}}<extra></extra>",
        )
    groups = {
        "every layer alike": [f for f in files if f["name"] != record["variant"]],
        "the plan": [f for f in files if f["name"] == record["variant"]],
    }
    for at, (name, own) in enumerate(groups.items()):
        figure.add_scatter(
            **points(own),
            name=name,
            mode="markers+text",
            text=[one["name"] for one in own],
            textposition="top center",
            customdata=[one["reason"] for one in own],
            marker={
                "size": 12,
                "color": PALETTE[at],
                "symbol": ["circle" if one["passed"] else "x" for one in own],
            },
            hovertemplate=f"%{{text}}<br>%{{x:.3g}} {short}, %{{y:.3p}}<br>"
            "%{customdata}<extra></extra>",
        )
    limit_line(figure, "the bound")
    figure.update_layout(**LAYOUT)
    figure.update_xaxes(title=title, rangemode="tozero")
    figure.update_yaxes(
        title="error, share of the bound", type="log", tickformat="~p", dtick="D2"
    )
    if marks := _decibel_marks(files):
        # The axis is drawn only if a trace has it.
        figure.add_scatter(x=[None], y=[None], yaxis="y2", showlegend=False)
        figure.update_layout(
            margin={**LAYOUT["margin"], "r": 56},
            yaxis2={
                "overlaying": "y",
                "matches": "y",
                "side": "right",
                "type": "log",
                "showgrid": False,
                "title": "PSNR, dB" if record["what"] == "image" else "SQNR, dB",
                "tickvals": [*marks.values()],
                "ticktext": [*map(str, marks)],
            },
        )
    return plain(figure)


def _decibel_marks(files: Sequence[Record]) -> dict[int, float]:
    """Return decibels, and the share of the bound at each; empty if it is in no dB.

    A bound of decibels is the same sum of decibels and error for every file.
    """
    bounds = [
        file["db"] + 20.0 * math.log10(file["usage"])
        for file in files
        if file["db"] is not None and file["usage"]
    ]
    if not bounds or max(bounds) - min(bounds) > 0.1:  # noqa: PLR2004  # decibels
        return {}
    usages = [max(file["usage"], _LEAST_USAGE) for file in files]
    low, high = (
        bounds[0] - 20.0 * math.log10(most) for most in (max(usages), min(usages))
    )
    first = math.ceil(low / _TICK_DB) * _TICK_DB
    marks = range(first, math.floor(high) + 1, _TICK_DB)
    return {db: 10.0 ** ((bounds[0] - db) / 20.0) for db in marks}


def _blocks(layers: Sequence[Record]) -> Blocks:
    rows: dict[str, list[Block]] = {}
    totals: dict[int, list[int]] = {}
    for layer in layers:
        name, bits, size = _name(layer), layer["bits"], layer["bytes"]
        words = f"{name}: {bits_words(bits)}, {in_bytes(size)}"
        rows.setdefault(_block_of(name), []).append(Block(bits=bits, words=words))
        totals.setdefault(bits, []).append(size)
    return Blocks(
        id="network",
        title="The network, by bits",
        gist=f"{count(len(layers), 'layer')} in the order of the file",
        open=True,
        rows=rows,
        legend={
            bits: f"{bits_words(bits)}: {count(len(totals[bits]), 'layer')}, "
            f"{in_bytes(sum(totals[bits]))}"
            for bits in sorted(totals)
        },
    )


def _name(layer: Record) -> str:
    name: str = (layer["modules"] or layer["names"])[0]
    return name


def _block_of(name: str) -> str:
    """Return the block that a module belongs to: its path up to the first number.

    >>> _block_of("up_blocks.3.resnets.1.conv1"), _block_of("time_embedding.linear_1")
    ('up_blocks.3', 'time_embedding')
    >>> _block_of("conv_in")
    'conv_in'
    """
    parts = name.split(".")
    number = next((at for at, one in enumerate(parts) if one.isdigit()), None)
    kept = parts[:-1] if number is None else parts[: number + 1]
    return ".".join(kept) or name


def _names(layers: Sequence[Record]) -> tuple[Column, Column]:
    return (
        Column("layer", [(_name(layer),) for layer in layers], "place"),
        Column(
            "operators",
            [", ".join(layer["names"]) for layer in layers],
            "text",
            "in the deployed file",
            minor=True,
        ),
    )


def _added(additivity: Mapping[str, float]) -> Section:
    ratios = [*additivity.values()]
    return Section(
        id="additivity",
        title="How errors add up",
        gist=f"{min(ratios):.2f} to {max(ratios):.2f} of the whole, over "
        f"{count(len(ratios), 'value')}",
        open=True,
        notes=(_ADDED,),
        table=ReportTable(
            id="additivity-table",
            caption="Values of the search",
            unit="value",
            columns=(
                Column("value", [*map(_value_name, additivity)]),
                Column("sum / whole", ratios, "number", "of squared errors"),
            ),
        ),
    )


def _value_name(name: str) -> str:
    """Return a value's name as people count.

    >>> _value_name("step 02"), _value_name("realistic-0 sample"), _value_name("m 2²")
    ('step 3', 'realistic-0 sample', 'm 2²')
    """
    kind, _, number = name.rpartition(" ")
    counts = number.isdecimal() and len(number) < _LONGEST_NUMBER
    return f"{kind} {int(number) + 1}" if counts else name


def _steps(moved: Mapping[str, Sequence[float]]) -> Section:
    """Return the section of the errors of the latents after each step."""
    from plotly import graph_objects as go

    figure = go.Figure()
    drawn = {name: moved[name] for name in _CURVES if name in moved}
    for name, errors in drawn.items():
        figure.add_scatter(
            x=[*range(1, len(errors) + 1)],
            y=errors,
            name=name,
            mode="lines+markers",
            line={
                "width": 1.5,
                "color": PALETTE[0],
                "dash": "dot" if name == ALONE else "solid",
            },
            hovertemplate="step %{x}<br>SQNR %{y:.1f} dB",
        )
    figure.update_layout(**LAYOUT, showlegend=True)
    marks = math.ceil(len(moved[FED_BACK]) / 20)
    figure.update_xaxes(title="denoising step", dtick=marks)
    # The larger error is above, as in the other charts.
    figure.update_yaxes(title="SQNR, dB", autorange="reversed")
    listed = "; ".join(
        f"{name}: {', '.join(f'{db:.1f}' for db in errors)}"
        for name, errors in drawn.items()
    )
    return Section(
        id="steps",
        title="Steps of denoising",
        gist=" ".join(moved_words(moved)),
        open=True,
        chart=Chart(
            id="steps-chart",
            figure=plain(figure),
            alt=f"SQNR in dB of the latents after each step. {listed}.",
            height=300,
        ),
        notes=(
            *(_CURVES[name] for name in drawn),
            "These are errors of the planned file, relative to the latents.",
        ),
    )


def _layers(layers: Sequence[Record]) -> Section:
    every = sorted({bits for one in layers for bits in by_bits(one, "shares")})
    lowest = every[0]
    return Section(
        id="layers",
        title="Every layer",
        gist=f"{count(len(layers), 'layer')}, to sort and filter",
        table=ReportTable(
            id="layers-table",
            caption="Every layer, and the share of the bound that it uses alone",
            unit="layer",
            columns=(
                *_names(layers),
                Column("bits", [bits_words(layer["bits"]) for layer in layers]),
                Column("KB", [layer["bytes"] / 2**10 for layer in layers], "number"),
                Column(
                    f"alone in {bits_words(lowest)}",
                    [by_bits(layer, "shares").get(lowest) for layer in layers],
                    "percent",
                    "share of the bound, of squared errors",
                ),
                Column(
                    "alone as planned",
                    [by_bits(layer, "shares").get(layer["bits"]) for layer in layers],
                    "percent",
                    "share of the bound, of squared errors",
                    minor=True,
                ),
            ),
            sort=f"alone in {bits_words(lowest)}",
        ),
    )
