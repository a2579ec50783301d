"""What an end-to-end case is: a pipeline, and who sits in each of its seats.

Plain data; drawing inputs, running networks and comparing pictures happen elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.core.case import (
    REFERENCE,
    Case,
    Component,
    Device,
    Source,
    check_name,
)
from harness.core.entry import Entry
from harness.core.runtime import runtimes

SCHEDULE: Final = "schedule"
LATENTS: Final = "latents"
IMAGE: Final = "image"
WHATS: Final = (LATENTS, IMAGE)
"""What is checked of an end-to-end case: latents at every step, and the pictures."""

MIXED: Final = "mixed"
"""Stands for the backend of a case whose seats are taken from several."""

INPAINT: Final = "inpaint"

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "text2img": ("text_encoder", "unet", "vae_decoder"),
    "img2img": ("text_encoder", "vae_encoder", "unet", "vae_decoder"),
    "controlnet": ("text_encoder", "controlnet", "controlled_unet", "vae_decoder"),
    INPAINT: ("text_encoder", "vae_encoder", "unet", "vae_decoder"),
}
"""Kind of pipeline to its seats, in the order in which they first work. A seat is
named for the recipe of the component that takes it."""

SD, SDXL, SD3 = "StableDiffusion", "StableDiffusionXL", "StableDiffusion3"
FAMILIES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    SD: KINDS,
    SDXL: {"text2img": ("text_encoder", "text_encoder_2", "unet", "vae_decoder")},
    # Without T5, which diffusers allows: zeros stand for its states.
    SD3: {"text2img": ("text_encoder", "text_encoder_2", "transformer", "vae_decoder")},
}
"""Begin of the name of diffusers' pipeline class, to the kinds drawn with it."""

DENOISING: Final = ("controlnet", "controlled_unet", "unet", "transformer")
"""Seats that work at every step."""

T5_TOKENS: Final = 256
"""How many tokens the pipeline of Stable Diffusion 3 gives T5."""

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
"""Short names of diffusers' schedulers; each is made from the checkpoint's own
configuration."""

STEP: Final = 64
"""Sides are multiples of it, in pixels: eight of the autoencoder, eight of the UNet."""

Options = tuple[tuple[str, str | int | float | bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a scheduler is made.

    Attributes:
        scheduler: One of `SCHEDULERS`; empty for the checkpoint's own.
        options: What its configuration says otherwise than the checkpoint's.

    """

    scheduler: str = ""
    options: Options = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """What the app around the deployed files does; None is what PyTorch's does.

    Attributes:
        sampling: The app's scheduler.
        scaling_factor: What its VAE divides latents by.
        guidance_scale: Of its classifier-free guidance.

    """

    sampling: Sampling | None = None
    scaling_factor: float | None = None
    guidance_scale: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A Canny hint, as the classic ControlNet app makes and uses it.

    Attributes:
        resolution: What the shorter side of the picture is brought to, in pixels.
        low_threshold: Of Canny, 1 to 255.
        high_threshold: Of Canny, 1 to 255.
        strength: Factor of every residual.
        guess_mode: Residuals fall off towards the input as ``0.825 ** (12 - i)``, and
            the unconditional branch gets none.

    """

    resolution: int = 512
    low_threshold: int = 100
    high_threshold: int = 200
    strength: float = 1.0
    guess_mode: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """One way to draw pictures, with all that decides which.

    Attributes:
        name: Stands first in every id: ``text2img``.
        kind: One of `KINDS`.
        source: The checkpoint.
        components: Who takes each of its seats, in their order.
        prompts: One picture each, times `samples`.
        added_prompt: Put after every prompt, behind a comma.
        negative_prompt: Of every picture.
        samples: Pictures of each prompt.
        steps: Denoising steps asked for.
        guidance_scale: Of classifier-free guidance; 1 or less is none.
        sampling: The scheduler.
        eta: Share of DDIM's noise, 0 to 1.
        seed: Of initial and scheduler noise, which are then stored.
        height: Of the picture, in pixels.
        width: Of the picture, in pixels.
        image: Picture to begin with, or to take the hint from; None draws one.
        mask: Picture of what to draw anew, white; None draws one.
        strength: Share of the noise that is added to the picture, 0 to 1.
        control: Of a ControlNet pipeline.
        family: One of `FAMILIES`.
        t5_tokens: Of Stable Diffusion 3's text, those that T5 has.
        vae_tiling: Whether the autoencoder decodes tiles and blends them.
        reader: ``module:function`` that reads a picture, uint8 ``[height, width, 3]``,
            as a word or number; empty for none.
        app: What the deployed pipeline does otherwise.
        attribution: Whether seats are exchanged one by one to find who brought the
            error.

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

    def __post_init__(self) -> None:
        check_name("pipeline", self.name)

    @property
    def seats(self) -> tuple[str, ...]:
        """Names of its seats, in the order in which they first work."""
        return FAMILIES[self.family][self.kind]

    @property
    def encoders(self) -> tuple[str, ...]:
        """Those of its seats that read text."""
        return tuple(seat for seat in self.seats if seat.startswith("text_encoder"))

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of each picture."""
        added = f", {self.added_prompt}" if self.added_prompt else ""
        return tuple(
            f"{text}{added}" for text in self.prompts for _ in range(self.samples)
        )

    @property
    def guided(self) -> bool:
        """Whether each step runs with and without the prompt."""
        return self.guidance_scale > 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """One pipeline with a deployed file, or PyTorch, in each of its seats.

    Attributes:
        pipeline: What is drawn.
        backend: The runtime of every seat, or `MIXED`.
        variant: Of every seat; the seats' runtimes for a mixed chain.
        seats: Seat to the case whose deployed file takes it; None is PyTorch.
        device: Where PyTorch runs.

    """

    pipeline: Pipeline
    backend: str
    variant: str
    seats: tuple[tuple[str, Case | None], ...] = field(repr=False)
    device: Device = field(default_factory=Device)

    @property
    def subject(self) -> str:
        """First part of the id."""
        return self.pipeline.name

    @property
    def how(self) -> str:
        """Third part of the id."""
        return self.variant

    @property
    def id(self) -> str:
        """``pipeline/backend/variant``, the interface that ``-k`` selects on."""
        return f"{self.pipeline.name}/{self.backend}/{self.variant}"

    @property
    def whats(self) -> tuple[str, ...]:
        """What is checked of it."""
        return WHATS

    @property
    def runtimes(self) -> tuple[str, ...]:
        """Runtimes that it needs, each once."""
        sat = {case.backend for _, case in self.seats if case is not None}
        return tuple(name for name in runtimes() if name in sat)

    @property
    def asked(self) -> dict[str, str]:
        """Seat to what is asked to take it, in words."""
        return {
            seat: REFERENCE if case is None else f"{case.backend}/{case.variant.name}"
            for seat, case in self.seats
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Seated:
    """A deployed file that takes a seat.

    Attributes:
        seat: Which.
        component: Names and dtypes of its inputs and outputs.
        backend: The runtime.
        device: Where and how that is asked to run.
        artifact: Holds the file and its weights.
        model: The file's name in it.

    """

    seat: str
    component: Component
    backend: str
    device: Device
    artifact: Entry
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainRun:
    """All that one end-to-end run is given.

    Attributes:
        case: Id, for messages.
        pipeline: What is drawn.
        seated: Who takes which seat; PyTorch has the others.
        inputs: The pipeline's inputs.
        reference: PyTorch's drawing.
        device: Where PyTorch runs.
        folder: For pictures.
        limit_gib: Of memory; None or 0 for what there is.

    """

    case: str
    pipeline: Pipeline
    seated: tuple[Seated, ...]
    inputs: Entry
    reference: Entry
    device: Device
    folder: Path
    limit_gib: float | None = None
