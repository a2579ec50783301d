"""What of a record is kept: no secret, no personal path, and no endless log.

Records go into reports, pages and baselines, and are sent. The log of a process or the
message of a library may have anything in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, cast

from harness.core.case import Device
from harness.core.private import public, public_values
from harness.core.record import CaseRecord
from harness.core.runtime import check_words
from harness.core.text import LOG, MESSAGE, shortened
from harness.engine.worker import JobResult
from harness.engine.worker_pool import add_seconds

LOG_CHARACTERS = 4096
"""Number of characters of a runtime's native output that a record keeps."""

_FACTS = (
    *("asked", "ran", "inputs", "coverage", "contract", "graphs", "pipeline"),
    *("foreign", "artifacts"),
)
"""Fields of a record that have texts inside."""


def kept(record: CaseRecord) -> CaseRecord:
    """Return a record as it is kept."""
    failure = record.failure
    if failure is not None:
        failure = replace(
            failure,
            message=shortened(public(failure.message), MESSAGE),
            log=kept_log(failure.log),
        )
    told = cache(public)  # many values are of one line of code
    return replace(
        record,
        failure=failure,
        log=kept_log(record.log),
        rows=tuple(
            replace(row, source=told(row.source)) if row.source else row
            for row in record.rows
        ),
        **{name: public_values(getattr(record, name)) for name in _FACTS},
    )


def kept_log(log: str) -> str:
    """Return what a process printed, as it is kept: its beginning and its end."""
    # What is left out is not searched, but for what the cut could divide.
    return shortened(public(shortened(log, 2 * LOG)), LOG)


def seen(
    result: JobResult,
    case: str,
    ran_on: Iterable[tuple[str, Device]],
) -> dict[str, Any]:
    """Return a worker's measurements, with the memory and the output of the run.

    Raises:
        StageError: A runtime reports that it ran on another device.

    """
    add_seconds("candidate", result.wall_ns / 1e9)
    for backend, device in ran_on:
        check_words(case, backend, device, f"{result.import_log}\n{result.log}")
    return {
        **cast("Mapping[str, Any]", result.value),
        "peak_bytes": result.peak_bytes,
        "log": result.log[-LOG_CHARACTERS:],
    }
