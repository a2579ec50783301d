"""A pipeline, with a file or PyTorch in each role, as an end-to-end case.

This module holds plain data. Other modules draw inputs, run networks and compare
pictures.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Final

from harness.core.case import (
    REFERENCE,
    Case,
    Component,
    Device,
    Sample,
    Source,
    check_name,
)
from harness.core.end_to_end import PAIRS, WHATS, AppSetting, EndToEndCase
from harness.core.entry import Entry
from harness.core.record import SELF
from harness.core.runtime import runtimes

METRICS: Final = ("psnr", "ssim", "flip", "lpips", "dreamsim", "clip")
"""The metrics of pictures that are built in."""

USUAL_METRICS: Final[tuple[str, ...]] = ("psnr", "ssim")
"""The metrics of a margin that the model gives itself. They need no further package, so
that every machine has the same."""

METRIC_GROUP: Final = "parity.metrics"
"""The group of entry points under which packages add metrics of pictures."""

YARDSTICKS: Final[tuple[str, ...]] = tuple(SELF.values())
"""Dtypes of PyTorch in which the model gives itself a margin."""

INPAINT: Final = "inpaint"

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "text2img": ("text_encoder", "unet", "vae_decoder"),
    "img2img": ("text_encoder", "vae_encoder", "unet", "vae_decoder"),
    "controlnet": ("text_encoder", "controlnet", "controlled_unet", "vae_decoder"),
    INPAINT: ("text_encoder", "vae_encoder", "unet", "vae_decoder"),
}
"""The roles of each kind of pipeline, in the order in which they first run. A role has
the name of the recipe of its component."""

SD, SDXL, SD3 = "StableDiffusion", "StableDiffusionXL", "StableDiffusion3"
FAMILIES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    SD: KINDS,
    SDXL: {"text2img": ("text_encoder", "text_encoder_2", "unet", "vae_decoder")},
    # T5 has no role here: diffusers allows that, and uses zeros as its states.
    SD3: {"text2img": ("text_encoder", "text_encoder_2", "transformer", "vae_decoder")},
}
"""The kinds of pipeline of each family. A family is the beginning of the name of
diffusers' pipeline class."""

DENOISING: Final = ("controlnet", "controlled_unet", "unet", "transformer")
"""Roles that run at every step."""

T5_TOKENS: Final = 256
"""Number of tokens that the pipeline of Stable Diffusion 3 gives to T5."""

SCHEDULERS: Final[Mapping[str, str]] = {
    "ddim": "DDIMScheduler",
    "pndm": "PNDMScheduler",
    "euler": "EulerDiscreteScheduler",
    "euler-ancestral": "EulerAncestralDiscreteScheduler",
    "dpm++": "DPMSolverMultistepScheduler",
    "heun": "HeunDiscreteScheduler",
    "lms": "LMSDiscreteScheduler",
    "unipc": "UniPCMultistepScheduler",
}
"""Short names of diffusers' schedulers. Each scheduler is made from the checkpoint's
own configuration."""

STEP: Final = 64
"""Width and height of a picture are multiples of this number of pixels: a factor of 8
from the autoencoder, times 8 from the UNet."""

# A text2img with 14.1 MiB of weights took 3 s. A pair of it took 0.03 to 0.24 of that
# time, in both runtimes, with a margin stated and bfloat16's. The time of a sample is
# in `harness.suite.shards`.
_SAMPLES: Final = 10
_SAMPLES_OF_PAIR: Final = 1.5

REMEMBERED_BYTES: Final = 1 << 30
"""The largest number of bytes of one network's outputs that are kept.
`plugins.pipelines.drawing.networks.Remembered` keeps them."""

_CLOSE: Final = 1e-6

_SEEDS: Final = 2**31
"""Seeds of one draw of pairs; another draw begins so much later."""

Options = tuple[tuple[str, str | int | float | bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The scheduler of a pipeline, and its settings.

    Attributes:
        scheduler: One of `SCHEDULERS`; empty for the checkpoint's own scheduler.
        options: Settings that differ from the checkpoint's configuration.

    """

    scheduler: str = ""
    options: Options = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """Settings of the app around the deployed files; None means PyTorch's value.

    `harness.suite.schema.AppTable` describes them.
    """

    sampling: Sampling | None = None
    scaling_factor: float | None = None
    guidance_scale: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A Canny hint, as the classic ControlNet app makes and uses it.

    `harness.suite.schema.ControlNet` describes the settings.

    Attributes:
        guess_mode: Whether residuals decrease towards the input as
            ``0.825 ** (12 - i)``, and the unconditional branch gets none.

    """

    resolution: int = 512
    low_threshold: int = 100
    high_threshold: int = 200
    strength: float = 1.0
    guess_mode: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A diffusion pipeline with everything that decides its pictures.

    An attribute that is not listed here is a key of ``[pipeline.NAME]``;
    `harness.suite.schema.PipelineTable` and its subclasses describe it.

    Attributes:
        name: First part of every id: ``text2img``.
        kind: Kind of pipeline, one of `KINDS`.
        source: Checkpoint of the pipeline.
        components: Component of each role, in the order of the roles.
        prompts: Prompts. Each one gives `samples` pictures, of which every step is
            compared.
        sampling: Scheduler and its settings.
        image: Picture to start from, or to make the hint from. None means that one is
            drawn.
        mask: Picture that is white where new content is drawn. None means that one is
            drawn.
        control: The hint of a ControlNet pipeline.
        family: Family of the pipeline, one of `FAMILIES`.
        reader: ``module:function`` that reads a picture, uint8 ``[height, width, 3]``,
            and returns a word or number. Empty for no reader.
        app: Settings in which the deployed pipeline differs.
        seeds: Number of pairs of prompt and seed; 0 for none.
        all_prompts: Prompts of the pairs, if there are more than `prompts`.
        yardstick: Dtype of PyTorch, one of `YARDSTICKS`, whose error is the limit of
            each pair; empty if the suite states limits.
        margins: Pairs of a metric and the limit that the suite states, as an error;
            None if `yardstick` gives it.

    """

    name: str
    kind: str
    source: Source
    components: tuple[Component, ...] = field(repr=False)
    prompts: tuple[str, ...]
    added_prompt: str = ""
    negative_prompt: str = ""
    samples: int = 1
    steps: int = 20
    guidance_scale: float = 7.5
    sampling: Sampling = Sampling()
    eta: float = 0.0
    seed: int = 0
    height: int
    width: int
    image: Path | None = None
    mask: Path | None = None
    strength: float = 0.8
    control: Control = Control()
    family: str = SD
    t5_tokens: int = T5_TOKENS
    vae_tiling: bool = False
    reader: str = ""
    app: App = App()
    attribution: bool = True
    seeds: int = 0
    all_prompts: tuple[str, ...] = ()
    yardstick: str = ""
    margins: tuple[tuple[str, float | None], ...] = ()

    def __post_init__(self) -> None:
        check_name("pipeline", self.name)

    @property
    def pairs(self) -> tuple[Pipeline, ...]:
        """A pipeline of one picture for each pair of prompt and seed.

        Every prompt comes once before one comes again. The order is drawn, because a
        verdict may stop the drawing: the first pictures must be like all others.
        """
        prompts, texts = self.all_prompts or self.prompts, list[str]()
        rng = random.Random(self.seed)  # noqa: S311  # no secret
        while len(texts) < self.seeds:
            texts += rng.sample(prompts, len(prompts))
        return tuple(
            replace(
                self,
                prompts=(text,),
                samples=1,
                seed=self.seed + 1 + index,
                seeds=0,
                all_prompts=(),
            )
            for index, text in enumerate(texts[: self.seeds])
        )

    @property
    def roles(self) -> tuple[str, ...]:
        """Names of the roles, in the order in which they first run."""
        return FAMILIES[self.family][self.kind]

    @property
    def encoders(self) -> tuple[str, ...]:
        """Names of the roles that read text."""
        return tuple(role for role in self.roles if role.startswith("text_encoder"))

    @property
    def texts(self) -> tuple[str, ...]:
        """Text of each picture."""
        added = f", {self.added_prompt}" if self.added_prompt else ""
        return tuple(
            f"{text}{added}" for text in self.prompts for _ in range(self.samples)
        )

    @property
    def guided(self) -> bool:
        """Whether each step runs with and without the prompt."""
        return self.guidance_scale > 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineCase(EndToEndCase):
    """One pipeline with a deployed file, or PyTorch, in each of its roles.

    Attributes:
        pipeline: Pipeline that draws the pictures.
        backend: Runtime of every role, or `MIXED`.
        variant: Variant of every role. In a mixed-runtime pipeline it names the
            runtimes.
        roles: Pairs of a role and the case whose deployed file takes it. None means
            PyTorch.
        device: Device of PyTorch.
        within: Names of `SELF` by which its tolerances bound pictures.

    """

    noun: ClassVar[str] = "pipeline"
    prepare: ClassVar[str] = "harness.plugins.pipelines.stages:prepare"
    run: ClassVar[str] = "harness.plugins.pipelines.stages:run"
    needs: ClassVar[str] = "harness.plugins.pipelines.needs:needs"

    pipeline: Pipeline
    backend: str
    variant: str
    roles: tuple[tuple[str, Case | None], ...] = field(repr=False)
    device: Device = field(default_factory=Device)
    within: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """Name of the pipeline, the first part of the id."""
        return self.pipeline.name

    @property
    def parts(self) -> tuple[Case, ...]:
        """The case of each role that has a deployed file."""
        return tuple(case for _, case in self.roles if case is not None)

    @property
    def whats(self) -> tuple[str, ...]:
        """The checks of the case."""
        return (*WHATS, PAIRS) if self.pipeline.seeds else WHATS

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The runtimes that the case needs, each once."""
        used = {case.backend for case in self.parts}
        return tuple(name for name in runtimes() if name in used)

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """Stand-ins for real inputs of the pipeline, in order."""
        from harness.recipes import stand_ins

        source, kind = self.pipeline.source, self.pipeline.kind
        found = [stand_ins.WEIGHTS] if source.seed is not None else []
        if stand_ins.lacks_tokenizer(source, self.pipeline.encoders):
            found.append(stand_ins.PROMPTS)
        if kind != "text2img" and self.pipeline.image is None:
            found.append("hint" if kind == "controlnet" else "picture")
        if kind == INPAINT and self.pipeline.mask is None:
            found.append("mask")
        if not stand_ins.has_scheduler(source):
            found.append(stand_ins.SCHEDULER)
        return tuple(found)

    @property
    def samples_alike(self) -> float:
        """About how many samples of its parts take as long as the case."""
        # A clear verdict draws fewer pairs; nobody knows ahead whether it is clear.
        return _SAMPLES + _SAMPLES_OF_PAIR * self.pipeline.seeds

    def drawn(self, count: int, seed: int) -> Iterator[tuple[Sample, PipelineCase]]:
        """Yield the case on its own seed, and on drawn pairs of prompt and seed."""
        own = replace(self.pipeline, seeds=0, attribution=False)
        pairs = replace(own, seeds=count, seed=own.seed + seed * _SEEDS).pairs
        for pipeline in (own, *pairs):
            sample = Sample(
                profile="realistic",
                index=0,
                shapes=(),
                seed=pipeline.seed,
                layers=False,
                label=f"seed-{pipeline.seed}",
            )
            yield sample, replace(self, pipeline=pipeline)

    def with_code(
        self,
        of_component: Callable[[Component], Component],
        of_case: Callable[[Case], Case],
    ) -> PipelineCase:
        """Return the case with what functions return of its components and parts."""
        components = tuple(map(of_component, self.pipeline.components))
        roles = tuple((role, one and of_case(one)) for role, one in self.roles)
        pipeline = replace(self.pipeline, components=components)
        return replace(self, pipeline=pipeline, roles=roles)

    @property
    def asked(self) -> dict[str, str]:
        """What each role is requested to run with: ``pytorch`` or ``mnn/fp32``."""
        return {
            role: REFERENCE if case is None else f"{case.backend}/{case.how}"
            for role, case in self.roles
        }


def pipelines_of(cases: Iterable[object]) -> tuple[PipelineCase, ...]:
    """Return the pipeline cases among some cases, in order."""
    return tuple(case for case in cases if isinstance(case, PipelineCase))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFile:
    """A deployed file that takes a role of a pipeline.

    Attributes:
        component: Component with the names and dtypes of the file's inputs and outputs.
        artifact: Store entry that holds the file and its weights.
        model: Name of the file in the store entry.

    """

    role: str
    component: Component
    backend: str
    device: Device
    artifact: Entry
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """The arguments of one end-to-end run.

    Attributes:
        case: Id of the case, for messages.
        pipeline: Pipeline that draws the pictures.
        role_files: Deployed files that take a role. PyTorch takes the other roles.
        inputs: Store entry with the pipeline's inputs.
        reference: Store entry with PyTorch's results.
        device: Device of PyTorch.
        folder: Folder for the pictures.
        store: Folder of the store, which keeps PyTorch's pictures of the pairs.
        limit_gib: Memory that may be used, in GiB. None or 0 means all that there is.

    """

    case: str
    pipeline: Pipeline
    role_files: tuple[RoleFile, ...]
    inputs: Entry
    reference: Entry
    device: Device
    folder: Path
    store: Path
    limit_gib: float | None = None


def other_settings(pipeline: Pipeline, scaling_factor: float) -> Iterator[AppSetting]:
    """Yield the settings in which the app differs from the reference.

    `scaling_factor` is that of the checkpoint's VAE.
    """
    app = pipeline.app
    factor, guidance = app.scaling_factor, app.guidance_scale
    if factor is not None and abs(factor / scaling_factor - 1) > _CLOSE:
        yield AppSetting(
            name="scaling_factor",
            app=factor,
            own=scaling_factor,
            place="the VAE's config.json",
        )
    if guidance is not None and guidance != pipeline.guidance_scale:
        yield AppSetting(
            name="guidance_scale",
            app=guidance,
            own=pipeline.guidance_scale,
            place=f"[pipeline.{pipeline.name}]",
        )
