"""A LoRA: read from a suite, and merged into a network's weights before it is exported.

What is deployed has one weight where training had two more beside it; so has the
reference, whose weights are the merged ones.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import SuiteError
from harness.recipes.lora_names import (
    FUSE,
    PEFT,
    Layers,
    from_flux,
    from_original,
    layers_of,
    network_of,
    networks_of,
)

if TYPE_CHECKING:
    import torch

    from harness.core.case import Source

_METADATA = "lora_adapter_metadata"
"""Where diffusers keeps, in a file's header, what peft was told."""

_CONFIG = "adapter_config.json"
"""Where peft itself keeps it, beside the file."""

_ADAPTER = re.compile(r"\.lora_(?:A|B|up|down)\.|\.lora\.(?:up|down)\.|\.base_layer\.")

HOW_TO_MERGE = (
    "Merge it before exporting, with pipe.fuse_lora(), pipe.unload_lora_weights() and "
    "pipe.save_pretrained(); or give the plain checkpoint, and the file as `lora` "
    "under [source]."
)


def adapter_of(names: Iterable[str]) -> str:
    """Return the first name that belongs to an adapter's layer; empty without one.

    >>> adapter_of(["to_q.weight", "to_q.lora_A.weight"])
    'to_q.lora_A.weight'
    """
    return next((name for name in names if _ADAPTER.search(f".{name}")), "")


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the files that decide what a LoRA adds."""
    config = path.parent / _CONFIG
    return (path, config) if config.is_file() else (path,)


def merge_lora(module: torch.nn.Module, source: Source, folder: str) -> None:
    """Add what `source.lora` has learnt of the network in `folder` to its weights.

    Raises:
        SuiteError: The file is no LoRA of this checkpoint, or cannot all be read.

    """
    import torch
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    path = source.lora
    assert path is not None  # noqa: S101  # asked for only where there is one
    try:
        tensors = load_file(path)
        with safe_open(path, framework="numpy") as opened:
            header = opened.metadata() or {}
    except (SafetensorError, OSError) as error:
        msg = f"{path} cannot be read as safetensors: {error}."
        raise SuiteError(msg) from None
    network = network_of(folder)
    found = layers_of(path, tensors, networks_of(source)).get(network, {})
    if network == "transformer":
        found = from_flux(path, found)
    told = _told(path, header, network, peft=any(k.startswith(PEFT) for k in tensors))
    names = _names(path, module, found, headed=not network)
    layers = dict(module.named_modules())
    for key, parts in found.items():
        weight = getattr(layers.get(names[key]), "weight", None)
        down, up = parts["down"].float(), parts["up"].float()
        learnt = (up.flatten(1) @ down.flatten(1)).flatten()
        if (
            weight is None
            or weight.numel() != learnt.numel()
            or len(weight) != len(up)  # else another layer's, turned on its side
        ):
            msg = (
                f"{path} adapts {key!r}, which {folder or 'the network'} of "
                f"{source.path} does not have in that shape; it is a LoRA of another "
                "model, or in names that the harness does not read. If it is this "
                f"model's, {FUSE}."
            )
            raise SuiteError(msg)
        share = source.lora_scale * _share(key, parts, told)
        with torch.no_grad():
            weight += share * learnt.reshape(weight.shape)


def _names(
    path: Path, module: torch.nn.Module, found: Layers, *, headed: bool
) -> dict[str, str]:
    """Return each layer's name in the module; empty where it has none."""
    layers = {name for name, _ in module.named_modules()}
    flat = {name.replace(".", "_"): name for name in layers}
    names = {}
    for key in found:
        # transformers 5 has no text_model around a text encoder's layers any more; a
        # text model that was trained with a head has its own name before each.
        bare = re.sub(r"^text_model[._]", "", key)
        tried = (key, bare, key.partition(".")[2] if headed else "")
        known = (one if one in layers else flat.get(one) for one in tried if one)
        names[key] = next(filter(None, known), "")
    blocks = getattr(getattr(module, "config", None), "layers_per_block", None)
    unknown = [key for key, name in names.items() if not name and "." not in key]
    if unknown and blocks is not None:
        for key, name in from_original(path, unknown, blocks).items():
            names[key] = flat.get(name, "")
    return names


def _told(
    path: Path, header: Mapping[str, str], network: str, *, peft: bool
) -> dict[str, Any]:
    """Return what training was told of its scale; nothing where no file says.

    Without it a LoRA is added as it is, as diffusers adds it. Peft's own always has it.

    Raises:
        SuiteError: It cannot be read, or is missing where it must be.

    """
    text, where = header.get(_METADATA, ""), f"the header of {path}"
    if not text and peft:
        where = f"{path.parent / _CONFIG}"
        if not Path(where).is_file():
            msg = (
                f"{path} has peft's own keys, and their scale is in {where}, which is "
                "missing; put it there."
            )
            raise SuiteError(msg)
        text = Path(where).read_text(encoding="utf-8")
    try:
        told = json.loads(text or "{}")
        own = {
            key.removeprefix(f"{network}."): value
            for key, value in told.items()
            if key.startswith(f"{network}.")
        }
    except (ValueError, AttributeError) as error:
        msg = f"What {where} says of the LoRA cannot be read ({error}); fetch it again."
        raise SuiteError(msg) from None
    return own or told


def _share(
    layer: str, parts: Mapping[str, torch.Tensor], told: Mapping[str, Any]
) -> float:
    """Return what a layer's product is multiplied by: alpha over rank."""
    rank = len(parts["down"])
    alpha = told.get("lora_alpha") or rank
    for pattern, value in (told.get("alpha_pattern") or {}).items():
        if re.fullmatch(rf"(?:.*\.)?(?:{pattern})", layer):
            alpha = value
            break
    if "alpha" in parts:
        alpha = float(parts["alpha"])
    return float(alpha) / (math.sqrt(rank) if told.get("use_rslora") else rank)
