"""What the keys of a LoRA say: of which network, which layer, and which part of it.

Trainers write them in four ways. What diffusers reads too is renamed by its own
functions; a name that stays unknown is the caller's to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from harness.core.case import Source
from harness.core.errors import SuiteError

if TYPE_CHECKING:
    import torch

PEFT = "base_model.model."
"""How peft itself begins every key; diffusers has a network's name there."""

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
"""How kohya's scripts begin a key, to the folder of the network; empty for the one that
denoises, a transformer too."""

_HALF = re.compile(
    r"(?P<layer>.+?)\."
    r"(?:(?P<down>lora_A(?:\.default)?|lora_down|lora\.down|lora_linear_layer\.down)"
    r"|(?P<up>lora_B(?:\.default)?|lora_up|lora\.up|lora_linear_layer\.up))\.weight"
)
_FLUX = ("double_blocks_", "single_blocks_")
_ORIGINAL = ("input_blocks_", "middle_block_", "output_blocks_")
"""How names of Flux, and of UNets before diffusers, begin in kohya's files."""

FUSE = (
    "load and fuse it in diffusers (pipe.load_lora_weights(), pipe.fuse_lora(), "
    "pipe.unload_lora_weights(), pipe.save_pretrained()) and give that checkpoint"
)

Layers: TypeAlias = "dict[str, dict[str, torch.Tensor]]"
"""A layer's name to its parts: ``down``, ``up`` and maybe ``alpha``."""


def network_of(folder: str) -> str:
    """Return what a LoRA calls the network in `folder`.

    >>> network_of("unet_inpaint"), network_of("text_encoder_2")
    ('unet', 'text_encoder_2')
    """
    return max(filter(folder.startswith, _NETWORKS), key=len, default=folder)


def networks_of(source: Source) -> tuple[str, ...]:
    """Return what a LoRA calls the checkpoint's networks; its only one is ''."""
    if (source.path / "config.json").is_file():
        return ("",)
    found = {network_of(p.parent.name) for p in source.path.glob("*/config.json")}
    return tuple(sorted(found))


def layers_of(
    path: Path, tensors: Mapping[str, Any], networks: Iterable[str]
) -> dict[str, Layers]:
    """Return what a file has for each network.

    Raises:
        SuiteError: A key is of nothing that a LoRA has, or a half is missing, or it is
            of a network that is not among `networks`.

    """
    networks = tuple(networks)
    found: dict[str, Layers] = {}
    for key, value in tensors.items():
        match = _HALF.fullmatch(key)
        part = "alpha" if key.endswith(".alpha") else ""
        if match:
            part = "down" if match["down"] else "up"
        if not part:
            msg = (
                f"{path} has {key!r}, which is no part of a LoRA that the harness can "
                "merge; write it again with save_lora_weights() of diffusers, or "
                f"{FUSE}."
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


def _check_halves(path: Path, layers: Layers) -> None:
    for layer, parts in layers.items():
        if not {"down", "up"} <= parts.keys():
            msg = f"{path} has one half of {layer!r} and not the other; fetch it again."
            raise SuiteError(msg)


def _placed(layer: str, networks: tuple[str, ...]) -> tuple[str, str]:
    """Return whose layer it is, and its name there.

    A key that names no network is of the one that was trained: what denoises, unless it
    begins as CLIP does.

    >>> _placed("lora_unet_double_blocks_0_img_mlp_0", ("transformer", "vae"))
    ('transformer', 'double_blocks_0_img_mlp_0')
    >>> _placed("base_model.model.conv_in", ("text_encoder", "unet"))
    ('unet', 'conv_in')
    """
    layer = layer.removeprefix(PEFT)
    if networks == ("",):
        return "", layer
    # Where the checkpoint has neither, the caller says so.
    main = next((name for name in ("unet", "transformer") if name in networks), "unet")
    for begin, network in _KOHYA.items():
        if layer.startswith(begin):
            return network or main, layer.removeprefix(begin)
    network, _, rest = layer.partition(".")
    if network in _NETWORKS:
        return network, rest
    return "text_encoder" if network == "text_model" else main, layer


def from_flux(path: Path, layers: Layers) -> Layers:
    """Return kohya's layers of Flux under the names, and cut, as diffusers has them.

    Raises:
        SuiteError: diffusers cannot either.

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


def from_original(
    path: Path, names: Iterable[str], layers_per_block: int
) -> dict[str, str]:
    """Return kohya's names of a UNet's layers as diffusers' with ``_`` for each dot.

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
        # The first of a list of two, which diffusers puts in later.
        renamed[name] = f"{made}_0" if made.endswith("_to_out") else made
    return renamed


def _unnamed(path: Path, network: str, error: Exception) -> SuiteError:
    said = " ".join(str(error).split())
    return SuiteError(
        f"{path} has keys of {network} as kohya's scripts write them, and diffusers "
        f"cannot rename them ({type(error).__name__}: {said[:200]}); {FUSE}."
    )
