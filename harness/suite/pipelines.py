"""Read ``[pipeline.*]`` of parity.toml: what is drawn, and by whom.

[pipeline.text2img]            # `kind` where the name says nothing of it
prompts = ["a seven in red ink on white paper"]
steps = 10
guidance_scale = 3.0
scheduler = "ddim"             # left out: the checkpoint's own
variants = ["fp32"]            # left out: all
mixed = ["pytorch", "onnxruntime/fp32", "mnn/fp32"]    # every chain of these
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from harness.core.case import (
    REFERENCE,
    Case,
    Component,
    Sample,
    Source,
)
from harness.core.errors import SpecError, SuiteError
from harness.core.pipeline import (
    DENOISING,
    FAMILIES,
    INPAINT,
    KINDS,
    MIXED,
    SCHEDULERS,
    SD3,
    T5_TOKENS,
    App,
    Chain,
    Control,
    Pipeline,
    Sampling,
)
from harness.core.toml_file import Table
from harness.recipes import RECIPES
from harness.recipes.checkpoint import read_config
from harness.recipes.diffusion.transformer_sd3 import CLIP_TOKENS
from harness.recipes.diffusion.vae import factor as pixels_per_latent
from harness.suite.families import class_of, family_of, fitted_size, kinds_of
from harness.suite.inpaint import check_channels, read_picture
from harness.suite.mixtures import mixture_name, mixtures
from harness.suite.sampling import check_flow, read_sampling, scheduler_of
from harness.suite.tables import Planned, read_count, read_words

Kin = Callable[[str], Case]
"""A case of the component that takes a seat, which shares its exported graph."""

_ORIENTATION = 0x0112
_LYING = (5, 6, 7, 8)
"""Values of that Exif tag in pictures that are shown turned by a quarter."""


def read_chains(
    table: Table,
    source: Source,
    kin: Kin,
    planned: Sequence[Planned],
    components: Collection[str],
) -> tuple[Chain, ...]:
    """Read every pipeline, and return its chains in file order.

    A pipeline may not be called as one of the `components`: their ids would be equal.

    Raises:
        SuiteError: Something in it is wrong; names file and line.

    """
    chains: list[Chain] = []
    for name, inner in table.children():
        if name in {*RECIPES, *components}:
            text = f"{name!r} is a component, and ids must differ; take another name."
            raise inner.error(text)
        chains += _chains(name, inner, source, kin, planned)
    return tuple(chains)


def _chains(
    name: str, table: Table, source: Source, kin: Kin, planned: Sequence[Planned]
) -> Iterator[Chain]:
    kind = table.choice("kind", tuple(KINDS), name if name in KINDS else "")
    if not kind:
        text = f"{name!r} is no kind of pipeline; give `kind`, one of {tuple(KINDS)}."
        raise table.error(text)
    family = kinds_of(source)
    if not family:
        known = ", ".join(f"{name}Pipeline" for name in FAMILIES)
        text = (
            f"{kind!r} is not drawn with a {class_of(source)}, which model_index.json "
            f"names, yet; there are {known}. Without this table its components are "
            "tested all the same."
        )
        raise table.error(text)
    if kind not in family:
        text = (
            f"{kind!r} is not drawn with a {family_of(source)} checkpoint yet; "
            f"there {'is' if len(family) == 1 else 'are'} {', '.join(family)}."
        )
        raise table.error(text)
    try:
        cases = {seat: kin(seat) for seat in family[kind]}
    except SuiteError as error:
        raise table.error(str(error)) from None
    pipeline = _pipeline(name, kind, table, source, cases)
    names = tuple(dict.fromkeys(plan.variant.name for plan in planned))
    wanted = read_words(table, "variants", names, names)
    by_name = {f"{p.variant.backend}/{p.variant.name}": p for p in planned}
    words = read_words(table, "mixed", (REFERENCE, *by_name), (), may_be_empty=True)
    if len(words) == 1:
        text = f"'mixed' takes two or more, got {words[0]!r} alone."
        raise table.error(text, "mixed")
    table.done()
    chain = partial(Chain, device=next(iter(cases.values())).reference)
    for plan in planned:
        if plan.variant.name in wanted:
            yield chain(
                pipeline=pipeline,
                backend=plan.variant.backend,
                variant=plan.variant.name,
                seats=tuple(
                    (seat, _seated(pipeline, seat, case, plan))
                    for seat, case in cases.items()
                ),
            )
    for given in mixtures(words, pipeline):
        yield chain(
            # Exchanging the seats of every mixture would find nothing new.
            pipeline=replace(pipeline, attribution=False),
            backend=MIXED,
            variant=mixture_name(pipeline, given),
            seats=tuple(
                (
                    seat,
                    None
                    if given[seat] == REFERENCE
                    else _seated(pipeline, seat, case, by_name[given[seat]]),
                )
                for seat, case in cases.items()
            ),
        )


def _seated(pipeline: Pipeline, seat: str, case: Case, plan: Planned) -> Case:
    """Return the case of which a deployed file takes a seat."""
    sizes = seat_sizes(pipeline, seat, case.component)
    baked = {k: v for k, v in sizes.items() if k not in case.export.dynamic}
    # A graph that the component's own samples are served by is exported already.
    fitting = (s for s in case.samples if baked.items() <= dict(s.shapes).items())
    drawn = Sample(profile="realistic", index=0, shapes=tuple(sorted(sizes.items())))
    sample = next(fitting, drawn)
    return replace(case, variant=plan.variant, device=plan.device, samples=(sample,))


def seat_sizes(pipeline: Pipeline, seat: str, component: Component) -> dict[str, int]:
    """Return the sizes that a seat's file must take, by symbol."""
    factor = vae_factor(pipeline.source)
    batch = len(pipeline.texts)
    alone = seat == "controlnet" and pipeline.control.guess_mode
    if seat in DENOISING and pipeline.guided and not alone:
        batch *= 2
    sizes = {
        "batch": batch,
        "height": pipeline.height // factor,
        "width": pipeline.width // factor,
        "text_tokens": CLIP_TOKENS + pipeline.t5_tokens,
    }
    symbols = {symbol for spec in component.inputs for symbol in spec.symbols}
    return {symbol: size for symbol, size in sizes.items() if symbol in symbols}


def vae_factor(source: Source) -> int:
    """Return how many pixels a latent spans."""
    return pixels_per_latent(read_config(source, "vae"))


def _pipeline(
    name: str, kind: str, table: Table, source: Source, cases: Mapping[str, Case]
) -> Pipeline:
    check_channels(table, kind, source)
    path = read_picture(table, "image")
    mask = read_picture(table, "mask") if kind == INPAINT else None
    control = _control(table) if kind == "controlnet" else Control()
    family = family_of(source)
    sampling = read_sampling(table, Sampling())
    check_flow(table, sampling, source)
    height, width = _size(table, kind, path, control, source)
    tiled = table.take("vae_tiling", bool, default=False)
    if tiled:
        _check_tiles(table, kind, cases)
    t5_tokens = read_count(table, "t5_tokens", T5_TOKENS) if family == SD3 else 0
    steps = read_count(table, "steps", 20)
    eta = _number(table, "eta", 0.0, 0.0, 1.0)
    if eta and scheduler_of(sampling, source) != SCHEDULERS["ddim"]:
        text = "'eta' is DDIM's; with another scheduler it would change nothing."
        raise table.error(text, "eta")
    strength = 1.0 if kind == INPAINT else 0.8  # as diffusers has them
    if kind in {"img2img", INPAINT}:
        strength = _number(table, "strength", strength, 0.0, 1.0)
        if not int(steps * strength):
            text = f"strength {strength:g} leaves none of {steps} steps; give more."
            raise table.error(text, "strength")
    made = partial(
        Pipeline,
        name=name,
        kind=kind,
        source=source,
        components=tuple(case.component for case in cases.values()),
        prompts=_prompts(table),
        added_prompt=table.take("added_prompt", str, ""),
        negative_prompt=table.take("negative_prompt", str, ""),
        samples=read_count(table, "samples", 1),
        steps=steps,
        guidance_scale=_number(table, "guidance_scale", 7.5, 0.0, 100.0),
        sampling=sampling,
        eta=eta,
        seed=table.take("seed", int, 0),
        height=height,
        width=width,
        image=path,
        mask=mask,
        strength=strength,
        control=control,
        family=family,
        t5_tokens=t5_tokens,
        vae_tiling=tiled,
        reader=_reader(table),
        app=_app(table.table("app"), sampling),
        attribution=table.take("attribution", bool, default=True),
    )
    try:
        return made()
    except SpecError as error:
        raise table.error(str(error)) from None


def _check_tiles(table: Table, kind: str, cases: Mapping[str, Case]) -> None:
    """Refuse tiles that the decoder's file would not take."""
    text = ""
    if "vae_encoder" in cases:
        text = f"'vae_tiling' of a {kind} pipeline would tile its encoder too: not yet."
    elif not {"height", "width"} <= set(cases["vae_decoder"].export.dynamic):
        text = (
            "'vae_tiling' decodes tiles of several sizes, and vae_decoder is exported "
            'for one; give dynamic_axes = ["batch", "height", "width"] under '
            "[component.vae_decoder]."
        )
    if text:
        raise table.error(text, "vae_tiling")


def _prompts(table: Table) -> tuple[str, ...]:
    """Read prompts from the list, or from a file that has one on each line."""
    if named := table.take("prompts_file", str, ""):
        path = table.file.path.parent / named
        if not path.is_file():
            text = f"there is no file {path}."
            raise table.error(text, "prompts_file")
        if "prompts" in table:
            text = "give `prompts` or `prompts_file`, not both."
            raise table.error(text, "prompts")
        lines = path.read_text(encoding="utf-8").splitlines()
        listed = tuple(line.strip() for line in lines if line.strip())
        if not listed:
            text = f"{path} has no prompt, so there would be nothing to draw."
            raise table.error(text, "prompts_file")
        return listed
    if table.holds("prompts", str):
        return (table.take("prompts", str),)
    prompts = table.take_list("prompts", str)
    if not prompts:
        text = "'prompts' is empty, so there would be nothing to draw."
        raise table.error(text, "prompts")
    return prompts


def _size(
    table: Table,
    kind: str,
    image: Path | None,
    control: Control,
    source: Source,
) -> tuple[int, int]:
    """Return height and width of the pictures; a hint decides its own."""
    if kind == "controlnet":
        return hint_size(table, image, control.resolution)
    factor = vae_factor(source) * _stride(source)
    sizes = []
    for key in ("height", "width"):
        size = read_count(table, key)
        if size % factor:
            text = f"{key!r} must be a multiple of {factor}, got {size}."
            raise table.error(text, key)
        sizes.append(size)
    return sizes[0], sizes[1]


def hint_size(table: Table, image: Path | None, resolution: int) -> tuple[int, int]:
    """Return height and width of the hint that a picture becomes, in pixels.

    Raises:
        SuiteError: The picture cannot be read, or a side would vanish.

    """
    from PIL import Image  # which reads no more than the file's head here

    height = width = resolution
    try:
        if image is not None:
            with Image.open(image) as opened:
                width, height = opened.size
                if opened.getexif().get(_ORIENTATION, 1) in _LYING:
                    height, width = width, height
        return fitted_size(height, width, resolution)
    except OSError as error:
        text = f"{image} is no picture that can be read: {error}."
        raise table.error(text, "image") from None
    except SuiteError as error:
        raise table.error(str(error), "resolution") from None


def _stride(source: Source) -> int:
    """Return what the sides of latents must be a multiple of, for the denoiser."""
    if family_of(source) == SD3:
        return int(read_config(source, "transformer")["patch_size"])
    return int(2 ** (len(read_config(source, "unet")["block_out_channels"]) - 1))


def _number(table: Table, key: str, default: float, least: float, most: float) -> float:
    value = table.take(key, float, default)
    if not least <= value <= most:
        text = f"{key!r} must be from {least:g} to {most:g}, got {value:g}."
        raise table.error(text, key)
    return value


def _control(table: Table) -> Control:
    default = Control()
    low, high = (
        read_count(table, key, value)
        for key, value in (
            ("low_threshold", default.low_threshold),
            ("high_threshold", default.high_threshold),
        )
    )
    if not low <= high <= 255:  # noqa: PLR2004  # grey levels
        text = f"thresholds go low <= high <= 255, got {low} and {high}."
        raise table.error(text, "high_threshold")
    return Control(
        resolution=read_count(table, "resolution", default.resolution),
        low_threshold=low,
        high_threshold=high,
        strength=_number(table, "strength", default.strength, 0.0, 2.0),
        guess_mode=table.take("guess_mode", bool, default=default.guess_mode),
    )


def _reader(table: Table) -> str:
    reader = table.take("reader", str, "")
    place, colon, name = reader.rpartition(":")
    if reader and not (colon and name.isidentifier()):
        text = f"reader is written 'file.py:function', got {reader!r}."
        raise table.error(text, "reader")
    if place.endswith(".py"):
        path = (table.file.path.parent / place).resolve()
        if not path.is_file():
            text = f"there is no file {path}."
            raise table.error(text, "reader")
        return f"{path}:{name}"
    return reader


def _app(table: Table, base: Sampling) -> App:
    """Read what the app does otherwise; nothing, when there is no such table."""
    has_schedule = "scheduler" in table or "scheduler_options" in table
    factor = table.take("scaling_factor", float, None)
    guidance = table.take("guidance_scale", float, None)
    sampling = read_sampling(table, base)
    table.done()
    if factor is not None and not factor > 0.0:
        text = f"'scaling_factor' must be more than 0, got {factor:g}."
        raise table.error(text, "scaling_factor")
    if guidance is not None and not guidance > 1.0:
        text = f"an app's 'guidance_scale' must be more than 1, got {guidance:g}."
        raise table.error(text, "guidance_scale")
    return App(
        sampling=sampling if has_schedule else None,
        scaling_factor=factor,
        guidance_scale=guidance,
    )
