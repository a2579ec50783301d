"""Draw many pictures, each from a pair of prompt and seed, until a verdict is clear.

PyTorch and the candidate get the same token ids and the same noise. PyTorch's pictures
are stored, so every candidate after the first draws its own pictures only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.case import Device
from harness.core.end_to_end import PAIRS
from harness.core.errors import StageError, StoreError
from harness.core.outcome import Outcome
from harness.core.received import DamagedError
from harness.engine.store import Store
from harness.measure.pictures import eight_bits, png, side_by_side
from harness.measure.received_arrays import Arrays
from harness.plugins.pictures.distribution import READ, Conclusion, verdict_of, worst_of
from harness.plugins.pipelines.case import Pipeline
from harness.plugins.pipelines.drawing.draw import (
    PipelineParts,
    app_parts,
    assemble,
    draw,
)
from harness.plugins.pipelines.drawing.inputs import (
    PipelineInputs,
    draw_inputs,
    load_inputs,
    save_inputs,
)
from harness.plugins.pipelines.drawing.measure import Reader, read_picture, reader_of
from harness.plugins.pipelines.drawing.metrics import Metric, metrics_of
from harness.plugins.pipelines.drawing.networks import Network, Residents
from harness.plugins.pipelines.drawing.reference import self_networks, torch_networks
from harness.plugins.pipelines.entries import DRAWING_INPUTS, DRAWN_PAIRS
from harness.plugins.pipelines.keys import drawing_inputs

_WORST = 6
"""Number of pairs whose pictures are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """PyTorch's pictures of a few pairs.

    Attributes:
        inputs: Token ids and noise.
        expected: Pictures in float32 ``[batch, height, width, 3]``, 0 to 255.
        yardstick: Pictures of the model's own bfloat16 or float16; None without one.

    """

    inputs: PipelineInputs
    expected: np.ndarray
    yardstick: np.ndarray | None


def compare_pairs(
    pipeline: Pipeline,
    inputs: PipelineInputs,
    candidates: Mapping[str, Network],
    *,
    store: Store,
    device: Device,
    residents: Residents,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Draw pairs until the verdict is clear, or until all are drawn.

    `inputs` has the picture that each pair begins with. `candidates` has the networks
    of deployed files in some roles; PyTorch has the others. `store` keeps PyTorch's
    pictures, and `say` gets each progress message.

    Returns:
        The errors of every pair, as a record has them; and file name to PNG of the
        worst pairs, the worst first.

    Raises:
        StageError: A runtime, a metric or the reader fails.

    """
    names = [name for name, _ in pipeline.margins]
    metrics = metrics_of(name for name in names if name != READ)
    # The model's own errors are the limits where the suite states none.
    stated = {name: limit for name, limit in pipeline.margins if name != READ}
    reader = reader_of(pipeline.reader)
    networks = {**torch_networks(pipeline, residents, device), **candidates}
    found: dict[str, Any] = {
        "by": pipeline.yardstick,
        "margins": dict(pipeline.margins),
        "planned": pipeline.seeds,
        "prompts": [],
        "seeds": [],
        "losses": {name: [] for name in names},
        "limits": {name: [] for name in stated},
    }
    shown: dict[int, tuple[np.ndarray, float]] = {}
    at_once = len(pipeline.texts)  # a file may accept this batch alone
    every = pipeline.pairs
    for start in range(0, len(every), at_once):
        batch = every[start : start + at_once]
        say(f"pair {start + 1} of {pipeline.seeds}")
        pairs = (*batch, *[batch[0]] * (at_once - len(batch)))
        drawn = _reference(pairs, inputs, store, device, residents)
        told = _together(pairs)
        pipe = assemble(told, drawn.inputs, app_parts(told, networks, candidates))
        guided = told.app.guidance_scale
        pictures = draw(pipe, told, drawn.inputs, guidance_scale=guided)
        for index, pair in enumerate(batch):
            expected, actual = drawn.expected[index], pictures[index]
            prompt = pair.prompts[0]
            found["prompts"].append(prompt)
            found["seeds"].append(pair.seed)
            for name, metric in metrics.items():
                limit = stated[name]
                if limit is None:
                    assert drawn.yardstick is not None  # noqa: S101  # it was drawn
                    limit = _loss(metric, expected, drawn.yardstick[index])
                    _check_limit(limit, pipeline, pair)
                found["losses"][name].append(_loss(metric, expected, actual))
                found["limits"][name].append(limit)
            if reader is not None:
                read = partial(_read, reader, pipeline, prompt, pair.seed)
                found["losses"][READ].append(float(read(expected) != read(actual)))
            shown[start + index] = side_by_side(expected, actual)
        found["worst"] = worst_of(found)[:_WORST]
        shown = {index: shown[index] for index in found["worst"]}
        if verdict_of(found) is not Conclusion.OPEN:
            break
    return found, {
        f"seed-{found['seeds'][index]}-difference-x{amplified:g}.png": png(picture)
        for index, (picture, amplified) in shown.items()
    }


def _check_limit(limit: float, pipeline: Pipeline, pair: Pipeline) -> None:
    if not math.isfinite(limit):
        msg = (
            f"PyTorch's own {pipeline.yardstick} draws no finite picture of "
            f"{pair.texts[0]!r} with seed {pair.seed}, so it is no limit; give another "
            "`margin`."
        )
        raise StageError(msg, outcome=Outcome.REFERENCE)


def _reference(
    pairs: Sequence[Pipeline],
    inputs: PipelineInputs,
    store: Store,
    device: Device,
    residents: Residents,
) -> Drawn:
    """Return PyTorch's pictures of a batch of pairs; draw them if they are new."""
    together = _together(pairs)
    seeds = [pair.seed for pair in pairs]

    def build_inputs(folder: Path) -> Mapping[str, object]:
        every = [draw_inputs(pair) for pair in pairs]
        ids = {
            role: {text: ids for one in every for text, ids in one.ids[role].items()}
            for role in together.encoders
        }
        noise = np.concatenate([one.noise for one in every], axis=1)
        return save_inputs(replace(inputs, ids=ids, noise=noise), folder)

    def build(folder: Path) -> Mapping[str, object]:
        own = torch_networks(together, residents, device)
        parts = PipelineParts(networks=own, sampling=together.sampling)
        stored = load_inputs(entry.path, texts)
        made: dict[str, Any] = {
            "expected": draw(assemble(together, stored, parts), together, stored)
        }
        if together.yardstick:
            low = self_networks(together, residents, device, together.yardstick)
            parts = replace(parts, networks=low)
            pipe = assemble(together, stored, parts)
            made["yardstick"] = draw(pipe, together, stored)
        np.savez(folder / "pictures.npz", allow_pickle=False, **made)
        return {}

    pictures = {**drawing_inputs(together), "seeds": seeds, "check": PAIRS}
    entry = DRAWING_INPUTS.make(store, build_inputs, pictures)
    texts: Any = entry.meta["texts"]
    drawn = DRAWN_PAIRS.make(store, build, together, entry, device, together.yardstick)
    try:
        with Arrays(drawn.file("pictures.npz")) as arrays:
            expected, yardstick = arrays["expected"], arrays.get("yardstick")
    except (OSError, DamagedError, KeyError) as error:
        msg = f"{drawn.path} holds no readable pictures: {error}. "
        raise StoreError(msg + "Run `parity store verify`.") from error
    return Drawn(
        inputs=load_inputs(entry.path, texts), expected=expected, yardstick=yardstick
    )


def _together(pairs: Sequence[Pipeline]) -> Pipeline:
    return replace(pairs[0], prompts=tuple(pair.prompts[0] for pair in pairs))


def _loss(metric: Metric, expected: np.ndarray, actual: np.ndarray) -> float:
    """Return the error of a picture; NaN, which counts as worse, if it is broken."""
    return metric(expected, actual) if np.isfinite(actual).all() else math.nan


def _read(
    reader: Reader, pipeline: Pipeline, prompt: str, seed: int, picture: np.ndarray
) -> str:
    named = f"the picture of seed {seed} ({prompt!r})"
    return read_picture(reader, pipeline.reader, named, eight_bits(picture))
