"""The catalogue of planted faults: one table a family."""

from tests.faults.catalogue import (
    conversion,
    export,
    metrics,
    operators,
    runtime,
    weights,
)

FAULTS = (
    *operators.FAULTS,
    *weights.FAULTS,
    *export.FAULTS,
    *conversion.FAULTS,
    *runtime.FAULTS,
    *metrics.FAULTS,
)
