"""Merge a suite's LoRA into a network's weights before the export.

Training has two further weights beside each adapted one. A deployed network has one
merged weight instead, and so has the reference.

Trainers write the keys of a file in four ways. diffusers' own functions rename the keys
that diffusers knows. diffusers and peft do not load the file, because they drop unknown
parts without an error (layers beside known ones, DoRA's scales, another network's
keys). Then the reference would have less of the LoRA than the app.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from harness.core.errors import SuiteError

if TYPE_CHECKING:
    import torch

    from harness.core.case import Source

_METADATA = "lora_adapter_metadata"
"""The key in a file's header where diffusers stores peft's configuration."""

_CONFIG = "adapter_config.json"
"""The file beside the weights where peft stores its configuration."""

_ADAPTER = re.compile(r"\.lora_(?:A|B|up|down)\.|\.lora\.(?:up|down)\.|\.base_layer\.")

HOW_TO_MERGE = (
    "Merge it before exporting, with pipe.fuse_lora(), pipe.unload_lora_weights() and "
    "pipe.save_pretrained(); or give the plain checkpoint, and the file as `lora` "
    "under [source]."
)

_PEFT = "base_model.model."
"""The prefix of every key that peft writes; diffusers writes a network's name there."""

_NETWORKS = (
    *("unet", "transformer"),
    *("text_encoder", "text_encoder_2", "text_encoder_3"),
)
_KOHYA = {
    "lora_unet_": "",
    "lora_te_": "text_encoder",
    "lora_te1_": "text_encoder",
    "lora_te2_": "text_encoder_2",
    "lora_te3_": "text_encoder_3",
}
"""The network's folder for each prefix of kohya's keys. It is empty for the denoising
network, which may be a transformer."""

_HALF = re.compile(
    r"(?P<layer>.+?)\."
    r"(?:(?P<down>lora_A(?:\.default)?|lora_down|lora\.down|lora_linear_layer\.down)"
    r"|(?P<up>lora_B(?:\.default)?|lora_up|lora\.up|lora_linear_layer\.up))\.weight"
)
_FLUX = ("double_blocks_", "single_blocks_")
_ORIGINAL = ("input_blocks_", "middle_block_", "output_blocks_")
"""Prefixes of layer names in kohya's files: Flux, and UNets with original names."""

_FUSE = (
    "load and fuse it in diffusers (pipe.load_lora_weights(), pipe.fuse_lora(), "
    "pipe.unload_lora_weights(), pipe.save_pretrained()) and give that checkpoint"
)

_Layers: TypeAlias = "dict[str, dict[str, torch.Tensor]]"
"""The parts of each layer by its name: ``down``, ``up`` and maybe ``alpha``."""


def adapter_of(names: Iterable[str]) -> str:
    """Return the first name that belongs to an adapter's layer; empty without one.

    >>> adapter_of(["to_q.weight", "to_q.lora_A.weight"])
    'to_q.lora_A.weight'
    """
    return next((name for name in names if _ADAPTER.search(f".{name}")), "")


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the files that decide which weights a LoRA adds."""
    config = path.parent / _CONFIG
    return (path, config) if config.is_file() else (path,)


def merge_lora(module: torch.nn.Module, source: Source, folder: str) -> None:
    """Add the weights of `source.lora` for the network in `folder` to the network.

    Raises:
        SuiteError: The file is no LoRA of this checkpoint, or a part cannot be read.

    """
    import torch
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    path = source.lora
    assert path is not None  # noqa: S101  # the caller checks that there is one
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
        found = _from_flux(path, found)
    told = _told(path, header, network, peft=any(k.startswith(_PEFT) for k in tensors))
    names = _names(path, module, found, headed=not network)
    layers = dict(module.named_modules())
    for key, parts in found.items():
        weight = getattr(layers.get(names[key]), "weight", None)
        down, up = parts["down"].float(), parts["up"].float()
        learnt = (up.flatten(1) @ down.flatten(1)).flatten()
        if (
            weight is None
            or weight.numel() != learnt.numel()
            or len(weight) != len(up)  # or it is another layer's, transposed
        ):
            msg = (
                f"{path} adapts {key!r}, which {folder or 'the network'} of "
                f"{source.path} does not have in that shape; it is a LoRA of another "
                "model, or in names that the harness does not read. If it is this "
                f"model's, {_FUSE}."
            )
            raise SuiteError(msg)
        share = source.lora_scale * _share(key, parts, told)
        with torch.no_grad():
            weight += share * learnt.reshape(weight.shape)


def _names(
    path: Path, module: torch.nn.Module, found: _Layers, *, headed: bool
) -> dict[str, str]:
    """Return each layer's name in the module; empty if it has none."""
    layers = {name for name, _ in module.named_modules()}
    flat = {name.replace(".", "_"): name for name in layers}
    names = {}
    for key in found:
        # transformers 5 no longer has text_model before a text encoder's layers. A text
        # model that was trained with a head has its own name before each layer.
        bare = re.sub(r"^text_model[._]", "", key)
        tried = (key, bare, key.partition(".")[2] if headed else "")
        known = (one if one in layers else flat.get(one) for one in tried if one)
        names[key] = next(filter(None, known), "")
    blocks = getattr(getattr(module, "config", None), "layers_per_block", None)
    unknown = [key for key, name in names.items() if not name and "." not in key]
    if unknown and blocks is not None:
        for key, name in _from_original(path, unknown, blocks).items():
            names[key] = flat.get(name, "")
    return names


def _told(
    path: Path, header: Mapping[str, str], network: str, *, peft: bool
) -> dict[str, Any]:
    """Return the training's configuration of the scale; empty if no file has it.

    Without it a LoRA is added unscaled, as diffusers does. A file of peft always has
    it.

    Raises:
        SuiteError: The configuration cannot be read, or a file of peft lacks it.

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
    """Return the factor of a layer's product: alpha over rank."""
    rank = len(parts["down"])
    alpha = told.get("lora_alpha") or rank
    for pattern, value in (told.get("alpha_pattern") or {}).items():
        if re.fullmatch(rf"(?:.*\.)?(?:{pattern})", layer):
            alpha = value
            break
    if "alpha" in parts:
        alpha = float(parts["alpha"])
    return float(alpha) / (math.sqrt(rank) if told.get("use_rslora") else rank)


def network_of(folder: str) -> str:
    """Return a LoRA's name for the network in `folder`.

    >>> network_of("unet_inpaint"), network_of("text_encoder_2")
    ('unet', 'text_encoder_2')
    """
    return max(filter(folder.startswith, _NETWORKS), key=len, default=folder)


def networks_of(source: Source) -> tuple[str, ...]:
    """Return a LoRA's names for the checkpoint's networks; '' for a single network."""
    if (source.path / "config.json").is_file():
        return ("",)
    found = {network_of(p.parent.name) for p in source.path.glob("*/config.json")}
    return tuple(sorted(found))


def layers_of(
    path: Path, tensors: Mapping[str, Any], networks: Iterable[str]
) -> dict[str, _Layers]:
    """Return the layers of a file for each network.

    Raises:
        SuiteError: A key is unknown, a layer lacks one of its two halves, or a network
            is not among `networks`.

    """
    networks = tuple(networks)
    found: dict[str, _Layers] = {}
    for key, value in tensors.items():
        match = _HALF.fullmatch(key)
        part = "alpha" if key.endswith(".alpha") else ""
        if match:
            part = "down" if match["down"] else "up"
        if not part:
            msg = (
                f"{path} has {key!r}, which is no part of a LoRA that the harness can "
                "merge; write it again with save_lora_weights() of diffusers, or "
                f"{_FUSE}."
            )
            raise SuiteError(msg)
        layer = match["layer"] if match else key.removesuffix(".alpha")
        network, rest = _placed(layer, networks)
        if network not in networks:
            msg = (
                f"{path} has {key!r} for a {network}, and the checkpoint has "
                f"{', '.join(networks) or 'none'}; it is a LoRA of another model. Give "
                "one that was trained on this."
            )
            raise SuiteError(msg)
        found.setdefault(network, {}).setdefault(rest, {})[part] = value
    for layers in found.values():
        _check_halves(path, layers)
    if not found:
        msg = f"{path} has no weights in it; fetch it again."
        raise SuiteError(msg)
    return found


def _check_halves(path: Path, layers: _Layers) -> None:
    for layer, parts in layers.items():
        if not {"down", "up"} <= parts.keys():
            msg = f"{path} has one half of {layer!r} and not the other; fetch it again."
            raise SuiteError(msg)


def _placed(layer: str, networks: tuple[str, ...]) -> tuple[str, str]:
    """Return the network of a layer, and the layer's name there.

    A key without a network belongs to the denoising network, unless it begins like a
    key of CLIP.

    >>> _placed("lora_unet_double_blocks_0_img_mlp_0", ("transformer", "vae"))
    ('transformer', 'double_blocks_0_img_mlp_0')
    >>> _placed("base_model.model.conv_in", ("text_encoder", "unet"))
    ('unet', 'conv_in')
    """
    layer = layer.removeprefix(_PEFT)
    if networks == ("",):
        return "", layer
    # If the checkpoint has neither, the caller reports it.
    main = next((name for name in ("unet", "transformer") if name in networks), "unet")
    for begin, network in _KOHYA.items():
        if layer.startswith(begin):
            return network or main, layer.removeprefix(begin)
    network, _, rest = layer.partition(".")
    if network in _NETWORKS:
        return network, rest
    return "text_encoder" if network == "text_model" else main, layer


def _from_flux(path: Path, layers: _Layers) -> _Layers:
    """Return kohya's layers of Flux, renamed and split as in diffusers.

    Raises:
        SuiteError: diffusers cannot convert them.

    """
    if not any(name.startswith(_FLUX) for name in layers):
        return layers
    from diffusers.loaders import lora_conversion_utils as theirs

    keys = {"down": "lora_down.weight", "up": "lora_up.weight", "alpha": "alpha"}
    tensors = {
        f"lora_unet_{name}.{keys[part]}": value
        for name, parts in layers.items()
        for part, value in parts.items()
    }
    try:
        made = theirs._convert_kohya_flux_lora_to_diffusers(tensors)  # noqa: SLF001  # no public way
    except Exception as error:  # noqa: BLE001  # what it raises has no class of its own
        raise _unnamed(path, "Flux", error) from None
    return layers_of(path, made, ("transformer",))["transformer"]


def _from_original(
    path: Path, names: Iterable[str], layers_per_block: int
) -> dict[str, str]:
    """Return diffusers' names for kohya's UNet layers, with ``_`` for each dot.

    Raises:
        SuiteError: diffusers cannot rename them.

    """
    from diffusers.loaders import lora_conversion_utils as theirs

    whole = {f"lora_unet_{name}": name for name in names}
    blocks = {k: n for k, n in whole.items() if n.startswith(_ORIGINAL)}
    config = SimpleNamespace(layers_per_block=layers_per_block)
    try:
        mapped = theirs._maybe_map_sgm_blocks_to_diffusers(dict(blocks), config)  # noqa: SLF001  # no public way
    except Exception as error:  # noqa: BLE001  # what it raises has no class of its own
        raise _unnamed(path, "a UNet", error) from None
    mapped |= {k: n for k, n in whole.items() if k not in blocks}
    renamed = {}
    for key, name in mapped.items():
        made = theirs._convert_unet_lora_key(f"{key}.lora_down.weight")  # noqa: SLF001  # as above
        made = re.sub(r"[._]lora\.down\.weight$", "", made)
        made = made.replace(".processor.", ".").replace(".", "_")
        # The layer is the first of a list of two; diffusers adds this index later.
        renamed[name] = f"{made}_0" if made.endswith("_to_out") else made
    return renamed


def _unnamed(path: Path, network: str, error: Exception) -> SuiteError:
    said = " ".join(str(error).split())
    return SuiteError(
        f"{path} has keys of {network} as kohya's scripts write them, and diffusers "
        f"cannot rename them ({type(error).__name__}: {said[:200]}); {_FUSE}."
    )
