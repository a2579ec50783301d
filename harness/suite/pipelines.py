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
    KINDS,
    MIXED,
    SCHEDULERS,
    SD3,
    App,
    Chain,
    Control,
    Pipeline,
    Sampling,
)
from harness.core.toml_file import Table
from harness.core.toml_schema import read
from harness.recipes import RECIPES
from harness.recipes.checkpoint import read_config
from harness.recipes.diffusion.transformer_sd3 import CLIP_TOKENS
from harness.recipes.diffusion.vae import factor as pixels_per_latent
from harness.suite import schema
from harness.suite.families import class_of, family_of, fitted_size, kinds_of
from harness.suite.inpaint import check_channels, picture_at
from harness.suite.mixtures import mixture_name, mixtures
from harness.suite.sampling import check_flow, sampling_of, scheduler_of
from harness.suite.tables import Planned, read_words

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
    is_sd3 = family_of(source) == SD3
    said = read(table, schema.TextToImageT5 if is_sd3 else schema.PIPELINES[kind])
    pipeline = _pipeline(name, table, said, source, cases)
    names = tuple(dict.fromkeys(plan.variant.name for plan in planned))
    wanted = read_words(table, "variants", names, names)
    by_name = {f"{p.variant.backend}/{p.variant.name}": p for p in planned}
    words = read_words(table, "mixed", (REFERENCE, *by_name), (), may_be_empty=True)
    if len(words) == 1:
        text = f"'mixed' takes two or more, got {words[0]!r} alone."
        raise table.error(text, "mixed")
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
    name: str,
    table: Table,
    said: schema.Pipeline,
    source: Source,
    cases: Mapping[str, Case],
) -> Pipeline:
    check_channels(table, said.kind, source)
    path = picture_at(table, "image", said.image)
    mask, strength, t5_tokens = None, 0.8, 0  # as diffusers has the strength
    control = Control()
    sampling = sampling_of(said, Sampling())
    check_flow(table, sampling, source)
    if isinstance(said, schema.ControlNet):
        control = _control(table, said)
        height, width = hint_size(table, path, said.resolution)
    else:
        height, width = _size(table, said, source)
    if said.vae_tiling:
        _check_tiles(table, said.kind, cases)
    if said.eta and scheduler_of(sampling, source) != SCHEDULERS["ddim"]:
        text = "'eta' is DDIM's; with another scheduler it would change nothing."
        raise table.error(text, "eta")
    if isinstance(said, schema.ImageToImage):
        strength = said.strength
        if not int(said.steps * strength):
            text = (
                f"strength {strength:g} leaves none of {said.steps} steps; give more."
            )
            raise table.error(text, "strength")
    if isinstance(said, schema.Inpaint):
        mask = picture_at(table, "mask", said.mask)
    if isinstance(said, schema.TextToImageT5):
        t5_tokens = said.t5_tokens
    try:
        return Pipeline(
            name=name,
            kind=said.kind,
            source=source,
            components=tuple(case.component for case in cases.values()),
            prompts=_prompts(table, said),
            added_prompt=said.added_prompt,
            negative_prompt=said.negative_prompt,
            samples=said.samples,
            steps=said.steps,
            guidance_scale=said.guidance_scale,
            sampling=sampling,
            eta=said.eta,
            seed=said.seed,
            height=height,
            width=width,
            image=path,
            mask=mask,
            strength=strength,
            control=control,
            family=family_of(source),
            t5_tokens=t5_tokens,
            vae_tiling=said.vae_tiling,
            reader=_reader(table, said.reader),
            app=_app(said.app, sampling),
            attribution=said.attribution,
        )
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


def _prompts(table: Table, said: schema.Pipeline) -> tuple[str, ...]:
    """Return the prompts listed, or those of a file that has one on each line."""
    if said.prompts_file:
        path = table.file.path.parent / said.prompts_file
        if not path.is_file():
            text = f"there is no file {path}."
            raise table.error(text, "prompts_file")
        if said.prompts is not None:
            text = "give `prompts` or `prompts_file`, not both."
            raise table.error(text, "prompts")
        lines = path.read_text(encoding="utf-8").splitlines()
        listed = tuple(line.strip() for line in lines if line.strip())
        if not listed:
            text = f"{path} has no prompt, so there would be nothing to draw."
            raise table.error(text, "prompts_file")
        return listed
    table.check_keys(said.__struct_fields__, required=["prompts"])
    if isinstance(said.prompts, str):
        return (said.prompts,)
    if not said.prompts:
        text = "'prompts' is empty, so there would be nothing to draw."
        raise table.error(text, "prompts")
    return said.prompts


def _size(table: Table, said: schema.Pipeline, source: Source) -> tuple[int, int]:
    """Return height and width of the pictures."""
    factor = vae_factor(source) * _stride(source)
    sizes = []
    for key in ("height", "width"):
        size = int(getattr(said, key))
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


def _control(table: Table, said: schema.ControlNet) -> Control:
    low, high = said.low_threshold, said.high_threshold
    if not low <= high <= 255:  # noqa: PLR2004  # grey levels
        text = f"thresholds go low <= high <= 255, got {low} and {high}."
        raise table.error(text, "high_threshold")
    return Control(
        resolution=said.resolution,
        low_threshold=low,
        high_threshold=high,
        strength=said.strength,
        guess_mode=said.guess_mode,
    )


def _reader(table: Table, reader: str) -> str:
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


def _app(said: schema.App, base: Sampling) -> App:
    """Return what the app does otherwise; nothing, when there is no such table."""
    stated = said.scheduler is not None or said.scheduler_options is not None
    return App(
        sampling=sampling_of(said, base) if stated else None,
        scaling_factor=said.scaling_factor,
        guidance_scale=said.guidance_scale,
    )
