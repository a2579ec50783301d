"""A LoRA: read from a suite, and merged into a network's weights before it is exported.

What is deployed has one weight where training had two more beside it; so has the
reference, whose weights are the merged ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import SuiteError

if TYPE_CHECKING:
    import torch

    from harness.spec import Source
    from harness.toml_file import Table

_HALF = re.compile(
    r"(?P<layer>.+?)\."
    r"(?:(?P<down>lora_A(?:\.default)?|lora_down|lora\.down|lora_linear_layer\.down)"
    r"|(?P<up>lora_B(?:\.default)?|lora_up|lora\.up|lora_linear_layer\.up))\.weight"
)
"""Keys as peft, kohya's scripts and diffusers have written them."""

_KOHYA = {
    "lora_unet_": "unet",
    "lora_te_": "text_encoder",
    "lora_te1_": "text_encoder",
    "lora_te2_": "text_encoder_2",
}
"""How kohya's scripts begin a key, to the folder of the network."""

_FOLDERS = ("unet", "transformer", "text_encoder", "text_encoder_2")
_ADAPTER = re.compile(r"\.lora_(?:A|B|up|down)\.|\.lora\.(?:up|down)\.|\.base_layer\.")

HOW_TO_MERGE = (
    "Merge it before exporting, with pipe.fuse_lora(), pipe.unload_lora_weights() and "
    "pipe.save_pretrained(); or give the plain checkpoint, and the file as `lora` "
    "under [source]."
)


def read_lora(table: Table) -> dict[str, Any]:
    """Take `lora` and `lora_scale` from ``[source]``, as arguments of a `Source`.

    Raises:
        SuiteError: There is no such file.

    """
    name, scale = table.take("lora", str, ""), table.take("lora_scale", float, 1.0)
    if not name:
        return {}
    path = (table.file.path.parent / Path(name).expanduser()).resolve()
    if not path.is_file():
        text = f"there is no file {path}."
        raise table.error(text, "lora")
    return {"lora": path, "lora_scale": scale}


def adapter_of(names: Iterable[str]) -> str:
    """Return the first name that belongs to an adapter's layer; empty without one.

    >>> adapter_of(["to_q.weight", "to_q.lora_A.weight"])
    'to_q.lora_A.weight'
    """
    return next((name for name in names if _ADAPTER.search(f".{name}")), "")


def merge_lora(module: torch.nn.Module, source: Source, folder: str) -> None:
    """Add what `source.lora` has learnt of the network in `folder` to its weights.

    Raises:
        SuiteError: The file is no LoRA of this checkpoint.

    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = source.lora
    assert path is not None  # noqa: S101  # asked for only where there is one
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        msg = f"{path} cannot be read as safetensors: {error}."
        raise SuiteError(msg) from None
    layers = dict(module.named_modules())
    kohya = {name.replace(".", "_"): name for name in layers}
    for key, halves in _halves(path, tensors, folder).items():
        name = key if key in layers else kohya.get(key, "")
        # transformers 5 has no text_model around a text encoder's layers any more.
        bare = re.sub(r"^text_model[._]", "", key)
        name = name or (bare if bare in layers else kohya.get(bare, ""))
        weight = getattr(layers.get(name), "weight", None)
        down, up = halves["down"].float(), halves["up"].float()
        learnt = (up.flatten(1) @ down.flatten(1)).flatten()
        if weight is None or weight.numel() != learnt.numel():
            msg = (
                f"{path} adapts {key!r}, which {folder} of {source.path} does not have "
                "in that shape; it is a LoRA of another model."
            )
            raise SuiteError(msg)
        alpha = float(halves.get("alpha", torch.tensor(float(len(down)))))
        with torch.no_grad():
            share = source.lora_scale * alpha / len(down)
            weight += share * learnt.reshape(weight.shape)


def _owner(folder: str) -> str:
    """Return what a LoRA calls the network in `folder`.

    >>> _owner("unet_inpaint"), _owner("text_encoder_2")
    ('unet', 'text_encoder_2')
    """
    return max(filter(folder.startswith, _FOLDERS), key=len, default=folder)


def _halves(
    path: Path, tensors: Mapping[str, torch.Tensor], folder: str
) -> dict[str, dict[str, torch.Tensor]]:
    """Return what a file has for the network in `folder`: layer to both halves.

    Raises:
        SuiteError: A key is of nothing that a LoRA has, or a half is missing.

    """
    found: dict[str, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        match = _HALF.fullmatch(key)
        part = "alpha" if key.endswith(".alpha") else ""
        if match:
            part = "down" if match["down"] else "up"
        layer = match["layer"] if match else key.removesuffix(".alpha")
        owner, _, rest = layer.partition(".")
        for begin, network in _KOHYA.items():
            if layer.startswith(begin):
                owner, rest = network, layer.removeprefix(begin)
        if not part or owner not in _FOLDERS:
            msg = (
                f"{path} has {key!r}, which is no part of a LoRA that the harness can "
                "merge; write it again with save_lora_weights() of diffusers, or merge "
                "it there and give the merged checkpoint."
            )
            raise SuiteError(msg)
        if owner == _owner(folder):
            found.setdefault(rest, {})[part] = value
    for layer, halves in found.items():
        if not {"down", "up"} <= halves.keys():
            msg = f"{path} has one half of {layer!r} and not the other; fetch it again."
            raise SuiteError(msg)
    return found
