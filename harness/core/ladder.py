"""The relative tolerances at which every comparison is measured.

A fixed ladder lets a recorded comparison be judged again under any tolerance whose
rtol stands on it, without the arrays.
"""

from __future__ import annotations

RTOL_LADDER: tuple[float, ...] = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""Ascending and unitless; starts at 0, where the required atol is the maximum error."""
