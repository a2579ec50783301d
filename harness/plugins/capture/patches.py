"""What the end of a run's summary and page say of patches of exported copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.core.case import LIVE
from harness.core.record import CaseRecord, Key
from harness.core.text import in_floors


def remarks(records: Sequence[CaseRecord], names: Mapping[Key, str]) -> Iterator[str]:
    """Yield a sentence for each patch, with what it changes by itself."""
    del names
    most: dict[tuple[str, str], float] = {}
    for record in records:
        if record.patch is not None:
            name = str(record.patch["name"])
            shown = "given to harness.check" if name.startswith(LIVE) else name
            key = record.component, shown
            most[key] = max(most.get(key, 0.0), float(record.patch["floors"]))
    for (component, name), floors in most.items():
        yield (
            f"the exported copy of {component} has the patch {name}, which moves its "
            f"outputs by at most {in_floors(floors)}"
        )
