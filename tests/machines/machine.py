"""Other machines: other instruction sets, another number of threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

ATEN = ("default", "avx2", "avx512")
"""What PyTorch's own kernels are compiled for."""

ONEDNN = ("SSE41", "AVX2", "AVX512_CORE")
"""The most that oneDNN uses, which computes convolutions."""

THREADS = (1, 2, 4)
_MKL = {"default": "COMPATIBLE", "avx2": "AVX2", "avx512": "AVX512"}
"""The same for MKL, which computes products of matrices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One combination of PyTorch's threads and instruction sets."""

    aten: str
    onednn: str
    threads: int

    @property
    def name(self) -> str:
        """How the machine is called in tables."""
        return f"aten-{self.aten}-onednn-{self.onednn.lower()}-threads-{self.threads}"

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that a process must have before it imports PyTorch."""
        return {
            "ATEN_CPU_CAPABILITY": self.aten,
            "ONEDNN_MAX_CPU_ISA": self.onednn,
            "MKL_CBWR": _MKL[self.aten],
        }


def machines(here: str) -> tuple[Machine, ...]:
    """Return every combination that can run here.

    Any first few of them differ in all three, and the first ones have the smallest
    instruction sets, which a machine of today is not. `here` is the largest of `ATEN`
    that this machine has.
    """
    can_run = ATEN[: ATEN.index(here) + 1]
    return tuple(machine for machine in _turned() if machine.aten in can_run)


def _turned() -> Iterator[Machine]:
    for turn in range(len(ONEDNN)):
        for later in range(len(THREADS)):
            for at, aten in enumerate(ATEN):
                yield Machine(
                    aten=aten,
                    onednn=ONEDNN[(at + turn) % len(ONEDNN)],
                    threads=THREADS[(at + turn + later) % len(THREADS)],
                )
