"""ONNX Runtime's execution providers: their names, and what became of one."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from harness.core.case import Device

CPU: Final = "CPUExecutionProvider"

_BUILDS: Final = {
    "CUDA": "onnxruntime-gpu",
    "Tensorrt": "onnxruntime-gpu",
    "OpenVINO": "onnxruntime-openvino",
    "CoreML": "onnxruntime for macOS",
    "Dml": "onnxruntime-directml",
    "Xnnpack": "a build of your own",
    "QNN": "onnxruntime-qnn",
    "WebGpu": "onnxruntime-web, in a browser",
}

PROVIDERS: Final = {
    name.lower(): f"{name}ExecutionProvider" for name in ("CPU", *_BUILDS)
}
"""Provider by the device of a suite. A device may also be a provider's own name."""

_ALSO: Final = {"wasm": CPU}
"""Devices of a target alone: onnxruntime-web has the CPU provider in WebAssembly."""

FORCED: Final = "forceCpuNodeNames"
"""The option of WebGPU with the nodes that it leaves to the CPU, one on a line."""

_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
_NATIVE: Final = "onnxruntime_pybind_state.cc:"
_BEFORE_REASON: Final = re.compile(r"\[ERROR\] \[[\w-]+\] |FAIL : |&\) ")


def provider_of(device: Device) -> str:
    """Return the name of a device's provider."""
    return {**PROVIDERS, **_ALSO}.get(device.device, device.device)


def options_of(device: Device) -> dict[str, str | int | float | bool]:
    """Return the options that a provider gets."""
    tf32 = {"use_tf32": int(device.tf32)} if device.device == "cuda" else {}
    return {**tf32, **dict(device.provider_options)}


def kept_on_cpu(device: Device) -> tuple[str, ...]:
    """Return the names of the nodes that a suite itself leaves to the CPU."""
    return tuple(str(dict(device.provider_options).get(FORCED, "")).splitlines())


def table_of(device: Device, key: str) -> str:
    """Return the table of a suite that sets a field of a device.

    >>> table_of(Device(device="qnn"), "cpu_nodes")
    '[backend.onnxruntime]'
    """
    target = device.target
    if target is not None and key in dict(target.device):
        return f"[target.{target.table}]"
    return "[backend.onnxruntime]"


def asked_for(device: Device) -> str:
    """Return a device's provider and its options, for a message.

    >>> asked_for(Device(device="qnn", provider_options=(("backend_type", "htp"),)))
    'QNNExecutionProvider with backend_type = "htp"'
    """
    listed = device.provider_options
    given = ", ".join(f"{name} = {json.dumps(value)}" for name, value in listed)
    return provider_of(device) + (f" with {given}" if given else "")


def lacking(device: Device, version: str, has: Sequence[str]) -> str:
    """Return the message about a provider that a build lacks."""
    name = provider_of(device)
    build = _BUILDS.get(name.removesuffix("ExecutionProvider"), "a build of your own")
    return (
        f"This build of onnxruntime {version} has no {name}. It has {', '.join(has)}. "
        f"Install one that has it ({build}) into an environment of its own and name "
        "that as a target ([target.*]), or change `device` under "
        f"{table_of(device, 'device')}."
    )


def not_made(device: Device, said: str, instead: str) -> str:
    """Return the message about a provider that the build has and that did not start.

    `said` is what ONNX Runtime said and printed. `instead` is the provider that it took
    instead; empty if it refused.
    """
    words = reason_in(said)
    todo = (
        f"Correct `provider_options` under {table_of(device, 'provider_options')}"
        if device.provider_options
        else "Install the package and driver it needs"
    )
    return (
        f"onnxruntime was asked for {asked_for(device)} and "
        f"{f'runs on {instead}' if instead else 'refuses it'}. "
        f"{f'It says: {words}. ' if words else ''}{todo}, or ask for cpu; "
        "`parity doctor` says what works here."
    )


def is_about_provider(said: str) -> bool:
    """Whether ONNX Runtime's error is about a provider, and not about a file."""
    return _NATIVE in said


def reason_in(said: str) -> str:
    """Return why a provider was not made, without the places in ONNX Runtime's code.

    >>> reason_in("[E:onnxruntime:Default, a.cc:1 Create] b.cc:2 f(T&) [ERROR] "
    ...           "[OpenVINO] Device GPU is not available")
    'Device GPU is not available'
    """
    lines = _ANSI.sub("", said).splitlines()
    native = [line for line in lines if "[E:" in line]
    native += [line for line in lines if _NATIVE in line]
    return _BEFORE_REASON.split(native[0])[-1].strip(" .") if native else ""


class Placement:
    """The nodes of one or more sessions that the CPU provider runs.

    Nodes that make no floating-point values do not count: a provider leaves the
    arithmetic of shapes to the CPU by design, and it is exact there. A Gather that the
    file does not have is of that kind: where a layout changes, ONNX Runtime exchanges
    the numbers of a shape by it.

    `exact` names the nodes that make no floating-point values, and those that a suite
    itself leaves to the CPU. `known` names all nodes of the file.
    """

    def __init__(self, exact: Collection[str], known: Collection[str]) -> None:
        self._exact, self._known = exact, known
        self._nodes = 0
        self._fallen: Counter[str] = Counter()

    def add(self, nodes: int, on_cpu: Sequence[Sequence[str]]) -> None:
        """Add a session: its number of nodes, and names and operators on the CPU."""
        self._nodes += nodes
        self._fallen.update(
            op
            for name, op in on_cpu
            if name not in self._exact and (op != "Gather" or name in self._known)
        )

    def __str__(self) -> str:
        """Return the number of nodes that fell back, and their operators."""
        listed = ", ".join(f"{n} {op}" for op, n in self._fallen.most_common())
        total = f"{self._fallen.total()} of {self._nodes} nodes"
        return f"{total} ({listed})" if listed else total

    def too_many(self, device: Device, how: str) -> str:
        """Return the message about more nodes than a suite allows, or nothing."""
        share = self._fallen.total() / self._nodes if self._nodes else 0.0
        if share <= device.cpu_nodes:
            return ""
        limit = math.ceil(share * 100) / 100
        return (
            f"{asked_for(device)} does not run all of the network {how}: the CPU "
            f"provider runs {self}. If that is right, allow it with `cpu_nodes = "
            f"{limit:g}` under {table_of(device, 'cpu_nodes')}."
        )
