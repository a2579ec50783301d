"""Adapters: low-rank weights beside a network's own, as a LoRA has them.

A deployed network has one merged weight. Plug-ins merge the file that a suite names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from harness.core.errors import SuiteError
from harness.core.plugins import first_answer

if TYPE_CHECKING:
    import torch

    from harness.core.case import Source

_ADAPTER = re.compile(r"\.lora_(?:A|B|up|down)\.|\.lora\.(?:up|down)\.|\.base_layer\.")

HOW_TO_MERGE = (
    "Merge it before exporting, with pipe.fuse_lora(), pipe.unload_lora_weights() and "
    "pipe.save_pretrained(); or give the plain checkpoint, and the file as `lora` "
    "under [source]."
)


class Adapter(Protocol):
    """The adapter that a suite names under ``[source]``; plug-ins have it."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that decide which weights it adds."""

    def refusal(self, folders: Collection[str]) -> str:
        """Return why it would change none of the networks in some folders, or "".

        Raises:
            SuiteError: It cannot be read.

        """

    def merge(self, module: torch.nn.Module, folder: str) -> None:
        """Add its weights for the network in a folder to that network.

        Raises:
            SuiteError: It is none of this checkpoint, or a part cannot be read.

        """


def adapter_for(source: Source) -> Adapter:
    """Return the adapter of a source that names one.

    Raises:
        SuiteError: No plug-in that is installed can merge it.

    """
    text = f"{source.lora} cannot be merged: no plug-in for LoRAs is installed."
    found: Adapter = first_answer("adapters", source, lacking=SuiteError(text))
    return found


def adapter_of(names: Iterable[str]) -> str:
    """Return the first name that belongs to an adapter's layer; empty without one.

    >>> adapter_of(["to_q.weight", "to_q.lora_A.weight"])
    'to_q.lora_A.weight'
    """
    return next((name for name in names if _ADAPTER.search(f".{name}")), "")
