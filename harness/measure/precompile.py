"""Importing this loads the compiled comparison, so that forked jobs find it loaded.

A host imports it once; without it every job would spend half a second on it.
"""

from __future__ import annotations

import numpy as np

from harness.measure.compare import compare

for _dtype in (np.float32, np.float64):
    compare(expected=np.zeros(2, dtype=_dtype), actual=np.ones(2, dtype=_dtype))
