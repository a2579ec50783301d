"""Small networks and checkpoints that the tests export, convert and run."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn

from harness.core.case import (
    Component,
    ExportSettings,
    Sample,
    Source,
    TensorSpec,
    Variant,
)
from harness.core.probes import Probe
from harness.engine.store import Store
from harness.recipes.inputs import Array, draw
from harness.runtimes.pytorch.export import Exported, export_onnx
from harness.runtimes.pytorch.program import Program, program_of_export
from harness.runtimes.pytorch.translation import TracedNetwork
from tests.places import DIGITS

_SMALL_UNET: dict[str, object] = {
    "block_out_channels": [8, 16],
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "cross_attention_dim": 16,
    "attention_head_dim": 2,
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "sample_size": 8,
}
_SMALL: dict[str, dict[str, object]] = {
    "unet": {**_SMALL_UNET, "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"]},
    "controlnet": {**_SMALL_UNET, "conditioning_embedding_out_channels": [4, 8]},
    "text_encoder": {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "max_position_embeddings": 12,
        "vocab_size": 98,
        "bos_token_id": 96,
        "eos_token_id": 97,
        "pad_token_id": 97,
        "projection_dim": 16,
    },
}


def small_checkpoint(folder: Path) -> Path:
    """Write the configurations of a Stable Diffusion that runs in milliseconds."""
    for name, changes in _SMALL.items():
        config = json.loads((DIGITS / name / "config.json").read_text(encoding="utf-8"))
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(
            json.dumps({**config, **changes}), encoding="utf-8"
        )
    shutil.copytree(DIGITS / "scheduler", folder / "scheduler")
    shutil.copy(DIGITS / "model_index.json", folder)
    return folder


SIZES = {"batch": 2, "height": 6, "width": 10}
BLOCKS = Component(
    name="blocks",
    recipe="tests.unit.nets",
    source=Source(path=DIGITS, seed=0),
    inputs=(
        TensorSpec(name="image", shape=("batch", 4, "height", "width"), draw="normal"),
        TensorSpec(name="kind", shape=("batch",), dtype="int64", draw="timestep"),
    ),
    outputs=(
        TensorSpec(name="map", shape=("batch", 4, "height", "width")),
        TensorSpec(name="pooled", shape=("batch", 8)),
    ),
)
OPEN = ("batch", "height", "width")


class Attention(nn.Module):
    """Two heads, as diffusers does it: projections without bias, and one with."""

    def __init__(self) -> None:
        super().__init__()
        self.to_q, self.to_k, self.to_v = (
            nn.Linear(8, 8, bias=False) for _ in range(3)
        )
        self.to_out = nn.Linear(8, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        heads = [
            part(tokens).unflatten(-1, (2, 4)).transpose(1, 2)
            for part in (self.to_q, self.to_k, self.to_v)
        ]
        mixed = nn.functional.scaled_dot_product_attention(*heads)
        return self.to_out(mixed.transpose(1, 2).flatten(2)) / 1.0


class Blocks(nn.Module):
    """Convolution, normalisation, attention and embedding; two outputs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv_in = nn.Conv2d(4, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.kinds = nn.Embedding(1000, 8)
        self.attention = Attention()
        self.ff = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.conv_out = nn.Conv2d(8, 4, 1)
        self.eval().requires_grad_(requires_grad=False)

    def forward(
        self, image: torch.Tensor, kind: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = nn.functional.silu(self.norm(self.conv_in(image)))
        tokens = hidden.flatten(2).transpose(1, 2) + self.kinds(kind)[:, None]
        tokens = tokens + self.attention(tokens)
        tokens = tokens + self.ff(tokens)
        pooled = torch.tanh(tokens.mean(1))
        return self.conv_out(tokens.transpose(1, 2).reshape(hidden.shape)), pooled


class Calling(nn.Module):
    """A network that is one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def sizes(**changes: int) -> tuple[tuple[str, int], ...]:
    """Return a sample's sizes, as pairs."""
    return tuple(sorted({**SIZES, **changes}.items()))


def feeds(component: Component, index: int = 0, **changes: int) -> dict[str, Array]:
    """Draw inputs by name."""
    sample = Sample(profile="unit-normal", index=index, shapes=sizes(**changes))
    return draw(component, sample)


def export(
    module: nn.Module,
    component: Component,
    folder: Path,
    exporter: str = "dynamo",
    opset: int = 18,
    **settings: Any,
) -> Exported:
    """Export with every symbol open, unless told otherwise."""
    asked = ExportSettings(
        exporter=exporter, opset=opset, **{"dynamic": OPEN, **settings}
    )
    example = tuple(torch.tensor(v) for v in feeds(component).values())
    store = folder.with_name(f"{folder.name}-store")  # the folder's files are listed
    return export_onnx(traced(module, component, asked, example, store), folder)


def traced(
    module: nn.Module,
    component: Component,
    settings: ExportSettings,
    example: tuple[torch.Tensor, ...],
    store: Path,
) -> TracedNetwork:
    """Return a network as an exporter gets it."""
    return TracedNetwork(
        module=module,
        copy=module,
        component=component,
        settings=settings,
        example=example,
        store=Store(root=store),
    )


def to_mnn(
    source: Path,
    folder: Path,
    part: Component = BLOCKS,
    probes: Sequence[Probe] = (),
    **variant: Any,
) -> Path:
    """Convert an exported file with the wheel's converter; return the new file."""
    from harness.runtimes.mnn import MODEL
    from harness.runtimes.mnn.convert import convert

    asked = Variant(**{"name": "fp32", "backend": "mnn", "kind": "fp32", **variant})
    convert(source, asked, folder, component=part, probes=probes, native=None)
    return folder / MODEL


def by_onnxruntime(
    model: Path | bytes, feeds: Mapping[str, Array], *, optimised: bool = True
) -> dict[str, Array]:
    """Run a file, or the bytes of one, with one thread; return outputs by name."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def whole_graph(path: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return every value of a graph by name, from one unoptimised run."""
    proto = onnx.load(path)
    given = {value.name for value in proto.graph.output}
    made = (name for node in proto.graph.node for name in node.output if name)
    proto.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in made if name not in given
    )
    return by_onnxruntime(proto.SerializeToString(), feeds, optimised=False)


class Seen(dict[str, Array]):
    """The values that a session hands over, by name."""

    def keep(self, name: str, value: Array) -> None:
        """Keep a copy of a value."""
        self[name] = value.copy()


def by_graph(module: nn.Module, example: tuple[torch.Tensor, ...]) -> Program:
    """Return a network's program as the dynamo exporter translates it."""
    return program_of_export(torch.export.export(module, example))


def component(
    name: str,
    inputs: dict[str, tuple[int | str, ...]],
    outputs: tuple[str, ...] = ("out",),
) -> Component:
    """Describe a network whose inputs are all float32."""
    return Component(
        name=name,
        recipe="tests.unit.nets",
        source=Source(path=DIGITS, seed=0),
        inputs=tuple(
            TensorSpec(name=key, shape=shape, draw="normal")
            for key, shape in inputs.items()
        ),
        outputs=tuple(TensorSpec(name=key, shape=()) for key in outputs),
    )


class Overheard:
    """A network that keeps what it was asked and what it answered."""

    def __init__(self, network):
        self.network = network
        self.asked = []
        self.answered = []

    def __call__(self, feeds):
        made = self.network(feeds)
        self.asked.append(dict(feeds))
        self.answered.append(made)
        return made
