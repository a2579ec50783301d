"""Read a diffusers folder: configurations, weights, tokenizer, scheduler.

The recipes share these functions. Each function imports the framework that it needs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from harness.core.case import Source
from harness.core.errors import SuiteError
from harness.core.received import DamagedError, leads_inside, read_json
from harness.core.text import shortened
from harness.core.toml_file import did_you_mean
from harness.recipes.adapters import HOW_TO_MERGE, adapter_for, adapter_of
from harness.recipes.configuration import CONFIG_BYTES, Config, read_object

if TYPE_CHECKING:
    import torch

    from harness.recipes.types import Options

ZERO_CONV_STD = 0.02
"""Standard deviation of drawn zero-convolutions. It is large enough that a ControlNet's
residuals matter, and small enough that the UNet stays finite."""

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
SAFETENSORS = ".safetensors"
WEIGHTS = (SAFETENSORS, *_PICKLES)
"""Files that hold weights; loading refuses pickles with a message."""

_ALONE = ("diffusion_pytorch_model.safetensors", "model.safetensors")
_OF_TRAINING = {"caption_projection.y_embedding"}
"""Weights that published networks (PixArt) have and that only their training reads."""
_LOADED = (
    # diffusers looks for an index first, transformers for the file.
    f"{_ALONE[0]}.index.json",
    *_ALONE,
    f"{_ALONE[1]}.index.json",
)
"""Names of the files that diffusers and transformers read without a variant."""

TEXT_FOLDERS = ("text_encoder", "text_encoder_2", "text_encoder_3")
"""Folders of text encoders. A T5 is in the first for PixArt, in the second for Flux, in
the third for Stable Diffusion 3."""

T5 = "T5EncoderModel"
"""The architecture that the configuration of a T5 encoder names."""


class _Shards(msgspec.Struct):
    """An index of shards: each tensor, and the file that has it."""

    weight_map: dict[str, str]


def read_config(source: Source, folder: str) -> Config:
    """Return ``<folder>/config.json``.

    Raises:
        SuiteError: The folder or the file is missing, or is not JSON.

    """
    path = source.path / folder / "config.json"
    if not source.path.is_dir():
        msg = f"There is no checkpoint at {source.path}: no such folder."
        raise SuiteError(msg)
    if not path.is_file():
        have = sorted(child.parent.name for child in source.path.glob("*/config.json"))
        msg = (
            f"{source.path} has no component {folder!r} ({path} is missing); it has "
            f"{', '.join(have) or 'none'}. Correct `components` in parity.toml."
        )
        raise SuiteError(msg)
    return read_object(path)


def read_index(source: Source) -> dict[str, Any]:
    """Return ``model_index.json``; empty if a checkpoint has none.

    Raises:
        SuiteError: The file is no JSON object.

    """
    path = source.path / "model_index.json"
    return read_object(path) if path.is_file() else {}


def vocabulary(source: Source) -> int:
    """Return the number of token ids of the source's text encoder.

    Raises:
        SuiteError: No configuration has it.

    """
    # SDXL's refiner has only the second encoder.
    folder = next((f for f in TEXT_FOLDERS if (source.path / f).is_dir()), "")
    config = read_config(source, folder)
    return int(config["vocab_size"])


def clip_encoders(source: Source) -> tuple[str, ...]:
    """Return the checkpoint's folders that hold a CLIP text encoder."""
    return tuple(
        folder
        for folder, config in _text_configs(source)
        if folder in TEXT_FOLDERS[:2]
        and str(config.get("model_type", "clip")).startswith("clip")
    )


def t5_folder(source: Source) -> str:
    """Return the folder whose configuration is of a T5 encoder; empty without one."""
    found = (
        folder
        for folder, config in _text_configs(source)
        if T5 in (config.get("architectures") or ())
    )
    return next(found, "")


def _text_configs(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    for folder in TEXT_FOLDERS:
        if (source.path / folder / "config.json").is_file():
            yield folder, read_config(source, folder)


def tokenizer_of(folder: str) -> str:
    """Return the tokenizer's folder for a text encoder's folder.

    >>> tokenizer_of("text_encoder_2")
    'tokenizer_2'
    """
    return folder.replace("text_encoder", "tokenizer")


def weight_files(home: Path) -> list[Path]:
    """Return the files that loading reads in a folder: one, or the shards of an index.

    The result is empty if there are no safetensors. Copies in half precision or of the
    training's average have other names and are not read.

    Raises:
        SuiteError: All files have other names, or the index cannot be read or names
            missing shards.

    """
    for name in _LOADED:
        path = home / name
        if path.is_file():
            return [path] if path.suffix == SAFETENSORS else _shards(path)
    if others := sorted(path.name for path in home.glob(f"*{SAFETENSORS}")):
        msg = (
            f"{home} has no {' or '.join(_ALONE)}, which is "
            f"what loading reads, but {', '.join(others)}. Fetch the file without a "
            "variant, or save it again with save_pretrained(...) without `variant`; "
            "renamed, a half-precision copy would be the reference."
        )
        raise SuiteError(msg)
    return []


def likely_files(home: Path) -> list[Path]:
    """Return the files that a user's recipe would load; all weights if that fails."""
    with suppress(SuiteError):
        return weight_files(home)
    return sorted(home.glob(f"*{SAFETENSORS}"))


def _shards(index: Path) -> list[Path]:
    try:
        named = set(read_json(index, _Shards, CONFIG_BYTES).weight_map.values())
    except (OSError, DamagedError) as error:
        msg = (
            f"{index} ({index.stat().st_size:,} bytes) cannot be read as an index of "
            f"shards ({error}); fetch it again."
        )
        raise SuiteError(msg) from None
    if away := sorted(name for name in named if not leads_inside(name)):
        msg = (
            f"{index} names {shortened(away[0], 80)!r}, which is no file of that "
            "folder; fetch it again."
        )
        raise SuiteError(msg)
    shards = [index.parent / name for name in sorted(named)]
    if missing := [path.name for path in shards if not path.is_file()]:
        msg = (
            f"{index} names {len(shards)} shards, and {len(missing)} are not there, "
            f"{missing[0]} first; fetch them."
        )
        raise SuiteError(msg)
    return shards


def check_weights(source: Source, folder: str) -> list[Path]:
    """Return the files to load; refuse missing, pickled or truncated files.

    Raises:
        SuiteError: A file is refused. The message names it and the fix.

    """
    home = source.path / folder
    _refuse_adapters(home)
    if not (files := weight_files(home)):
        pickles = sorted(p.name for p in home.glob("*") if p.suffix in _PICKLES)
        if pickles:
            msg = (
                f"{home} holds its weights as a pickle ({pickles[0]}), which can run "
                "code when it is read; it is refused. Save it again with "
                "save_pretrained(..., safe_serialization=True)."
            )
        else:
            msg = (
                f"{home} has a config.json and no weights. Give the folder with its "
                "*.safetensors, or set `seed` under [source] to draw random weights."
            )
        raise SuiteError(msg)
    for file in files:
        shapes_of(file)
    return files


def _refuse_adapters(home: Path) -> None:
    for file in sorted(home.glob(f"*{SAFETENSORS}")):
        try:
            adapter = adapter_of(shapes_of(file))
        except SuiteError:  # no error, because this folder is not loaded
            continue
        if adapter:
            msg = f"{file} holds a LoRA that is not merged ({adapter}). {HOW_TO_MERGE}"
            raise SuiteError(msg)


def shapes_of(file: Path) -> Mapping[str, list[int]]:
    """Return the names and shapes of a safetensors file, from its header alone.

    Raises:
        SuiteError: It is no safetensors file, or it is truncated.

    """
    try:
        about = file.stat()
    except OSError as error:
        msg = f"{file} cannot be read ({error.strerror}); fetch it again."
        raise SuiteError(msg) from None
    return _shapes(file, about.st_size, about.st_mtime_ns)


# Every case of a network asks; a file that was written anew is read anew.
@functools.cache
def _shapes(file: Path, size: int, _changed: int) -> Mapping[str, list[int]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as opened:
            names = tuple(opened.keys())
            return {name: opened.get_slice(name).get_shape() for name in names}
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        msg = (
            f"{file} ({size:,} bytes) cannot be read as "
            f"safetensors: {error}. It may be truncated or a Git LFS pointer; "
            "fetch it again."
        )
        raise SuiteError(msg) from None


def load_network(
    source: Source,
    folder: str,
    network: type | str,
    *,
    attention: str = "",
    arguments: Mapping[str, Any] = MappingProxyType({}),
) -> torch.nn.Module:
    """Load or draw one network in float32 and eval mode.

    Args:
        source: Weights and configuration.
        folder: The component's folder in the checkpoint.
        network: The class, or the name of one in diffusers.
        attention: ``eager`` or ``sdpa`` for classes of transformers; empty for the
            default of the class.
        arguments: Further arguments of the class.

    Raises:
        SuiteError: Weights are missing, pickled, truncated, incomplete or not read.

    """
    import torch

    cls: Any = network
    if isinstance(network, str):
        import diffusers

        cls = getattr(diffusers, network)
    home = source.path / folder
    keywords = {"attn_implementation": attention} if attention else {}
    module: Any
    if source.seed is None:
        check_weights(source, folder)
        module, info = cls.from_pretrained(
            home,
            torch_dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            **keywords,
            **arguments,
        )
        # Without this error, they are drawn at random in each process, and only logged.
        if missing := sorted(info["missing_keys"]):
            msg = (
                f"{home} lacks {len(missing)} of the weights that its config.json asks "
                f"for, {missing[0]} first; fetch it again, or correct the "
                "configuration."
            )
            raise SuiteError(msg)
        unread = sorted({*info["unexpected_keys"]} - _OF_TRAINING)
        # A text model of transformers may have a head or another tower beside it.
        if unread and hasattr(cls, "load_config"):
            import diffusers

            msg = (
                f"{home} has {len(unread)} weights that {cls.__name__} of diffusers "
                f"{diffusers.__version__} does not read, {unread[0]} first, so it "
                "would be another network than the trained one. Install the diffusers "
                "that wrote it, or correct its config.json. If the network does "
                "without them, remove them from the file."
            )
            raise SuiteError(msg)
    else:
        torch.manual_seed(source.seed)
        if hasattr(cls, "load_config"):
            module = cls.from_config(cls.load_config(home))
        else:
            config = cls.config_class.from_pretrained(home, **keywords)
            module = cls(config, **arguments)
        _draw_zeros(module)
    loaded: torch.nn.Module = module.eval().requires_grad_(requires_grad=False)
    if any(weight.dtype != torch.float32 for weight in loaded.parameters()):
        loaded = loaded.to(torch.float32)  # diffusers always warns here
    if source.lora is not None:
        adapter_for(source).merge(loaded, folder)
    return loaded


def _draw_zeros(module: torch.nn.Module) -> None:
    """Draw convolutions that initialise to zero, so that outputs are compared."""
    import torch

    for part in module.modules():
        if not isinstance(part, torch.nn.Conv2d) or part.weight.is_meta:
            continue
        if not part.weight.any():
            torch.nn.init.normal_(part.weight, std=ZERO_CONV_STD)
            if part.bias is not None:
                torch.nn.init.normal_(part.bias, std=ZERO_CONV_STD)


def load_scheduler(source: Source) -> Any:
    """Return the checkpoint's own scheduler, or else Stable Diffusion's DDIM.

    Raises:
        SuiteError: Its configuration cannot be read, or names no scheduler.

    """
    import diffusers

    path = source.path / "scheduler" / "scheduler_config.json"
    if not path.is_file():
        return diffusers.DDIMScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear"
        )
    name = read_object(path).get("_class_name")
    cls: Any = getattr(diffusers, str(name), None)
    known = isinstance(cls, type) and issubclass(cls, diffusers.SchedulerMixin)
    if not known:
        msg = (
            f"{path} names {name!r} under `_class_name`, and diffusers "
            f"{diffusers.__version__} has no scheduler of that name; fetch the file "
            "again, correct the name, or install the diffusers that wrote it."
        )
        raise SuiteError(msg)
    return cls.from_pretrained(path.parent)


def option(options: Options, allowed: tuple[str, ...]) -> None:
    """Refuse options that the recipe does not have.

    Raises:
        SuiteError: There is such an option. The message names it and the valid ones.

    """
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        msg = f"unknown option {unknown[0]!r}; {did_you_mean(unknown[0], allowed)}"
        raise SuiteError(msg)
