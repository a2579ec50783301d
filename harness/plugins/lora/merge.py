"""Merge a suite's LoRA into a network's weights before the export.

Training has two further weights beside each adapted one. A deployed network has one
merged weight instead, and so has the reference.

Trainers write the keys of a file in four ways. diffusers renames keys of the original
Stable Diffusion XL and Flux. diffusers and peft do not load the file, because they drop
unknown parts without an error (layers beside known ones, DoRA's scales, another
network's keys). Then the reference would have less of the LoRA than the app.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from harness.core.errors import SuiteError
from harness.core.received import DamagedError, convert, decode, read_bytes
from harness.core.text import printable
from harness.recipes.checkpoint import shapes_of
from harness.recipes.configuration import CONFIG_BYTES

if TYPE_CHECKING:
    import torch

    from harness.core.case import Source

_METADATA = "lora_adapter_metadata"
"""The key in a file's header where diffusers stores peft's configuration."""

_CONFIG = "adapter_config.json"
"""The file beside the weights where peft stores its configuration."""

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
_BLOCK = re.compile("lora_unet_(?:input_blocks|middle_block|output_blocks)_")
"""The beginning of kohya's keys of an original UNet's blocks."""

_FUSE = (
    "load and fuse it in diffusers (pipe.load_lora_weights(), pipe.fuse_lora(), "
    "pipe.unload_lora_weights(), pipe.save_pretrained()) and give that checkpoint"
)

_Layers: TypeAlias = "dict[str, dict[str, torch.Tensor]]"
"""The parts of each layer by its name: ``down``, ``up`` and maybe ``alpha``."""


class _Told(msgspec.Struct):
    """The part of peft's configuration that decides the scale of each layer."""

    lora_alpha: float | None = None
    alpha_pattern: dict[str, float] | None = None
    use_rslora: bool | None = None


_REPETITIONS = 3
"""Most repetitions in a pattern of layers; peft writes names, and ``.*name``."""

_SHOWN = 80
"""Most characters of a pattern that a message shows."""


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the files that decide which weights a LoRA adds."""
    config = path.parent / _CONFIG
    return (path, config) if config.is_file() else (path,)


@dataclass(frozen=True, slots=True)
class SourceLora:
    """The LoRA of a source, as an `Adapter`."""

    source: Source
    path: Path

    @property
    def files(self) -> tuple[Path, ...]:
        """The file, and peft's configuration beside it."""
        return files_of(self.path)

    def refusal(self, folders: Collection[str]) -> str:
        """Return why it would change none of the networks in some folders, or ""."""
        shapes = shapes_of(self.path)
        adapted = layers_of(self.path, shapes, networks_of(self.source))
        if {network_of(folder) for folder in folders}.isdisjoint(adapted):
            return (
                f"{self.path} adapts {' and '.join(adapted)}, of which nothing is "
                "tested here, so it would change no number; list what it adapts in "
                "`components`, or leave `lora` out."
            )
        return ""

    def merge(self, module: torch.nn.Module, folder: str) -> None:
        """Add its weights for the network in a folder to that network."""
        merge_lora(module, self.source, folder)


def lora_of(source: Source) -> SourceLora | None:
    """Return the LoRA that a source names, or None."""
    return SourceLora(source, source.lora) if source.lora else None


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
    except (SafetensorError, OSError, ValueError, TypeError, LookupError) as error:
        msg = f"{path} cannot be read as safetensors: {error}."
        raise SuiteError(msg) from None
    network = network_of(folder)
    layers = layers_of(path, tensors, networks_of(source)).get(network, {})
    named = _named(module, layers, headed=not network)
    unknown = {k: v for k, v in layers.items() if k not in named and "." not in k}
    # A transformer other than Flux has no original names that diffusers could rename.
    known_names = network == "unet" or any(key.startswith(_FLUX) for key in unknown)
    own = {id(parts): key for key, parts in layers.items()}
    if unknown and known_names:
        layers = {k: v for k, v in layers.items() if k not in unknown}
        layers |= _renamed(path, unknown, network, module)
        named = _named(module, layers)
    told = _told(path, header, network, peft=any(k.startswith(_PEFT) for k in tensors))
    for layer, parts in layers.items():
        weight = getattr(named.get(layer), "weight", None)
        if weight is None or not _fits(weight, parts):
            key = own.get(id(parts), layer)
            msg = (
                f"{path} adapts {key!r}, which {folder or 'the network'} of "
                f"{source.path} does not have in that shape; it is a LoRA of another "
                "model, or in names that the harness does not read. If it is this "
                f"model's, {_FUSE}."
            )
            raise SuiteError(msg)
        share = source.lora_scale * _share(layer, parts, told)
        down, up = parts["down"].float(), parts["up"].float()
        learnt = (up.flatten(1) @ down.flatten(1)).flatten()
        with torch.no_grad():
            weight += share * learnt.reshape(weight.shape)


def _named(
    module: torch.nn.Module, keys: Iterable[str], *, headed: bool = False
) -> dict[str, torch.nn.Module]:
    """Return the module's layer for each key that names one."""
    exact = {name: layer for name, layer in module.named_modules() if name}
    layers = {name.replace(".", "_"): layer for name, layer in exact.items()} | exact
    named = {}
    for key in keys:
        # transformers 5 no longer has text_model before a text encoder's layers. A text
        # model that was trained with a head has its own name before each layer.
        bare = re.sub(r"^text_model[._]", "", key)
        tried = (key, bare, key.partition(".")[2] if headed else "")
        if name := next((one for one in tried if one in layers), ""):
            named[key] = layers[name]
    return named


def _fits(weight: torch.Tensor, parts: Mapping[str, torch.Tensor]) -> bool:
    """Whether the product of a layer's halves has a weight's shape.

    It is asked before they are multiplied: two small halves can have a product that is
    larger than the memory.
    """
    up, down = parts["up"], parts["down"]
    alpha = parts.get("alpha")
    if min(up.ndim, down.ndim) < 2 or not len(down):  # noqa: PLR2004  # no two halves
        return False
    if alpha is not None and alpha.numel() != 1:
        return False
    size = len(up) * math.prod(down.shape[1:])
    # One of the same size with other rows is another layer's, transposed.
    same = weight.ndim > 0 and len(weight) == len(up) and weight.numel() == size
    return same and math.prod(up.shape[1:]) == len(down)


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
    config, is_beside = path.parent / _CONFIG, not text and peft
    if is_beside:
        where = str(config)
        if not config.is_file():
            msg = (
                f"{path} has peft's own keys, and their scale is in {config}, which is "
                "missing; put it there."
            )
            raise SuiteError(msg)
    prefix = f"{network}."
    try:
        content = read_bytes(config, CONFIG_BYTES) if is_beside else text.encode()
        told = decode(content or b"{}", dict[str, Any])
        own = {
            k.removeprefix(prefix): v for k, v in told.items() if k.startswith(prefix)
        }
        for pattern in convert(own or told, _Told).alpha_pattern or ():
            _check_pattern(pattern)
    except (OSError, DamagedError) as error:
        msg = f"What {where} says of the LoRA cannot be read ({error}); fetch it again."
        raise SuiteError(msg) from None
    return own or told


def _check_pattern(pattern: str) -> None:
    """Refuse what is no regular expression, or might be matched for ever.

    The time of a match grows with a power of the name's length, and the power is the
    number of repetitions. Where one repeats a group, it grows without a bound.

    Raises:
        DamagedError: It is such an expression.

    """
    shown = printable(pattern, _SHOWN)
    repetitions = len(re.findall(r"[*+?{]", pattern))
    if repetitions > _REPETITIONS or re.search(r"\)[*+?{]", pattern):
        msg = f"the pattern {shown!r} repeats too much"
        raise DamagedError(msg)
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        msg = f"{shown!r} is no regular expression: {error}"
        raise DamagedError(msg) from None


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
    for layer, parts in (each for layers in found.values() for each in layers.items()):
        if not {"down", "up"} <= parts.keys():
            msg = f"{path} has one half of {layer!r} and not the other; fetch it again."
            raise SuiteError(msg)
    if not found:
        msg = f"{path} has no weights in it; fetch it again."
        raise SuiteError(msg)
    return found


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


def _renamed(
    path: Path, layers: _Layers, network: str, module: torch.nn.Module
) -> _Layers:
    """Return kohya's layers of the original network, with diffusers' names.

    Fused layers of Flux are split.

    Raises:
        SuiteError: diffusers cannot rename them.

    """
    from diffusers import loaders

    keys = {"down": "lora_down.weight", "up": "lora_up.weight", "alpha": "alpha"}
    tensors = {
        f"lora_unet_{name}.{keys[part]}": value
        for name, parts in layers.items()
        for part, value in parts.items()
    }
    try:
        if network == "transformer":
            made = loaders.FluxLoraLoaderMixin.lora_state_dict(tensors)
            return layers_of(path, made, (network,))[network]
        xl = loaders.StableDiffusionXLLoraLoaderMixin
        made = {}
        # diffusers drops these blocks where others have its own names.
        for inside in (True, False):
            some = {k: v for k, v in tensors.items() if bool(_BLOCK.match(k)) is inside}
            made |= xl.lora_state_dict(some, unet_config=module.config)[0]
    except Exception as error:  # what it raises has no class of its own
        said = " ".join(str(error).split())
        msg = (
            f"{path} has keys as kohya's scripts write them, and diffusers cannot "
            f"rename them ({type(error).__name__}: {said[:200]}); {_FUSE}."
        )
        raise SuiteError(msg) from error
    names = {id(value): key for key, value in made.items()}
    renamed = {}
    for name, parts in layers.items():
        key = names.get(id(parts["down"]), name).removeprefix("unet.")
        key = re.sub(r"[._]lora\.down\.weight$", "", key)
        key = key.replace(".processor.", ".").replace(".", "_")
        # The layer is the first of a list of two; diffusers adds this index later.
        renamed[f"{key}_0" if key.endswith("_to_out") else key] = parts
    return renamed
