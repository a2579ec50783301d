"""Read ``[pipeline.*]`` of parity.toml: the pictures to draw, and the runtimes.

[pipeline.text2img]            # `kind` is needed if the name is no kind
prompts = ["a seven in red ink on white paper"]
steps = 10
guidance_scale = 3.0
scheduler = "ddim"             # default: the checkpoint's own
variants = ["fp32"]            # default: all, at the first place
mixed = ["pytorch", "onnxruntime/fp32", "mnn/fp32"]    # every mixture of these

Each function raises `SuiteError`, with file and line, if a table is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from importlib.metadata import entry_points
from itertools import product
from pathlib import Path
from typing import Any, Final

from harness.core.case import REFERENCE, Case, Component, Sample, Source
from harness.core.end_to_end import MIXED, SQUARED
from harness.core.toml_schema import read
from harness.plugins.pictures.distribution import READ, claims_of, least_pictures
from harness.plugins.pipelines import tables
from harness.plugins.pipelines.case import (
    DENOISING,
    FAMILIES,
    INPAINT,
    KINDS,
    METRIC_GROUP,
    METRICS,
    SCHEDULERS,
    SD3,
    App,
    Control,
    Pipeline,
    PipelineCase,
    Sampling,
)
from harness.plugins.pipelines.families import (
    class_of,
    family_of,
    fitted_size,
    kinds_of,
)
from harness.plugins.pipelines.tables import PipelineTable
from harness.recipes.checkpoint import read_config
from harness.recipes.configuration import read_object
from harness.recipes.diffusion.transformer_sd3 import CLIP_TOKENS
from harness.recipes.diffusion.vae import factor as pixels_per_latent
from harness.suite.end_to_end import Siblings
from harness.suite.schema import EndToEndTable, InputsTable
from harness.suite.tables import Planned, calibration_samples, chosen_of, file_beside

_ORIENTATION = 0x0112
_LYING = (5, 6, 7, 8)
"""Values of the Exif orientation that turn a picture by a quarter."""


_DETAILED = 4
"""Number of prompts that are compared step by step in a pipeline with `seeds`."""

_OF_ALL: Final = (
    *("kind", "added_prompt", "negative_prompt", "samples", "steps", "guidance_scale"),
    *("eta", "seed", "vae_tiling", "attribution"),
)
"""Keys of a table that a `Pipeline` has as they are."""

_OF_HINTS: Final = tuple(field.name for field in fields(Control))

_BLENDED, _WITH_MASK = 4, 9
"""Input channels of the two UNets that diffusers' inpainting pipeline knows. It blends
the result of the first with the picture; the second also takes mask and picture."""


def read_pipeline(
    name: str,
    table: EndToEndTable,
    source: Source,
    siblings: Siblings,
    planned: Sequence[Planned],
) -> Iterator[PipelineCase]:
    """Read ``[pipeline.NAME]``, and yield its cases: one runtime, then mixtures.

    Raises:
        SuiteError: Something in the table is wrong. The message names file and line.

    """
    kind = table.kind or name
    if "kind" in table:
        table.check_options("kind", KINDS)
    elif kind not in KINDS:
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
    with table.place.errors_at():
        cases = {role: siblings(role) for role in family[kind]}
    is_sd3 = family_of(source) == SD3
    declared = tables.TextToImageT5 if is_sd3 else tables.PIPELINES[kind]
    stated = read(table.place, declared)
    pipeline = _pipeline(name, stated, source, cases)
    # Pictures take many runs, so they are drawn elsewhere only where that is listed.
    usual = planned if stated.variants else [one for one in planned if one.is_first]
    chosen = chosen_of(stated, usual)
    by_name = {plan.word: plan for plan in planned}
    stated.check_options("mixed", (REFERENCE, *by_name))

    def case_of(
        pipeline: Pipeline,
        backend: str,
        variant: str,
        plans: Mapping[str, Planned | None],
    ) -> PipelineCase:
        roles = tuple(
            (role, _role_file(pipeline, role, cases[role], plan) if plan else None)
            for role, plan in plans.items()
        )
        return PipelineCase(
            pipeline=pipeline,
            backend=backend,
            variant=variant,
            roles=roles,
            device=next(iter(cases.values())).reference,
        )

    for plan in chosen:
        made = plan.variant
        yield case_of(pipeline, made.backend, plan.how, dict.fromkeys(cases, plan))
    # Attribution and pairs in every mixture would find nothing new.
    alike = replace(pipeline, attribution=False, seeds=0)
    for given in mixtures(stated.mixed, pipeline):
        plans = {role: by_name.get(word) for role, word in given.items()}
        yield case_of(alike, MIXED, mixture_name(pipeline, given), plans)


def _role_file(pipeline: Pipeline, role: str, case: Case, plan: Planned) -> Case:
    """Return the case whose deployed file has a role."""
    plan = plan.for_component(case.component.name)
    sizes = role_sizes(pipeline, role, case.component)
    baked = {k: v for k, v in sizes.items() if k not in case.export.dynamic}
    # A graph that serves the component's own samples is exported already.
    fitting = (s for s in case.samples if baked.items() <= dict(s.shapes).items())
    drawn = Sample(profile="realistic", index=0, shapes=tuple(sorted(sizes.items())))
    sample = next(fitting, drawn)
    return replace(
        case,
        variant=plan.variant,
        device=plan.device,
        samples=(sample,),
        where=plan.where,
    )


def with_calibration(
    pipelines: Iterable[PipelineCase], cases: Iterable[Case], inputs: InputsTable
) -> tuple[PipelineCase, ...]:
    """Return pipelines whose roles have what their files are calibrated with.

    A file that is tested by itself keeps its own, so that it is the same file.
    """
    tested = {(case.component.recipe, case.variant): case for case in cases}

    def filled(case: Case | None) -> Case | None:
        if case is None:
            return None
        (sample,) = case.samples
        twin = tested.get((case.component.recipe, case.variant))
        baked = {k: v for k, v in sample.shapes if k not in case.export.dynamic}
        known = twin.calibration if twin else ()
        if not known or not baked.items() <= dict(known[0].shapes).items():
            known = calibration_samples(case.variant, sample.shapes, inputs)
        return replace(case, calibration=known)

    return tuple(
        replace(
            pipeline, roles=tuple((role, filled(case)) for role, case in pipeline.roles)
        )
        for pipeline in pipelines
    )


def role_sizes(pipeline: Pipeline, role: str, component: Component) -> dict[str, int]:
    """Return the sizes that a role's file must accept, by symbol."""
    factor = vae_factor(pipeline.source)
    batch = len(pipeline.texts)
    alone = role == "controlnet" and pipeline.control.guess_mode
    if role in DENOISING and pipeline.guided and not alone:
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
    """Return the number of pixels per latent along one side."""
    return pixels_per_latent(read_config(source, "vae"))


def _pipeline(
    name: str,
    table: PipelineTable,
    source: Source,
    cases: Mapping[str, Case],
) -> Pipeline:
    _check_channels(table, source)
    path = file_beside(table, "image", table.image, "picture") if table.image else None
    sampling = _sampling(table, Sampling())
    _check_flow(table, sampling, source)
    _check_shift(table, sampling, source)
    # What only some kinds have; the strength is that of diffusers.
    some: dict[str, Any] = {"strength": 0.8, "t5_tokens": 0}
    control, mask = Control(), None
    if isinstance(table, tables.ControlNet):
        control = Control(**{key: getattr(table, key) for key in _OF_HINTS})
        height, width = _hint_size(table, path)
    else:
        height, width = _size(table, source)
        some |= {key: getattr(table, key) for key in some if hasattr(table, key)}
    if table.vae_tiling:
        _check_tiles(table, cases)
    if table.eta and _scheduler(sampling, source) != SCHEDULERS["ddim"]:
        text = "'eta' is DDIM's; with another scheduler it would change nothing."
        raise table.error(text, "eta")
    if isinstance(table, tables.Inpaint) and table.mask:
        mask = file_beside(table, "mask", table.mask, "picture")
    listed = _prompts(table)
    reader = _reader(table)
    yardstick, margins = _margins(table)
    with table.place.errors_at():
        return Pipeline(
            name=name,
            source=source,
            components=tuple(case.component for case in cases.values()),
            # Each step of these is compared; the pairs take all prompts.
            prompts=listed[:_DETAILED] if table.seeds else listed,
            sampling=sampling,
            height=height,
            width=width,
            image=path,
            mask=mask,
            control=control,
            family=family_of(source),
            reader=reader,
            app=_app(table.app, sampling),
            seeds=table.seeds or 0,
            all_prompts=listed if table.seeds else (),
            yardstick=yardstick,
            margins=margins,
            **{key: getattr(table, key) for key in _OF_ALL},
            **some,
        )


def _check_tiles(table: PipelineTable, cases: Mapping[str, Case]) -> None:
    """Refuse tiles whose sizes the decoder's file does not accept."""
    text = ""
    if "vae_encoder" in cases:
        text = (
            f"'vae_tiling' of a {table.kind} pipeline would tile its encoder too: "
            "not yet."
        )
    elif not {"height", "width"} <= set(cases["vae_decoder"].export.dynamic):
        text = (
            "'vae_tiling' decodes tiles of several sizes, and vae_decoder is exported "
            'for one; give dynamic_axes = ["batch", "height", "width"] under '
            "[component.vae_decoder]."
        )
    if text:
        raise table.error(text, "vae_tiling")


def _margins(
    table: PipelineTable,
) -> tuple[str, tuple[tuple[str, float | None], ...]]:
    """Return the yardstick's dtype, or "", and each metric's limit as an error."""
    if table.seeds is None:
        for key in ("margin", "metrics"):
            if key in table:
                text = f"{key!r} is of pairs; give their number as `seeds` too."
                raise table.error(text, key)
        return "", ()
    known = (*METRICS, *(point.name for point in entry_points(group=METRIC_GROUP)))
    margins: dict[str, float | None]
    if isinstance(table.margin, str):
        yardstick = table.margin
        table.check_options("metrics", known)
        margins = dict.fromkeys(table.metrics)
    else:
        yardstick = ""
        margins = dict(_limits(table, table.margin, (*known, READ)))
    if table.reader:
        margins.setdefault(READ, None)
    elif READ in margins:
        text = (
            f"{READ!r} is the share of pictures that a `reader` reads differently; "
            "give the pipeline a `reader`."
        )
        raise table.error(text, "margin")
    least = least_pictures([c for each in claims_of(margins).values() for c in each])
    if table.seeds < least:
        text = (
            f"seeds = {table.seeds} can never say SHIP: that takes {least} pictures of "
            f"which none is worse. Give {least} or more."
        )
        raise table.error(text, "seeds")
    return yardstick, tuple(margins.items())


_MARGINS: Final = {
    "psnr": "decibels, such as 40",
    "ssim": "less than 1, such as 0.98",
    READ: "a share between 0 and 1",
}
"""What a margin has to be; any other is more than 0."""


def _limits(
    table: PipelineTable, margin: Mapping[str, float], known: Sequence[str]
) -> Iterator[tuple[str, float]]:
    """Yield each metric with the limit that the suite states, as an error."""
    if "metrics" in table:
        text = "'margin' has a limit for each metric; leave out 'metrics'."
        raise table.error(text, "metrics")
    if not margin:
        text = "'margin' names no metric, so there would be nothing to decide."
        raise table.error(text, "margin")
    for name, stated in margin.items():
        table.place.check_option("margin", name, known)
        yield name, _limit(table, name, stated)


def _limit(table: PipelineTable, name: str, stated: float) -> float:
    """Return a metric's limit as an error, which is 0 for equal pictures."""
    limit = stated
    if name == "psnr":
        limit = 255 * 10 ** (-stated / 20) if stated > 0 else math.inf
    elif name == "ssim":
        limit = 1 - stated
    if name in SQUARED and limit > 0:
        limit = math.sqrt(limit)
    if not 0 < limit < math.inf or (name == READ and limit >= 1):
        decided = (
            "no error at all, so no build could ship"
            if limit <= 0
            else "any error, so every build would ship"
        )
        text = (
            f"the margin {name} = {stated:g} allows {decided}; give "
            f"{_MARGINS.get(name, 'more than 0')}."
        )
        raise table.error(text, "margin")
    return limit


def _prompts(table: PipelineTable) -> tuple[str, ...]:
    """Return the listed prompts, or the lines of the prompts file."""
    if table.prompts_file:
        path = file_beside(table, "prompts_file", table.prompts_file)
        if table.prompts is not None:
            text = "give `prompts` or `prompts_file`, not both."
            raise table.error(text, "prompts")
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            text = f"{path} cannot be read as UTF-8 text ({error}); save it so."
            raise table.error(text, "prompts_file") from None
        listed = tuple(line.strip() for line in lines if line.strip())
        if not listed:
            text = f"{path} has no prompt, so there would be nothing to draw."
            raise table.error(text, "prompts_file")
        return listed
    if table.prompts is None:
        key = "prompts"
        raise table.place.missing(key)
    return (table.prompts,) if isinstance(table.prompts, str) else table.prompts


def _size(table: PipelineTable, source: Source) -> tuple[int, int]:
    """Return height and width of the pictures."""
    factor = vae_factor(source) * _stride(source)
    sizes = []
    for key in ("height", "width"):
        size = int(getattr(table, key))
        if size % factor:
            text = f"{key!r} must be a multiple of {factor}, got {size}."
            raise table.error(text, key)
        sizes.append(size)
    return sizes[0], sizes[1]


def _hint_size(table: tables.ControlNet, image: Path | None) -> tuple[int, int]:
    """Return height and width of the hint that is made from a picture, in pixels."""
    from PIL import Image  # it reads only the file's header here

    height = width = table.resolution
    try:
        if image is not None:
            with Image.open(image) as opened:
                width, height = opened.size
                if opened.getexif().get(_ORIENTATION, 1) in _LYING:
                    height, width = width, height
    except OSError as error:
        text = f"{image} is no picture that can be read: {error}."
        raise table.error(text, "image") from None
    with table.place.errors_at("resolution"):
        return fitted_size(height, width, table.resolution)


def _stride(source: Source) -> int:
    """Return the number that the sides of latents must be multiples of."""
    if family_of(source) == SD3:
        return read_config(source, "transformer").whole("patch_size")
    return int(2 ** (len(read_config(source, "unet")["block_out_channels"]) - 1))


def _reader(table: PipelineTable) -> str:
    place, colon, name = table.reader.rpartition(":")
    if table.reader and not (colon and name.isidentifier()):
        text = f"reader is written 'file.py:function', got {table.reader!r}."
        raise table.error(text, "reader")
    if place.endswith(".py"):
        return f"{file_beside(table, 'reader', place)}:{name}"
    return table.reader


def _app(table: tables.AppTable, base: Sampling) -> App:
    """Return the app's settings that differ; none without ``[pipeline.*.app]``."""
    stated = table.scheduler is not None or table.scheduler_options is not None
    return App(
        sampling=_sampling(table, base) if stated else None,
        scaling_factor=table.scaling_factor,
        guidance_scale=table.guidance_scale,
    )


def _sampling(table: tables.ScheduledTable, base: Sampling) -> Sampling:
    """Return the scheduler of a table; `base` gives the missing settings."""
    name = table.scheduler or base.scheduler
    kept = dict(base.options) if name == base.scheduler else {}
    options = {**kept, **(table.scheduler_options or {})}
    return Sampling(scheduler=name, options=tuple(options.items()))


def _scheduler(sampling: Sampling, source: Source) -> str:
    """Return the diffusers class of a scheduler."""
    if sampling.scheduler:
        return SCHEDULERS[sampling.scheduler]
    path = source.path / "scheduler" / "scheduler_config.json"
    if not path.is_file():
        return SCHEDULERS["ddim"]
    return str(read_object(path)["_class_name"])


def _check_flow(table: PipelineTable, sampling: Sampling, source: Source) -> None:
    """Refuse a scheduler that treats a velocity as noise, or noise as a velocity."""
    name, family = _scheduler(sampling, source), family_of(source)
    if name.startswith("FlowMatch") != (family == SD3):
        what = "a velocity" if family == SD3 else "noise"
        text = (
            f"{name} is no scheduler for a {family} checkpoint, which predicts {what}; "
            "leave `scheduler` out to take the one in the checkpoint's own folder."
        )
        raise table.error(text, *(key for key in ("scheduler",) if key in table))


def _check_shift(table: PipelineTable, sampling: Sampling, source: Source) -> None:
    """Refuse a scheduler whose steps depend on the size of the picture."""
    path = source.path / "scheduler" / "scheduler_config.json"
    own = read_object(path) if path.is_file() else {}
    if {**own, **dict(sampling.options)}.get("use_dynamic_shifting"):
        text = "'use_dynamic_shifting' of the scheduler is not drawn yet."
        raise table.error(text, *(k for k in ("scheduler_options",) if k in table))


def _check_channels(table: PipelineTable, source: Source) -> None:
    """Refuse a UNet that this kind of pipeline cannot run."""
    if is_fed(table.kind, source):
        return
    takes, latents = _channels(source)
    if table.kind == INPAINT:
        text = (
            f"diffusers inpaints with a UNet of {_WITH_MASK} channels, or with one of "
            f"{_BLENDED} and blends; {source.path / 'unet'} takes {takes}."
        )
        raise table.error(text)
    other = ' It inpaints: kind = "inpaint".' if takes == _WITH_MASK else ""
    text = (
        f"a {table.kind} pipeline gives the UNet {latents} channels, and "
        f"{source.path / 'unet'} takes {takes}.{other}"
    )
    raise table.error(text)


def is_fed(kind: str, source: Source) -> bool:
    """Whether a kind of pipeline gives the checkpoint's UNet all its input channels."""
    if not (source.path / "unet" / "config.json").is_file():
        return True
    takes, latents = _channels(source)
    return takes in {_BLENDED, _WITH_MASK} if kind == INPAINT else takes == latents


def _channels(source: Source) -> tuple[int, int]:
    """Return the numbers of channels of the UNet's input and of the latents."""
    takes = read_config(source, "unet")["in_channels"]
    return takes, read_config(source, "vae")["latent_channels"]


def mixtures(words: Sequence[str], pipeline: Pipeline) -> Iterator[dict[str, str]]:
    """Yield the runtime of each role, for every mixture of two or more.

    ControlNet and UNet always have the same runtime, because they work in turns at
    every step. So do two text encoders, because they read the same prompts.
    """
    places = tuple(dict.fromkeys(_place(role) for role in pipeline.roles))
    for row in product(words, repeat=len(places)):
        if len(set(row)) > 1:
            given = dict(zip(places, row, strict=True))
            yield {role: given[_place(role)] for role in pipeline.roles}


def _place(role: str) -> str:
    if role in DENOISING:
        return DENOISING[0]
    return "text_encoder" if role.startswith("text_encoder") else role


def mixture_name(pipeline: Pipeline, given: Mapping[str, str]) -> str:
    """Return a name such as ``pytorch-mnn-pytorch``, in the order of the roles.

    The variant is named if it is not fp32. Two roles that always share a runtime are
    named once.
    """
    chosen = {_place(role): given[role] for role in pipeline.roles}.values()
    words = (word.removesuffix("/fp32").replace("/", ".") for word in chosen)
    return "-".join(words)


class _Pipelines:
    """Reads the tables of diffusion pipelines; a `harness.suite.end_to_end.Reader`."""

    tables = (
        tables.TextToImageT5,
        tables.ImageToImage,
        tables.Inpaint,
        tables.ControlNet,
    )
    read = staticmethod(read_pipeline)
    calibrated = staticmethod(with_calibration)

    @staticmethod
    def roles(kinds: Iterable[str], source: Source) -> set[str]:
        """Return the roles of kinds of pipelines; a reader refuses unknown kinds."""
        family = kinds_of(source)
        return {role for kind in {*kinds} & family.keys() for role in family[kind]}


PIPELINES: Final = _Pipelines()
