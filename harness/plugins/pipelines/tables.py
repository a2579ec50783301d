"""The declaration of every key of ``[pipeline.NAME]``.

`harness.core.toml_schema.read` reads a table into one of these structs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta

from harness.core.toml_schema import (
    DISTINCT,
    HUGE,
    Count,
    Keys,
    TableError,
    one_of,
    sentence,
)
from harness.plugins.pipelines.case import (
    INPAINT,
    SCHEDULERS,
    T5_TOKENS,
    USUAL_METRICS,
    YARDSTICKS,
)
from harness.suite.schema import Draws, Seed, Share, Words

Scheduler = Annotated[str, one_of(SCHEDULERS)]

Plain = Annotated[
    str | int | float | bool,
    sentence("scheduler_options are texts, numbers, true or false"),
]


class ScheduledTable(Keys, frozen=True, kw_only=True):
    """Settings of the scheduler.

    Attributes:
        scheduler: Short name of a scheduler of diffusers; the default is the
            checkpoint's scheduler.
        scheduler_options: Settings that differ from the checkpoint's scheduler.

    """

    scheduler: Scheduler | None = None
    scheduler_options: dict[str, Plain] | None = None


class AppTable(ScheduledTable, frozen=True, kw_only=True):
    """Settings of the app around the deployed files that differ from PyTorch's.

    Attributes:
        scaling_factor: The number by which the app's VAE divides latents.
        guidance_scale: Scale of the app's classifier-free guidance.

    """

    scaling_factor: Annotated[float, Meta(gt=0, lt=HUGE)] | None = None
    guidance_scale: Annotated[float, Meta(gt=1, lt=HUGE)] | None = None


class PipelineTable(ScheduledTable, frozen=True, kw_only=True):
    """A diffusion pipeline, which draws pictures step by step.

    Attributes:
        kind: The kind of pipeline; the default is the kind of the pipeline's name.
        prompts: The prompts; each gives one picture, times `samples`.
        prompts_file: A file with one prompt on each line, in place of `prompts`.
        added_prompt: Text that is added to every prompt after a comma.
        negative_prompt: The negative prompt of every picture.
        samples: Number of pictures of each prompt.
        steps: Number of denoising steps.
        guidance_scale: Scale of classifier-free guidance; 1 or less means no guidance.
        eta: Share of DDIM's noise.
        seed: Seed of the first noise and of the scheduler's noise.
        image: Picture to begin with, or to take the hint from. The default is a drawn
            picture.
        vae_tiling: Whether the autoencoder decodes tiles and blends them.
        reader: A function that reads a picture as a word or a number, written
            file.py:function.
        app: Settings of the app that differ from PyTorch's.
        attribution: Whether components are exchanged one by one, to find the one that
            causes an error.
        variants: The variants that it runs; the default is all variants of the suite.
        mixed: Two or more of pytorch, onnxruntime/fp32 and so on. Every mixture of
            them is run.
        seeds: Number of pairs of prompt and seed that may be drawn for a verdict over
            many pictures. The drawing ends as soon as the verdict is clear.
        margin: The limit of a picture's error in these pairs: bfloat16 or float16 for
            the model's own error in this dtype, or a table of metrics with the least
            PSNR in dB, the least SSIM, the largest value of other metrics, and the
            largest share of pictures that may be read differently.
        metrics: The metrics for which the model's own error is the limit. A table of
            limits names its metrics itself.

    """

    kind: str = ""
    prompts: str | tuple[str, ...] | None = None
    prompts_file: str = ""
    added_prompt: str = ""
    negative_prompt: str = ""
    samples: Draws = 1
    steps: Count = 20
    guidance_scale: Annotated[float, Meta(ge=0, le=100)] = 7.5
    eta: Share = 0.0
    seed: Seed = 0
    image: str = ""
    vae_tiling: bool = False
    reader: str = ""
    app: AppTable = AppTable()
    attribution: bool = True
    variants: Words | None = None
    mixed: Annotated[tuple[str, ...], DISTINCT] = ()
    seeds: Draws | None = None
    margin: Annotated[str, one_of(YARDSTICKS)] | dict[str, float] = YARDSTICKS[0]
    metrics: Words = USUAL_METRICS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prompts == ():
            text = "'prompts' is empty, so there would be nothing to draw."
            raise TableError(text, "prompts")
        if len(self.mixed) == 1:
            text = f"'mixed' takes two or more, got {self.mixed[0]!r} alone."
            raise TableError(text, "mixed")


class TextToImage(PipelineTable, frozen=True, kw_only=True):
    """Pictures from text alone.

    Attributes:
        height: Height of the pictures, in pixels.
        width: Width of the pictures, in pixels.

    """

    kind: Annotated[str, one_of(["text2img"])] = "text2img"
    height: Count
    width: Count


class TextToImageT5(TextToImage, frozen=True, kw_only=True):
    """Pictures from text alone, with Stable Diffusion 3.

    Attributes:
        t5_tokens: Number of tokens that T5 has for a prompt.

    """

    t5_tokens: Count = T5_TOKENS


class ImageToImage(TextToImage, frozen=True, kw_only=True):
    """Pictures from text and a picture to begin with.

    Attributes:
        strength: Share of the noise that is added to the picture.

    """

    kind: Annotated[str, one_of(["img2img"])] = "img2img"
    strength: Share = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        if not int(self.steps * self.strength):
            text = (
                f"strength {self.strength:g} leaves none of {self.steps} steps; give "
                "more."
            )
            raise TableError(text, "strength")


class Inpaint(ImageToImage, frozen=True, kw_only=True):
    """Pictures with a part that is drawn anew.

    Attributes:
        mask: Picture that is white where to draw anew. The default is a drawn mask.

    """

    kind: Annotated[str, one_of([INPAINT])] = INPAINT
    strength: Share = 1.0  # as diffusers has it
    mask: str = ""


class ControlNet(PipelineTable, frozen=True, kw_only=True):
    """Pictures from text and a Canny hint.

    Attributes:
        resolution: Length to which the shorter side of the picture is resized, in
            pixels.
        low_threshold: Canny's low threshold, at most the high one.
        high_threshold: Canny's high threshold, at most 255.
        strength: Factor of every residual of the ControlNet.
        guess_mode: Whether residuals decrease towards the input, and the unconditional
            branch gets none.

    """

    kind: Annotated[str, one_of(["controlnet"])] = "controlnet"
    resolution: Count = 512
    low_threshold: Count = 100
    high_threshold: Count = 200
    strength: Annotated[float, Meta(ge=0, le=2)] = 1.0
    guess_mode: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.low_threshold, self.high_threshold
        if not low <= high <= 255:  # noqa: PLR2004  # grey levels
            text = f"thresholds go low <= high <= 255, got {low} and {high}."
            raise TableError(text, "high_threshold")


PIPELINES: Final[Mapping[str, type[PipelineTable]]] = {
    "text2img": TextToImage,
    "img2img": ImageToImage,
    "controlnet": ControlNet,
    INPAINT: Inpaint,
}
"""The struct of each of `harness.plugins.pipelines.case.KINDS`."""
