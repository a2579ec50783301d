"""What parity.toml may hold, key by key: the one place that declares it.

`harness.core.toml_schema.read` reads a file into these structs. The names of backends,
variants, components and pipelines are free here, because what they can be depends on
other parts of the file; `harness.suite.suite` and its neighbours look them up.

    python -m harness.suite.schema docs

writes the JSON Schema of each file beside the documentation, for editors. A first line
``#:schema ./parity.schema.json`` names one for a language server of TOML.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta, field

from harness.core.case import EXPORTERS, PROFILES
from harness.core.pipeline import INPAINT, SCHEDULERS, T5_TOKENS
from harness.core.toml_schema import (
    DISTINCT,
    WORDS,
    Count,
    Keys,
    json_schema,
    one_of,
)
from harness.judge.known_gaps import GapsFile
from harness.judge.scope import tolerances_schema

OLDEST_OPSET: Final = 14
ATTENTIONS: Final = ("eager", "sdpa")

Share = Annotated[float, Meta(ge=0, le=1)]
Scheduler = Annotated[str, one_of(SCHEDULERS)]
Profiles = Annotated[tuple[Annotated[str, one_of(PROFILES)], ...], WORDS]
Words = Annotated[tuple[str, ...], WORDS]
"""A list that the file's reader holds against other parts of the file."""

Plain = Annotated[
    str | int | float | bool,
    Meta(extra={"sentence": "scheduler_options are texts, numbers, true or false"}),
]
Option = Annotated[
    str | int | bool,
    Meta(
        extra={
            "sentence": "a recipe option must be text, a whole number, true or false"
        }
    ),
]


class Source(Keys, frozen=True, kw_only=True):
    """Where weights and configuration come from: one of the first three keys.

    Attributes:
        checkpoint: A folder of diffusers or transformers, relative to the suite.
        hub: An id on the Hugging Face hub, organisation/name; taken from the cache, or
            else downloaded.
        package: A Python package that ships a checkpoint, and perhaps a folder in it.
        seed: Weights are drawn at random from this seed, and none are read.
        lora: A file of low-rank weights that is merged into networks before export.
        lora_scale: Factor of what the LoRA adds.

    """

    checkpoint: str = ""
    hub: str = ""
    package: str = ""
    seed: int | None = None
    lora: str = ""
    lora_scale: float = 1.0


class Export(Keys, frozen=True, kw_only=True):
    """How PyTorch becomes ONNX.

    Attributes:
        exporter: Which exporter of PyTorch is used.
        opset: ONNX operator set.
        dynamic_axes: Sizes that are left open in the graph; the others are baked in.
        external_data: Weights are in a file of their own, also below 2 GB.
        attention: Attention implementation of the exported copy; left out, the
            model's own. The reference keeps the model's own in any case.

    """

    exporter: Annotated[str, one_of(EXPORTERS)] | None = None
    opset: (
        Annotated[
            int,
            Meta(
                ge=OLDEST_OPSET,
                extra={"sentence": f"opset {OLDEST_OPSET} or newer is needed"},
            ),
        ]
        | None
    ) = None
    dynamic_axes: Annotated[tuple[str, ...], DISTINCT] | None = None
    external_data: bool | None = None
    attention: Annotated[str, one_of(ATTENTIONS)] | None = None


class Shapes(Keys, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Sizes by symbol, such as ``batch = 2``; every other key is a symbol.

    Attributes:
        layers: Whether intermediate values are compared at these sizes, or outputs
            alone.

    """

    OTHERS: ClassVar[Any] = Count
    layers: bool = True


class Component(Export, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Settings of one component; every other key is an option of its recipe.

    A runtime that has a file format of its own adds a key of that name, such as
    ``mnn``: a file that others converted, which is tested as it is.

    Attributes:
        recipe: The recipe that builds it, one of the harness or an importable module;
            left out, the one of the component's name.
        variants: The variants that it runs; left out, all of the suite's.
        shapes: Sizes of its own, in place of the suite's.
        onnx: An ONNX file that others exported, which is tested as it is.
        names: The recipe's name of an input or output, to the name in the file.

    """

    OTHERS: ClassVar[Any] = Option
    recipe: str = ""
    variants: Words | None = None
    shapes: tuple[Shapes, ...] = ()
    onnx: str = ""
    names: dict[str, str] = field(default_factory=dict)


class Inputs(Keys, frozen=True, kw_only=True):
    """What is drawn.

    Attributes:
        profiles: Profiles of the variants that name none of their own.
        realistic: How many samples the realistic profile has; they step through
            timesteps and shapes.
        seed: Seed of every draw.
        more_sizes: Whether open axes are run at more sizes than the suite's own,
            outputs only.

    """

    profiles: Profiles = PROFILES
    realistic: Count = 4
    seed: int = 0
    more_sizes: bool = True


class Backend(Keys, frozen=True, kw_only=True):
    """A runtime, or PyTorch, and where it runs. A runtime may not have every key.

    Attributes:
        variants: The built-in variants that are run; left out, fp32.
        device: Where it runs.
        threads: Threads within an operator.
        precision: How precise a runtime is to compute, of those that have a choice;
            left out, as precise as it can.
        tf32: Whether CUDA may round float32 products to TensorFloat-32.
        hints: Settings of the runtime's session.

    """

    variants: Words | None = None
    device: str = "cpu"
    threads: Count = 2
    precision: str = ""
    tf32: bool = False
    hints: dict[str, int] = field(default_factory=dict)


class OwnVariant(Keys, frozen=True, kw_only=True):
    """A variant of one's own, or the profiles of a built-in one.

    Attributes:
        kind: The built-in variant that it starts from.
        flags: Flags of the converter, added to those of the built-in variant.
        profiles: Profiles that it runs; left out, those of the inputs.

    """

    kind: str | None = field(name="from", default=None)
    flags: tuple[str, ...] | None = None
    profiles: Profiles | None = None


class Scheduled(Keys, frozen=True, kw_only=True):
    """The scheduler.

    Attributes:
        scheduler: Short name of a scheduler of diffusers; left out, the checkpoint's.
        scheduler_options: What its configuration says otherwise than the checkpoint's.

    """

    scheduler: Scheduler | None = None
    scheduler_options: dict[str, Plain] | None = None


class App(Scheduled, frozen=True, kw_only=True):
    """What the app around the deployed files does otherwise than PyTorch.

    Attributes:
        scaling_factor: What its VAE divides latents by.
        guidance_scale: Scale of its classifier-free guidance.

    """

    scaling_factor: Annotated[float, Meta(gt=0)] | None = None
    guidance_scale: Annotated[float, Meta(gt=1)] | None = None


class Pipeline(Scheduled, frozen=True, kw_only=True):
    """Pictures that are drawn step by step.

    Attributes:
        kind: What kind of pipeline it is; left out, the one of its name.
        prompts: The prompts; one picture each, times `samples`.
        prompts_file: A file with one prompt on each line, in place of `prompts`.
        added_prompt: Put after every prompt, behind a comma.
        negative_prompt: The negative prompt of every picture.
        samples: Pictures of each prompt.
        steps: Denoising steps.
        guidance_scale: Scale of classifier-free guidance; 1 or less is none.
        eta: Share of DDIM's noise.
        seed: Seed of the first noise and of the scheduler's.
        image: Picture to begin with, or to take the hint from; left out, one is drawn.
        vae_tiling: Whether the autoencoder decodes tiles and blends them.
        reader: A function that reads a picture as a word or a number, written
            file.py:function.
        app: What the app does otherwise than PyTorch.
        attribution: Whether components are exchanged one by one, to find which of them
            brought an error.
        variants: The variants that it runs; left out, all of the suite's.
        mixed: Two or more of pytorch, onnxruntime/fp32 and the like; every mixture of
            them is run.

    """

    kind: str = ""
    prompts: str | tuple[str, ...] | None = None
    prompts_file: str = ""
    added_prompt: str = ""
    negative_prompt: str = ""
    samples: Count = 1
    steps: Count = 20
    guidance_scale: Annotated[float, Meta(ge=0, le=100)] = 7.5
    eta: Share = 0.0
    seed: int = 0
    image: str = ""
    vae_tiling: bool = False
    reader: str = ""
    app: App = App()
    attribution: bool = True
    variants: Words | None = None
    mixed: Annotated[tuple[str, ...], DISTINCT] = ()


class TextToImage(Pipeline, frozen=True, kw_only=True):
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
        t5_tokens: How many tokens of a prompt T5 has.

    """

    t5_tokens: Count = T5_TOKENS


class ImageToImage(TextToImage, frozen=True, kw_only=True):
    """Pictures from text and a picture to begin with.

    Attributes:
        strength: Share of the noise that is added to the picture.

    """

    kind: Annotated[str, one_of(["img2img"])] = "img2img"
    strength: Share = 0.8


class Inpaint(ImageToImage, frozen=True, kw_only=True):
    """Pictures of which a part is drawn anew.

    Attributes:
        mask: Picture of what to draw anew, white; left out, one is drawn.

    """

    kind: Annotated[str, one_of([INPAINT])] = INPAINT
    strength: Share = 1.0  # as diffusers has it
    mask: str = ""


class ControlNet(Pipeline, frozen=True, kw_only=True):
    """Pictures from text and a Canny hint.

    Attributes:
        resolution: What the shorter side of the picture is brought to, in pixels.
        low_threshold: Canny's low threshold, at most the high one.
        high_threshold: Canny's high threshold, at most 255.
        strength: Factor of every residual of the ControlNet.
        guess_mode: Whether residuals fall off towards the input, and the unconditional
            branch gets none.

    """

    kind: Annotated[str, one_of(["controlnet"])] = "controlnet"
    resolution: Count = 512
    low_threshold: Count = 100
    high_threshold: Count = 200
    strength: Annotated[float, Meta(ge=0, le=2)] = 1.0
    guess_mode: bool = False


PIPELINES: Final[Mapping[str, type[Pipeline]]] = {
    "text2img": TextToImage,
    "img2img": ImageToImage,
    "controlnet": ControlNet,
    INPAINT: Inpaint,
}
"""The struct of each of `harness.core.pipeline.KINDS`."""


class Limits(Keys, frozen=True, kw_only=True):
    """What a run may use, and how much it must see.

    Attributes:
        timeout_s: Longest that one stage of one case may take, in seconds.
        coverage: Least share of the reference's computing operators to compare.
        jobs: Cases in progress at once, each in processes of its own.
        memory_gib: What stages may take together; left out, what there is; 0 for
            anything.

    """

    timeout_s: Annotated[float, Meta(gt=0)] = 900.0
    coverage: Share = 0.95
    jobs: Count = 2
    memory_gib: Annotated[float, Meta(ge=0)] | None = None


class Files(Keys, frozen=True, kw_only=True):
    """Files beside the suite.

    Attributes:
        tolerances: How far a value may be from its reference.
        known_gaps: Failures that are expected, each with its reason.

    """

    tolerances: str = "tolerances.toml"
    known_gaps: str = "known_gaps.toml"


class SuiteFile(Keys, frozen=True, kw_only=True):
    """A suite of parity tests: parity.toml.

    Attributes:
        components: The components to test; left out, all that the checkpoint has.
        source: Where weights come from.
        export: How PyTorch becomes ONNX.
        shapes: Sizes for the symbols; one table or more.
        inputs: What is drawn.
        backend: The runtimes, by name, and perhaps pytorch.
        variant: Variants by runtime and name.
        pipeline: Pipelines by name.
        component: Settings of components, by name.
        limits: Time, memory, coverage.
        files: Files beside the suite.

    """

    components: Words | None = None
    source: Source = Source()
    export: Export = Export()
    shapes: tuple[Shapes, ...] = ()
    inputs: Inputs = Inputs()
    backend: dict[str, Backend] = field(default_factory=dict)
    variant: dict[str, dict[str, OwnVariant]] = field(default_factory=dict)
    # Which keys a pipeline has depends on its kind: `PIPELINES`.
    pipeline: dict[str, dict[str, Any]] = field(default_factory=dict)
    component: dict[str, Component] = field(default_factory=dict)
    limits: Limits = Limits()
    files: Files = Files()


def suite_schema() -> dict[str, Any]:
    """Return the JSON Schema of parity.toml."""
    kinds = (TextToImageT5, ImageToImage, Inpaint, ControlNet)
    schema = json_schema(SuiteFile, *kinds)
    pipelines = schema["$defs"][SuiteFile.__name__]["properties"]["pipeline"]
    pipelines["additionalProperties"] = {
        "anyOf": [{"$ref": f"#/$defs/{kind.__name__}"} for kind in kinds]
    }
    return schema


def schemas() -> dict[str, str]:
    """Return the text of each file's JSON Schema, by the schema's file name."""
    found = {
        "parity": suite_schema(),
        "tolerances": tolerances_schema(),
        "known_gaps": json_schema(GapsFile),
    }
    return {
        f"{name}.schema.json": json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
        for name, schema in found.items()
    }


if __name__ == "__main__":
    for name, text in schemas().items():
        (Path(sys.argv[1]) / name).write_text(text, encoding="utf-8")
