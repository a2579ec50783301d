"""What decides the entries of drawings in the store."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from harness.core.digest import digest_file, digest_value
from harness.engine.keys import checkpoint_digest, part, weights_digest
from harness.plugins.pipelines.case import T5_TOKENS, Pipeline
from harness.recipes.checkpoint import read_index

PICTURES: Final = ("measure", "recipes", "plugins/pipelines", "runtimes/pytorch")
"""The harness's own code that decides pictures."""


@part.register
def _(argument: Pipeline) -> object:
    """A pipeline is all that decides PyTorch's pictures but its inputs."""
    return {
        "components": [part(component) for component in argument.components],
        "index": read_index(argument.source),
        # The inputs hold the ids of each text once, and not which picture has them.
        "texts": [*argument.texts, argument.negative_prompt],
        **_sampling(argument),
        "control": asdict(argument.control),
        "t5_tokens": argument.t5_tokens,
        "vae_tiling": argument.vae_tiling,
    }


def drawing_inputs(pipeline: Pipeline) -> dict[str, object]:
    """Return what decides a pipeline's token ids, noise and picture."""
    image, mask, source = pipeline.image, pipeline.mask, pipeline.source
    folders = tuple(
        name
        for name in ("tokenizer", "tokenizer_2", "vae", "unet", "transformer")
        if (source.path / name).is_dir()
    )
    configs = [source.path / role / "config.json" for role in pipeline.encoders]
    return {
        "checkpoint": checkpoint_digest(source, folders),
        "kind": pipeline.kind,
        "encoders": pipeline.encoders,
        "read_by": [digest_file(config) for config in configs if config.is_file()],
        "texts": [*pipeline.texts, pipeline.negative_prompt],
        "steps": pipeline.steps,
        "seed": pipeline.seed,
        "size": [pipeline.height, pipeline.width],
        "image": digest_file(image) if image else "",
        "mask": digest_file(mask) if mask else "",
        "control": asdict(pipeline.control),
    }


def _sampling(pipeline: Pipeline) -> dict[str, object]:
    # A checkpoint without one is drawn with a scheduler that its family has.
    told = (pipeline.source.path / "scheduler").is_dir()
    return {
        "scheduler": checkpoint_digest(pipeline.source, ("scheduler",)) if told else "",
        "sampling": asdict(pipeline.sampling),
        "guidance_scale": pipeline.guidance_scale,
        "eta": pipeline.eta,
        "strength": pipeline.strength,
    }


def drawing_question(pipeline: Pipeline) -> str:
    """Return a digest of a pipeline's task: its inputs and its weights."""
    inputs = drawing_inputs(pipeline)
    # The weights of the encoders, below, have their configuration too.
    del inputs["read_by"]
    tokens = pipeline.t5_tokens
    return digest_value(
        {
            "inputs": inputs,
            "checkpoints": [
                weights_digest(component) for component in pipeline.components
            ],
            **_sampling(pipeline),
            # Left out where they are the default, for the same reason.
            **({"vae_tiling": True} if pipeline.vae_tiling else {}),
            **({"t5_tokens": tokens} if tokens != T5_TOKENS else {}),
        }
    )
