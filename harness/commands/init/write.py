"""Write the first suite for a checkpoint: parity.toml, tolerances and a pytest file.

Reads configurations only; the files are for people to edit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from textwrap import wrap
from typing import Final

from harness.commands.init.files import refuse_written, write_files
from harness.commands.init.found import sort_components, without_weights
from harness.commands.init.onnx_files import (
    converted_alone,
    files_of_others,
    suite_of_files,
    tolerances_of_files,
)
from harness.commands.init.text import noted, path_from
from harness.commands.init.tolerances import tolerances_text
from harness.commands.init.variants import backend_tables, variant_tables
from harness.core.case import Component, Source
from harness.core.errors import SuiteError
from harness.recipes.checkpoint import read_config
from harness.recipes.diffusion.transformer import class_of
from harness.recipes.diffusion.vae import factor
from harness.recipes.named import untested
from harness.recipes.text.encoder import DEPLOYED, is_encoder, longest
from harness.suite.families import kinds_of
from harness.suite.inpaint import is_fed
from harness.suite.pipelines import vae_factor
from harness.suite.tables import symbols_of

LARGE: Final = 32
"""Latents wider than this are compared layer by layer at a smaller size."""

TOKENS: Final[Mapping[str, int]] = {"text_tokens": 333, "tokens": 256}
"""Tokens of a prompt: T5's of Stable Diffusion 3, and with CLIP's what reaches it."""

_NOT_BY_DYNAMO = ("PixArtTransformer2DModel",)
"""Transformers of which dynamo (torch 2.13) writes a file that no runtime takes."""

_LINE = 88


def write_suite(
    checkpoint: Path,
    folder: Path,
    *,
    force: bool = False,
    on_notice: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Write a noted suite for `checkpoint` into `folder`; return the files.

    All of them or none: they are written under other names first, and then renamed.

    Args:
        checkpoint: Of diffusers or transformers, or a folder of ONNX files.
        folder: Where to write.
        force: Write over what is there.
        on_notice: Told what a user would not expect of the suite.

    Raises:
        SuiteError: `checkpoint` is no folder of diffusers or transformers and has no
            ONNX files, lacks a part that it names, a file is there already and `force`
            is not given, or the folder cannot be written to.

    """
    _refuse_missing(checkpoint)
    notices: list[str] = []
    if files := files_of_others(checkpoint):
        suite = suite_of_files(checkpoint, files, folder)
        tolerances = tolerances_of_files(files)
    elif owner := converted_alone(checkpoint):
        msg = (
            f"{checkpoint} has {owner.title} files alone, and nothing to hold them "
            "against: put the ONNX file that each was made from beside it, under the "
            f'same name, or give the checkpoint and write `{owner.reads} = "path"` '
            "under its [component.*]."
        )
        raise SuiteError(msg)
    else:
        known, unknown = sort_components(Source(path=checkpoint))
        drawn = without_weights(checkpoint, known)
        suite = suite_text(checkpoint, folder, known, unknown, drawn=drawn)
        tolerances = tolerances_text(known, _largest_group(checkpoint, known))
        notices += [f"left out {name}: {why}" for name, why in unknown.items()]
        if beside := untested(Source(path=checkpoint)):
            notices.append(f"not tested: {', '.join(beside)}; no recipe is for them")
        if drawn:
            notices.append(
                f"{checkpoint} has no weights: they will be drawn from seed 0"
            )
    # Last: what is wrong with the checkpoint is not mended by --force.
    refuse_written(folder, force=force)
    written = write_files(folder, suite, tolerances)
    for notice in notices:
        on_notice(notice)
    return written


def _refuse_missing(checkpoint: Path) -> None:
    """Refuse a checkpoint that is not there; what looks like a hub id gets a hint."""
    if checkpoint.exists():
        return
    hub = checkpoint.as_posix()
    msg = f"There is no checkpoint at {hub}: no such folder."
    if re.fullmatch(r"\w[\w.-]*/[\w.-]+", hub):
        msg += (
            " For the one of that name on the Hugging Face hub, write "
            f'`hub = "{hub}"` under [source] of a parity.toml, or download it and give '
            "its folder."
        )
    raise SuiteError(msg)


def suite_text(
    checkpoint: Path,
    folder: Path,
    known: Mapping[str, Component],
    unknown: Mapping[str, str],
    *,
    drawn: bool,
) -> str:
    """Return parity.toml for a checkpoint, as it stands in `folder`."""
    source = Source(path=checkpoint)
    names = tuple(known)
    symbols = symbols_of(*known.values())
    size = _latent_size(source, names)
    # A transformer's positions are of one size, and so is what is exported of it.
    large = size > LARGE and "height" in symbols and "transformer" not in names
    encoder = is_encoder(source)
    paragraphs = [
        [
            "# What is tested, and how. `parity run` and `pytest -m parity` run it.",
            "# Only [source], [[shapes]] and a [backend.*] must be here.",
        ],
        [
            noted("components = [", "left out: all that the checkpoint has"),
            *(f"  {json.dumps(name)}," for name in names),
            *_left_out(unknown),
            "]",
        ],
        _source(checkpoint, folder, drawn=drawn),
        *(
            _text(symbols, longest(source))
            if encoder
            else [_export(symbols, large=large)]
        ),
        *([] if encoder else _shapes(symbols, size)),
        [
            "[inputs]",
            noted('profiles = ["realistic"]', "of a variant that names none itself"),
            noted("realistic = 4", "they step through timesteps and [[shapes]]"),
            "seed = 0",
            noted(
                "more_sizes = true",
                "open axes at other sizes too, outputs only",
            ),
        ],
        *backend_tables(names),
        *variant_tables(),
        *_own(source, names),
        *_pipelines(source, names, size),
        [
            "[limits]",
            noted("timeout_s = 900", "of one stage of one case"),
            *_coverage(names),
            noted(f"jobs = {1 if large else 2}", "cases in progress at once"),
            noted("# memory_gib = 16", "what stages may take; else what there is"),
        ],
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs) + "\n"


def _left_out(unknown: Mapping[str, str]) -> list[str]:
    """Return a comment on each component that no recipe could describe."""
    return [
        line
        for name, why in unknown.items()
        for line in wrap(
            f'"{name}" is left out: {why}',
            width=_LINE,
            initial_indent="  # ",
            subsequent_indent="  # ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def _source(checkpoint: Path, folder: Path, *, drawn: bool) -> list[str]:
    where = json.dumps(path_from(folder, checkpoint), ensure_ascii=False)
    # A folder of configurations alone can be tested with weights drawn at random.
    if drawn:
        seed = noted("seed = 0", "weights are drawn at random: there are none")
    else:
        seed = noted("# seed = 0", "would draw weights at random instead")
    return ["[source]", f"checkpoint = {where}", seed]


def _export(symbols: Iterable[str], *, large: bool) -> list[str]:
    axes = [symbol for symbol in symbols if large or symbol == "batch"]
    return [
        "[export]",
        noted('exporter = "dynamo"', 'or "torchscript"'),
        "opset = 18",
        "# Sizes left open in the graph; the others are baked in. [] bakes in all.",
        f"dynamic_axes = {json.dumps(axes)}",
        noted(
            f"external_data = {str(large).lower()}",
            "weights in a file of their own, also below 2 GB",
        ),
    ]


def _text(symbols: Iterable[str], most: int | None) -> list[list[str]]:
    """Return how encoders are exported: one graph for every batch and length."""
    lengths = {3: 32, 1: 7, 2: 65}
    sizes = [(batch, min(n, most or n)) for batch, n in lengths.items()]
    return [
        [
            "[export]",
            "# Of torchscript's graphs MNN 3.6.1 gets the linear layer after attention",
            '# wrong in most files that it writes; of those of "dynamo" it does not.',
            noted('exporter = "dynamo"', f'or "{DEPLOYED.exporter}", as txtai exports'),
            noted("opset = 18", f"torchscript takes {DEPLOYED.opset} to 17 as well"),
            f"dynamic_axes = {json.dumps(list(symbols))}",
            "# Of the exported copy; the reference keeps its own. The default, sdpa,",
            "# exports the operator IsNaN, which MNN does not have.",
            f'attention = "{DEPLOYED.attention}"',
        ],
        *(
            [
                noted("[[shapes]]", "tokens of a text, cut or padded"),
                f"batch = {batch}",
                f"tokens = {tokens}",
            ]
            for batch, tokens in sizes
        ),
    ]


def _shapes(symbols: Iterable[str], size: int) -> list[list[str]]:
    """Return one item and two, at sizes whose layers fit into memory."""
    spatial = [symbol for symbol in symbols if symbol != "batch"]
    large = size > LARGE and bool(spatial)
    # Not square, so that no axis can pass for the other.
    small = {"height": LARGE, "width": LARGE * 3 // 2} if large else {}
    one = [noted("[[shapes]]", "height and width are of the latents"), "batch = 1"]
    tokens = {**TOKENS, "image_tokens": (size // 2) ** 2}
    one += [f"{s} = {tokens.get(s, small.get(s, size))}" for s in spatial]
    two = [
        noted("[[shapes]]", "two items, which a runtime can mix up"),
        "batch = 2",
    ]
    two += [f"{symbol} = {tokens.get(symbol, size)}" for symbol in spatial]
    if large:
        two.append(noted("layers = false", "outputs only: layers would take gigabytes"))
    return [one, two]


def _own(source: Source, names: Collection[str]) -> list[list[str]]:
    tables = [
        [
            f"[component.{name}]",
            "# Of the exported copy; the reference keeps its own. The default, sdpa,",
            "# exports the operator IsNaN, which MNN does not have.",
            'attention = "eager"',
        ]
        for name in names
        if name in {"text_encoder", "text_encoder_2"}
    ]
    if "transformer" in names and class_of(source) in _NOT_BY_DYNAMO:
        tables.append(
            [
                "[component.transformer]",
                "# Of a squeeze that changes nothing dynamo makes an operator Squeeze,",
                "# which no runtime takes. Open axes would leave an If in the graph.",
                'exporter = "torchscript"',
                "opset = 17",
                "dynamic_axes = []",
            ]
        )
    return tables


def _pipelines(source: Source, names: Collection[str], size: int) -> list[list[str]]:
    """Return a picture from each kind of pipeline that the components make."""
    found: list[list[str]] = []
    for kind, seats in kinds_of(source).items():
        if not (all(seat in names for seat in seats) and is_fed(kind, source)):
            continue
        pixels = size * vae_factor(source)
        controlled = kind == "controlnet"
        head = f"[pipeline.{'canny' if controlled else kind}]"
        lines = [
            noted(head, "a whole picture, step by step"),
            'prompts = ["a photo of an astronaut riding a horse on mars"]',
            *(
                [
                    'kind = "controlnet"',
                    noted(f"resolution = {pixels}", "of the hint's shorter side"),
                    noted('# image = "picture.png"', "left out: one is drawn"),
                ]
                if controlled
                else [f"height = {pixels}", f"width = {pixels}"]
            ),
            noted("steps = 10", "with the checkpoint's scheduler, or `scheduler`"),
            noted('variants = ["fp32"]', "left out: all that are listed above"),
        ]
        found.append(lines)
    return found


def _coverage(names: Collection[str]) -> list[str]:
    if {"transformer", "t5_encoder"} & set(names):
        return [
            "# Least share of computing operators to compare. MNN computes an RMSNorm,",
            "# five operators of a transformer, as one, whose result is compared.",
            "coverage = 0.6",
        ]
    return [noted("coverage = 0.95", "least share of computing operators to compare")]


def _largest_group(checkpoint: Path, names: Collection[str]) -> int:
    """Return how many values the first GroupNorm of a VAE's encoder takes a mean of."""
    if "vae_encoder" not in names:
        return 0
    source = Source(path=checkpoint)
    config = read_config(source, "vae")
    stages, groups = config.get("block_out_channels"), config.get("norm_num_groups")
    if not (stages and groups):  # AutoencoderTiny normalises nothing
        return 0
    pixels, size = factor(config), _latent_size(source, names)
    # As `_shapes` has them: of large pictures, layers are compared on a part.
    area = LARGE * LARGE * 3 // 2 if size > LARGE else size * size
    return int(stages[0] // groups * area * pixels**2)


def _latent_size(source: Source, names: Iterable[str]) -> int:
    if "unet" in names:
        return _first(read_config(source, "unet").get("sample_size"), 64)
    if "transformer" in names:
        config = read_config(source, "transformer")
        return min(LARGE, _first(config.get("sample_size"), LARGE))
    if "vae_decoder" in names:
        config = read_config(source, "vae")
        return max(1, _first(config.get("sample_size"), 256) // factor(config))
    return 16


def _first(size: object, default: int) -> int:
    """Return a size that diffusers writes as a number, a pair, or not at all."""
    if isinstance(size, list) and size:
        size = size[0]
    return size if isinstance(size, int) else default
