"""What a checkpoint has for a suite: components that recipes know, and weights."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.core.case import Component, Source
from harness.core.errors import SuiteError
from harness.recipes import describe, discover, weight_folders
from harness.recipes.checkpoint import WEIGHTS, read_config, weight_files
from harness.recipes.named import check_named


def sort_components(source: Source) -> tuple[dict[str, Component], dict[str, str]]:
    """Return what a checkpoint has by name: the components, and why others are none.

    Raises:
        SuiteError: It has no component that a recipe knows, a configuration cannot be
            read, or a part that it names is not there.

    """
    check_named(source)
    known, unknown = dict[str, Component](), dict[str, str]()
    for name in discover(source):
        # A damaged file is to be mended; without a network that no recipe knows, the
        # rest is a suite.
        for folder in weight_folders(name, source):
            read_config(source, folder)
        try:
            known[name] = describe(name, name, source)
        except SuiteError as error:
            unknown[name] = str(error)
    if not known:
        raise SuiteError(next(iter(unknown.values())))
    return known, unknown


def without_weights(checkpoint: Path, names: Iterable[str]) -> bool:
    """Whether a checkpoint is of configurations alone.

    Raises:
        SuiteError: Some of the components' folders have weights and some have none, as
            a download leaves that stopped half way, or what is there is not loaded.

    """
    source = Source(path=checkpoint)
    folders = dict.fromkeys(f for n in names for f in weight_folders(n, source))
    bare = [folder for folder in folders if not _has_weights(checkpoint / folder)]
    if 0 < len(bare) < len(folders):
        msg = (
            f"{checkpoint} has weights in some of its folders, and none in "
            f"{', '.join(bare)}: fetch them, or give a copy of the checkpoint without "
            "those folders. Random weights are drawn only where there are none at all."
        )
        raise SuiteError(msg)
    return bool(bare)


def _has_weights(home: Path) -> bool:
    # Pickles too: loading refuses them in words, which a seed would hide.
    return bool(weight_files(home)) or any(p.suffix in WEIGHTS for p in home.iterdir())
