"""The patch of the copy that is exported: apply it, and measure what it changes.

An exporter may refuse a line of a network. Then somebody writes that line in another
way. The reference stays the module as it was trained, and what the patch itself changes
is judged first. So a wrong patch is not blamed on the exporter.
"""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from harness.core.case import LIVE, Component, ExportSettings
from harness.core.errors import StageError, first_line
from harness.core.outcome import Outcome
from harness.judge.tolerance import FULL_PRECISION, TIERS
from harness.measure.compare import compare
from harness.measure.trace import OUTPUT
from harness.recipes.captured import live
from harness.runtimes.pytorch.program import WRAPPER, as_array, as_tuple, repeats

_MOST = TIERS[FULL_PRECISION]["outputs"]
"""How far a patch may move an output: as far as a deployed file in full precision."""


def patched(
    settings: ExportSettings,
    component: Component,
    module: torch.nn.Module,
    copy: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
) -> torch.nn.Module:
    """Return the copy that is exported, after the patch that the settings name.

    Args:
        settings: The export settings.
        component: The component that is tested.
        module: The unmodified module. It must compute the same afterwards.
        copy: A second module, which the patch changes.
        inputs: Inputs with which both can be called.

    Raises:
        StageError: The patch raises, changes nothing, or changes a weight or the
            unmodified module.

    """
    name = settings.patch
    before, was = _made(module, inputs), list(_state(copy))
    network = getattr(copy, WRAPPER, copy)
    try:
        patch = live(name)["value"] if name.startswith(LIVE) else _resolved(name)
        made = patch(network)
    except StageError:
        raise
    except Exception as error:  # noqa: BLE001  # somebody's own code
        _refuse(
            f"{component.name}: the patch {_shown(name)} failed: "
            f"{type(error).__name__}: {first_line(error)}. It is a function that "
            "gets the network, and changes it or returns another.",
            error,
        )
    if made is not None and made is not network:
        if not isinstance(made, torch.nn.Module):
            _refuse(
                f"{component.name}: the patch {_shown(name)} returns a "
                f"{type(made).__name__}; return a torch.nn.Module, or None if it "
                "changed the network itself."
            )
        if network is copy:
            copy = made
        else:
            setattr(copy, WRAPPER, made)
    _refuse_weights(component, name, module, copy)
    if before is not None and not _same(before, _made(module, inputs)):
        _refuse(
            f"{component.name}: the patch {_shown(name)} changes the reference too, "
            "because it replaces a function or a class that both use. Replace it on "
            "the modules of the network that the patch gets, such as `module.forward "
            "= MethodType(...)` or `module.processor = ...`."
        )
    if made in {None, network} and list(_state(copy)) == was:
        _refuse(
            f"{component.name}: the patch {_shown(name)} changes nothing of the "
            "network; take it out, or let it change the modules that it is for."
        )
    return copy.eval().requires_grad_(requires_grad=False)


def judged_patch(
    component: Component,
    patch: str,
    outputs: Sequence[torch.Tensor],
    patched_outputs: Sequence[torch.Tensor],
    floors: Mapping[str, float],
) -> float:
    """Return the largest difference that a patch makes to an output, in noise floors.

    Args:
        component: The component that is tested.
        patch: Name of the patch.
        outputs: The outputs of the unmodified module.
        patched_outputs: Those of the patched copy, for the same inputs.
        floors: Noise floors by the names of a trace.

    Raises:
        StageError: It is more than `_MOST` allows.

    """
    most = 0.0
    for spec, one, two in zip(component.outputs, outputs, patched_outputs, strict=True):
        floor = floors.get(OUTPUT + spec.name)
        expected, actual = as_array(one), as_array(two)
        if expected.shape != actual.shape:
            _refuse(
                f"{component.name}: the patch {_shown(patch)} changes the shape of "
                f"output {spec.name!r} from {list(expected.shape)} to "
                f"{list(actual.shape)}; correct the patch."
            )
        found = compare(expected=expected, actual=actual, floor_rms=floor)
        multiple = found.floor_multiple or 0.0
        if not (
            multiple <= (_MOST.floors or math.inf)
            and found.max_abs <= _allowed(expected)
        ):
            _refuse(
                f"{component.name}: the patch {_shown(patch)} changes output "
                f"{spec.name!r} by up to {found.max_abs:.3g} ({multiple:.3g} noise "
                f"floors, and {_MOST.floors:g} are allowed), before any exporter has "
                "run; correct the patch."
            )
        most = max(most, multiple)
    return most


def _allowed(expected: Any) -> float:
    scale = float(abs(expected).max()) if expected.size else 0.0
    return (_MOST.atol or 0.0) + (_MOST.rtol or 0.0) * scale


def _shown(name: str) -> str:
    return "given to harness.check" if name.startswith(LIVE) else name


def _resolved(name: str) -> Any:
    return pkgutil.resolve_name(name)


def _refuse(message: str, cause: Exception | None = None) -> None:
    raise StageError(message, outcome=Outcome.PATCH) from cause


def _made(
    module: torch.nn.Module, inputs: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...] | None:
    """Return a module's outputs; None if it cannot run, which the reference says."""
    try:
        with torch.no_grad():
            return tuple(one.clone() for one in as_tuple(module(*inputs)))
    except Exception:  # noqa: BLE001  # a network may raise anything
        return None


def _same(one: Sequence[torch.Tensor], two: Sequence[torch.Tensor] | None) -> bool:
    return two is not None and all(map(repeats, one, two))


def _state(module: torch.nn.Module) -> Iterator[tuple[object, ...]]:
    """Yield what a patch can change of a network, besides the numbers of weights."""
    inner = {"_parameters", "_buffers", "_modules"}
    for name, part in module.named_modules():
        yield name, type(part), id(type(part).forward)
        for key, value in vars(part).items():
            if key in inner:
                yield from ((name, key, own, id(one)) for own, one in value.items())
            else:
                beside = getattr(value, "__dict__", None) or {}
                inside = [(own, id(one)) for own, one in beside.items()]
                yield name, key, id(value), tuple(inside)


def _refuse_weights(
    component: Component, patch: str, module: torch.nn.Module, copy: torch.nn.Module
) -> None:
    """Refuse a patch after which a weight is missing or has other numbers."""
    now = {id(one): one for one in copy.parameters()}
    there = dict(copy.named_parameters())
    for name, weight in module.named_parameters():
        other = there.get(name)
        if other is None:
            # A module may have moved, with its weights.
            moved = (one for one in now.values() if one.shape == weight.shape)
            other = next((one for one in moved if torch.equal(one, weight)), None)
        if (
            other is None
            or other.shape != weight.shape
            or not torch.equal(other, weight)
        ):
            _refuse(
                f"{component.name}: the patch {_shown(patch)} changes the weight "
                f"{name.removeprefix(WRAPPER + '.')}; a patch changes how the network "
                "computes, and never what it has learnt."
            )
