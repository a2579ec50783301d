"""The declaration of every key of parity.toml.

`harness.core.toml_schema.read` reads a file into these structs. The names of backends,
variants, components and pipelines are free here, because the valid names depend on
other parts of the file. `harness.suite.suite` and its neighbours check them.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta, field

from harness.core.case import EXPORTERS, HERE, PROFILES
from harness.core.toml_schema import (
    DISTINCT,
    HUGE,
    WORDS,
    Count,
    Keys,
    TableError,
    Word,
    one_of,
    sentence,
)

COMMAND: Final = "command"
"""The usual kind of target."""

OLDEST_OPSET: Final = 14
ATTENTIONS: Final = ("eager", "sdpa")

CHECKPOINTS: Final = ("checkpoint", "hub", "package")
"""Keys of which one names the checkpoint; a suite of foreign files may have none."""

Share = Annotated[float, Meta(ge=0, le=1)]
Draws = Annotated[int, Meta(ge=1, le=100_000)]
Seed = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Profiles = Annotated[tuple[Annotated[str, one_of(PROFILES)], ...], WORDS]
Words = Annotated[tuple[str, ...], WORDS]
"""A list of words that the reader checks, because they depend on other tables."""

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
        exporter: The exporter of PyTorch that is used: ``dynamo``, ``torchscript``, or
            dynamo with the patches of ``transformers``.
        opset: ONNX operator set.
        optimize: Whether the exporter's own optimiser rewrites the graph. torchscript
            has no such optimiser.
        dynamic_axes: Sizes that are left open in the graph; the others are fixed.
        external_data: Whether weights are in a separate file, also below 2 GB.
        attention: Attention implementation of the exported copy; the default is the
            model's own. The reference always keeps the model's own.
        patch: A function that changes the exported copy of the network, as
            ``my_patches:real_rotary``. The reference stays as it is, and what the patch
            changes is judged first.
        keep_paths: Whether the exported graph notes the paths of this machine's files
            as the exporter does, and not from the folder of a package alone.

    """

    exporter: Annotated[str, one_of(EXPORTERS)] | None = None
    opset: Opset | None = None
    optimize: bool | None = None
    dynamic_axes: Annotated[tuple[str, ...], DISTINCT] | None = None
    external_data: bool | None = None
    attention: Annotated[str, one_of(ATTENTIONS)] | None = None
    keep_paths: bool | None = None
    patch: Word | None = None

    def __post_init__(self) -> None:
        if self.exporter == "optimum":
            text = (
                "optimum writes files of its own: export with it, and give "
                '`onnx = "…"` under [component.NAME].'
            )
            raise TableError(text, "exporter")
        super().__post_init__()


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
        captured: A folder of recorded calls, which are its samples. It takes `module`.
        module: Where its module comes from: a class, or a function without arguments,
            as ``my_project.nets:make``; or a class of diffusers or transformers, with
            the checkpoint of [source].
        folder: The folder of such a class in the checkpoint; the default is the one of
            the component's name, or the checkpoint itself.
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
    captured: Word = ""
    module: Word = ""
    folder: Word = ""
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


class TargetTable(Keys, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A table of targets, whose other keys a plug-in declares.

    Attributes:
        kind: The kind of target; the default is a command.

    """

    kind: str = COMMAND


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


class EndToEndTable(Keys, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A table of end-to-end cases, whose other keys a plug-in declares.

    Attributes:
        kind: The kind of pipeline; the default is the kind of the pipeline's name.

    """

    kind: str = ""


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
    pipeline: dict[str, EndToEndTable] = field(default_factory=dict)
    component: dict[str, ComponentTable] = field(default_factory=dict)
    limits: Limits = Limits()
    files: FilesTable = FilesTable()
