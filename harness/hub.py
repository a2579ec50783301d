"""Find a hub id's checkpoint in the cache, or download it."""

from __future__ import annotations

import re
from pathlib import Path

from harness.toml_file import Table

_CONFIGURATIONS = ("model_index.json", "*/*.json", "tokenizer*/*")


def snapshot(table: Table, hub: str, seed: int | None) -> Path:
    """Return the folder of a hub id: from the cache, or else downloaded.

    Args:
        table: ``[source]``, for the line that an error names.
        hub: ``organisation/name``.
        seed: With one, weights are drawn and only configurations are wanted.

    Raises:
        SuiteError: The id is none, or cannot be had here.

    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", hub):
        text = f"hub must read 'organisation/name', got {hub!r}."
        raise table.error(text, "hub")
    from huggingface_hub import snapshot_download

    weights = ["*/*.safetensors"] if seed is None else []
    for local in (True, False):
        try:
            found = snapshot_download(
                hub,
                local_files_only=local,
                allow_patterns=[*_CONFIGURATIONS, *weights],
                # Copies in half precision double the download and are no reference.
                ignore_patterns=["*.fp16.*", "*.non_ema.*"],
            )
        except Exception as error:  # noqa: BLE001  # each transport has its own tree
            why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        else:
            return Path(found)
    text = (
        f"{hub!r} is not in the Hugging Face cache and cannot be downloaded ({why}). "
        "Check the id, the network and HF_HUB_OFFLINE, or give a `checkpoint` folder."
    )
    raise table.error(text, "hub")
