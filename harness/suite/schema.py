"""The declaration of every key of parity.toml.

`harness.core.toml_schema.read` reads a file into these structs. The names of backends,
variants, components and pipelines are free here, because the valid names depend on
other parts of the file. `harness.suite.suite` and its neighbours check them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta, field

from harness.core.case import EXPORTERS, HERE, PROFILES
from harness.core.pipeline import (
    INPAINT,
    SCHEDULERS,
    T5_TOKENS,
    USUAL_METRICS,
    YARDSTICKS,
)
from harness.core.toml_schema import (
    DISTINCT,
    HUGE,
    WORDS,
    Count,
    Keys,
    TableError,
    Word,
    json_schema,
    one_of,
    sentence,
)

OLDEST_OPSET: Final = 14
ATTENTIONS: Final = ("eager", "sdpa")

CHECKPOINTS: Final = ("checkpoint", "hub", "package")
"""Keys of which one names the checkpoint; a suite of foreign files may have none."""

Share = Annotated[float, Meta(ge=0, le=1)]
Draws = Annotated[int, Meta(ge=1, le=100_000)]
Seed = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Scheduler = Annotated[str, one_of(SCHEDULERS)]
Profiles = Annotated[tuple[Annotated[str, one_of(PROFILES)], ...], WORDS]
Words = Annotated[tuple[str, ...], WORDS]
"""A list of words that the reader checks, because they depend on other tables."""

Plain = Annotated[
    str | int | float | bool,
    sentence("scheduler_options are texts, numbers, true or false"),
]
ProviderOption = Annotated[
    str | int | float | bool,
    sentence("provider_options are texts, numbers, true or false"),
]
Option = Annotated[
    str | int | bool,
    sentence("a recipe option must be text, a whole number, true or false"),
]
Opset = Annotated[
    int, Meta(ge=OLDEST_OPSET), sentence(f"opset {OLDEST_OPSET} or newer is needed")
]


class SourceTable(Keys, frozen=True, kw_only=True):
    """The origin of weights and configuration, given by one of the first three keys.

    Attributes:
        checkpoint: A diffusers or transformers folder, relative to the suite.
        hub: An id on the Hugging Face hub, organisation/name. It is found in the cache,
            or downloaded.
        package: A Python package that ships a checkpoint, and optionally a folder in
            it.
        seed: Seed to draw all weights at random; no weights are read then.
        lora: A LoRA file (low-rank weights) that is merged into networks before export.
        lora_scale: Factor of the weights that the LoRA adds.

    """

    checkpoint: str = ""
    hub: str = ""
    package: str = ""
    seed: Seed | None = None
    lora: str = ""
    lora_scale: float = 1.0

    @property
    def named_by(self) -> str:
        """The key that names the checkpoint; empty if there is none."""
        return next((key for key in CHECKPOINTS if key in self), "")


class ExportTable(Keys, frozen=True, kw_only=True):
    """Settings of the export from PyTorch to ONNX.

    Attributes:
        exporter: The exporter of PyTorch that is used.
        opset: ONNX operator set.
        dynamic_axes: Sizes that are left open in the graph; the others are fixed.
        external_data: Whether weights are in a separate file, also below 2 GB.
        attention: Attention implementation of the exported copy; the default is the
            model's own. The reference always keeps the model's own.
        keep_paths: Whether the exported graph notes the paths of this machine's files
            as the exporter does, and not from the folder of a package alone.

    """

    exporter: Annotated[str, one_of(EXPORTERS)] | None = None
    opset: Opset | None = None
    dynamic_axes: Annotated[tuple[str, ...], DISTINCT] | None = None
    external_data: bool | None = None
    attention: Annotated[str, one_of(ATTENTIONS)] | None = None
    keep_paths: bool | None = None


class ShapesTable(Keys, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Sizes by symbol, such as ``batch = 2``; every other key is a symbol.

    Attributes:
        layers: Whether intermediate values are compared at these sizes, or only
            outputs.

    """

    OTHERS: ClassVar[Any] = Count
    layers: bool = True


class ComponentTable(
    ExportTable, frozen=True, kw_only=True, forbid_unknown_fields=False
):
    """Settings of one component; every other key is an option of its recipe.

    A runtime that has its own file format adds a key of that name, such as ``mnn``. Its
    value is a converted file that another tool made; it is tested as it is.

    Attributes:
        recipe: The recipe that builds it: one of the harness or an importable module.
            The default is the recipe of the component's name.
        variants: The variants that it runs, in each runtime or, as in mnn/fp32, in one
            alone; the default is all variants of the suite.
        shapes: Sizes of this component, in place of the suite's.
        onnx: An ONNX file that another tool exported; it is tested as it is.
        reference: An ONNX file that `onnx` is compared with, where the suite has no
            [source]. Without it the file is compared with itself.
        names: Names in the file, by the recipe's names of inputs and outputs, or by
            those of the reference.

    """

    OTHERS: ClassVar[Any] = Option
    recipe: str = ""
    variants: Words | None = None
    shapes: tuple[ShapesTable, ...] = ()
    onnx: str = ""
    reference: str = ""
    names: dict[str, str] = field(default_factory=dict)


class InputsTable(Keys, frozen=True, kw_only=True):
    """Settings of the inputs that are drawn.

    Attributes:
        profiles: Profiles of all variants that name no profiles. Without them a
            variant in full precision runs every profile, and each other variant runs
            realistic inputs alone, for which its weights and scales are made.
        realistic: Number of samples of the realistic profile. They step through
            timesteps and shapes.
        seed: Seed of every draw.
        more_sizes: Whether open axes are also run at other sizes than the suite's.
            Only outputs are compared there.
        calibration: Number of inputs that a statically quantized variant is calibrated
            with. They are realistic inputs of another seed than the tested inputs.

    """

    profiles: Profiles = ()
    realistic: Draws = 4
    calibration: Draws = 16
    seed: Seed = 0
    more_sizes: bool = True


class BackendTable(Keys, frozen=True, kw_only=True):
    """Settings of a runtime or of PyTorch. Some runtimes do not have every key.

    Attributes:
        variants: The built-in variants that are run; the default is fp32.
        device: The device where it runs; the default is its usual device.
        threads: Number of threads within an operator.
        targets: Places where it runs: ``here``, and names of targets. Each place makes
            cases of its own; the default is here.
        versions: Versions of the runtime where it runs too. The harness makes a Python
            environment for each, and each makes cases of its own.
        converter: Version of the converter, for a runtime with a converter of its own;
            the default is the one that is installed here.
        precision: Precision of the computation, for a runtime that has a choice; the
            default is the highest precision. Each precision of a list makes cases of
            its own.
        tf32: Whether CUDA may round float32 products to TensorFloat-32.
        hints: Settings of the runtime's session.
        provider_options: Options of ONNX Runtime's execution provider.
        cpu_nodes: Largest share of the nodes that may run on ONNX Runtime's CPU
            provider where `device` names another one. Nodes of whole numbers alone do
            not count.
        api: MNN's API that the app runs the file with: ``session`` or ``module``. The
            default is a session where it can run the file, and a module where not.

    """

    variants: Words | None = None
    device: str | None = None
    threads: Count = 2
    targets: Words = (HERE,)
    versions: Words = ()
    converter: Word = ""
    precision: str | Words | None = None
    tf32: bool = False
    hints: dict[str, int] = field(default_factory=dict)
    provider_options: dict[str, ProviderOption] = field(default_factory=dict)
    cpu_nodes: Share = 0.0
    api: Word = ""


class TargetTable(Keys, frozen=True, kw_only=True):
    """A place other than this process where a runtime runs.

    Attributes:
        command: Program and arguments that start a Python there, which has numpy and
            the runtime. A path is relative to the suite's folder.

    """

    command: Annotated[tuple[Word, ...], Meta(min_length=1)]


class OwnVariantTable(Keys, frozen=True, kw_only=True):
    """A variant of the suite, or the profiles of a built-in variant.

    Attributes:
        kind: The built-in variant that it starts from.
        flags: Flags of the converter, added to those of the built-in variant. MNN's
            --compressionParamsFile=FILE names a file beside the suite.
        components: Components that it is made for; the default is all. A pipeline runs
            the others in the variant that it starts from.
        profiles: Profiles that it runs; the default is the profiles of the inputs.

    """

    kind: str | None = field(name="from", default=None)
    flags: tuple[str, ...] | None = None
    components: Words | None = None
    profiles: Profiles | None = None


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


class AnyPipeline(Keys, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A pipeline before its kind is known, which decides its keys; see `PIPELINES`.

    Attributes:
        kind: The kind of pipeline; the default is the kind of the pipeline's name.

    """

    kind: str = ""


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
"""The struct of each of `harness.core.pipeline.KINDS`."""


class Limits(Keys, frozen=True, kw_only=True):
    """Limits on time and memory of a run, and on its coverage.

    Attributes:
        timeout_s: Time limit of one stage of one case, in seconds.
        coverage: Least share of the reference's computing operators to compare.
        jobs: Number of cases in progress at once, each in its own processes.
        memory_gib: Memory that all stages together may take, in GiB. The default is the
            available memory; 0 means no limit.

    """

    timeout_s: Annotated[float, Meta(gt=0, lt=HUGE)] = 900.0
    coverage: Share = 0.95
    jobs: Count = 2
    memory_gib: Annotated[float, Meta(ge=0.0, lt=HUGE)] | None = None


class FilesTable(Keys, frozen=True, kw_only=True):
    """Files beside the suite.

    Attributes:
        tolerances: The file of tolerances: the allowed errors of values.
        known_gaps: The file of expected failures, each with its reason.

    """

    tolerances: str = "tolerances.toml"
    known_gaps: str = "known_gaps.toml"


class SuiteFile(Keys, frozen=True, kw_only=True):
    """A suite of parity tests: parity.toml.

    Attributes:
        components: The components to test; the default is all that the checkpoint has.
        source: The origin of the weights.
        export: Settings of the export from PyTorch to ONNX.
        shapes: Sizes for the symbols; one table or more.
        inputs: Settings of the inputs that are drawn.
        backend: The runtimes, by name, and optionally pytorch.
        target: Places other than here where runtimes run, by name.
        variant: Variants by runtime and name.
        pipeline: Pipelines by name.
        component: Settings of components, by name.
        limits: Limits on time and memory, and on coverage.
        files: Files beside the suite.

    """

    components: Words | None = None
    source: SourceTable = SourceTable()
    export: ExportTable = ExportTable()
    shapes: tuple[ShapesTable, ...] = ()
    inputs: InputsTable = InputsTable()
    backend: dict[str, BackendTable] = field(default_factory=dict)
    target: dict[str, TargetTable] = field(default_factory=dict)
    variant: dict[str, dict[str, OwnVariantTable]] = field(default_factory=dict)
    pipeline: dict[str, AnyPipeline] = field(default_factory=dict)
    component: dict[str, ComponentTable] = field(default_factory=dict)
    limits: Limits = Limits()
    files: FilesTable = FilesTable()


def suite_schema() -> dict[str, Any]:
    """Return the JSON Schema of parity.toml."""
    kinds = (TextToImageT5, ImageToImage, Inpaint, ControlNet)
    schema = json_schema(SuiteFile, *kinds)
    del schema["$defs"][AnyPipeline.__name__]
    pipelines = schema["$defs"][SuiteFile.__name__]["properties"]["pipeline"]
    pipelines["additionalProperties"] = {
        "anyOf": [{"$ref": f"#/$defs/{kind.__name__}"} for kind in kinds]
    }
    return schema
