"""Make an entry of any stage in a worker process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.core.digest import digest_value
from harness.core.runtime import resolve
from harness.engine.stage import Stage, lost
from harness.engine.store import Store


def work(
    root: Path,
    stage: Stage,
    decides: Sequence[object],
    digest: str,
    arguments: Sequence[object],
) -> None:
    """Make an entry in a worker process, unless the store has it.

    Raises:
        StageError: The key of this process, whose digest is another, is not `digest`:
            files that decide it were edited. Or the stage's task raised it.

    """
    key = stage.key(*decides)
    if digest_value(key) != digest:
        raise lost(stage.kind)

    def build(folder: Path) -> Mapping[str, object]:
        notes: Mapping[str, object] | None = resolve(stage.task)(folder, *arguments)
        return notes or {}

    stage.checked(Store(root=root).make(stage.kind, key, build))
