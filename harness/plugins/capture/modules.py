"""Call a module as its user does, and refuse what cannot be a reference."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from harness.core.case import LONGEST, is_symbol
from harness.core.errors import SpecError, first_line
from harness.plugins.capture.calls import (
    CallRecorder,
    Calls,
    RecordedCall,
    named_arguments,
)
from harness.plugins.capture.live import without_hooks
from harness.recipes.nested import put_together, taken_apart

if TYPE_CHECKING:
    import torch

_OUTSIDE: Final = "and files are made from a module on the CPU"


def made_of(module: torch.nn.Module | str) -> torch.nn.Module:
    """Return a module, or the one that the function or class of a name makes.

    Raises:
        SpecError: It is no module, is in training mode, or is not on the CPU.

    """
    import torch

    name = module if isinstance(module, str) else ""
    if name:
        try:
            found = pkgutil.resolve_name(name)
            made = found()
        except Exception as error:  # noqa: BLE001  # somebody's own code
            msg = (
                f"{name!r} makes no module ({type(error).__name__}: "
                f"{first_line(error)}). Name a function or a class that is called "
                "without arguments, as in 'my_project.nets:make'."
            )
            raise SpecError(msg) from None
        module = made.eval() if inspect.isclass(found) else made
    if not isinstance(module, torch.nn.Module):
        msg = (
            f"{name or 'module'} is a {type(module).__name__}, and no torch.nn.Module."
        )
        raise SpecError(msg)
    kind = type(module).__name__
    if training := [
        at or "all of it" for at, one in module.named_modules() if one.training
    ]:
        msg = (
            f"{kind} is in training mode ({training[0]}), where dropout is random and "
            "normalisation changes; call .eval() first."
        )
        raise SpecError(msg)
    for at, weight in (*module.named_parameters(), *module.named_buffers()):
        if weight.device.type != "cpu":
            there = weight.device
            msg = f"{kind}: its weight {at} is on {there}, {_OUTSIDE}; call .cpu()."
            if weight.is_meta:
                msg = (
                    f"{kind}: its weight {at} has no numbers (meta); load the weights."
                )
            raise SpecError(msg)
    return module


def recorded(
    module: torch.nn.Module, inputs: Any, name: str, dynamic_shapes: Any, given: str
) -> Calls:
    """Call a module with each of its inputs, and return the calls.

    Args:
        module: The module.
        inputs: A tuple, a dict, or a list of such calls.
        name: Name of the component; empty for that of the class.
        dynamic_shapes: The open axes, as `torch.export.export` takes them; or None.
        given: The name that gave the module; empty if none did.

    Raises:
        SpecError: It cannot be called so, or what it does cannot be compared.

    """
    every = inputs if isinstance(inputs, list) else [inputs]
    if not every:
        msg = "inputs is an empty list; give at least one call."
        raise SpecError(msg)
    name = (
        name or re.sub(r"\W", "", type(module).__name__).lower()[:LONGEST] or "module"
    )
    calls = [
        _called(module, *_arguments(one), is_first=not at)
        for at, one in enumerate(every)
    ]
    one = CallRecorder(
        name=name, module=module, most=len(calls), seen=len(calls), given=given
    )
    if dynamic_shapes is not None:
        one.opened = dict(
            _opened(module, *_arguments(every[0]), calls[0], dynamic_shapes)
        )
        calls += [
            _resized(module, calls[0], one.opened, symbol)
            for symbol in dict.fromkeys(one.opened.values())
        ]
    one.keep(calls)
    return Calls({name: one})


def _arguments(one: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import torch

    if isinstance(one, torch.Tensor):
        return (one,), {}
    if isinstance(one, tuple):
        return one, {}
    if isinstance(one, Mapping):
        return (), dict(one)
    msg = (
        f"inputs is a {type(one).__name__}; give a tuple or a dict as forward takes "
        "them, or a list of such calls."
    )
    raise SpecError(msg)


def _called(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    is_first: bool,
) -> RecordedCall:
    """Return one call with what came out; the first one is examined."""
    import torch

    kind = type(module).__name__
    given: dict[str, torch.Tensor] = {}
    arguments = named_arguments(module, args, kwargs, given)
    for name, one in given.items():
        if one.device.type != "cpu":
            msg = (
                f"{kind}: its input {name} is on {one.device}, {_OUTSIDE}; call .cpu()."
            )
            raise SpecError(msg)
    inputs = {name: one.detach().clone() for name, one in given.items()}
    state = torch.get_rng_state()
    outputs = _outputs(module, args, kwargs, inputs)
    draws = not torch.equal(state, torch.get_rng_state())
    if changed := next(_differing(inputs, given), ""):
        msg = (
            f"{kind} changes its input {changed} in place, so the next call sees "
            "other numbers; clone it in forward."
        )
        raise SpecError(msg)
    if is_first:
        again = _outputs(module, args, kwargs, inputs)
        _refuse_random(kind, outputs, again, draws=draws)
        _refuse_hooks(module, args, kwargs, inputs, outputs)
    return RecordedCall(arguments=arguments, inputs=inputs, outputs=outputs)


def _outputs(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    inputs: Mapping[str, torch.Tensor],
) -> dict[str, torch.Tensor]:
    import torch

    outputs: dict[str, torch.Tensor] = {}
    try:
        with torch.no_grad():
            made = module(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  # a network may raise anything
        shapes = ", ".join(f"{name} {list(one.shape)}" for name, one in inputs.items())
        msg = (
            f"{type(module).__name__} cannot be called with {shapes}: "
            f"{type(error).__name__}: {first_line(error)}."
        )
        raise SpecError(msg) from None
    taken_apart(made, "", outputs)
    if not outputs:
        msg = (
            f"{type(module).__name__} returns no tensor, so there is nothing to "
            "compare; let forward return its result."
        )
        raise SpecError(msg)
    return {name: one.detach().clone() for name, one in outputs.items()}


def _differing(
    one: Mapping[str, torch.Tensor], two: Mapping[str, torch.Tensor]
) -> Iterator[str]:
    from harness.runtimes.pytorch.program import repeats

    for name, value in one.items():
        if name not in two or not repeats(value, two[name]):
            yield name


def _refuse_random(
    kind: str,
    one: Mapping[str, torch.Tensor],
    two: Mapping[str, torch.Tensor],
    *,
    draws: bool,
) -> None:
    if (name := next(_differing(one, two), None)) is None:
        return
    if draws:
        msg = (
            f"{kind} draws random numbers in forward, so its output {name} differs "
            "between two calls on the same inputs; give the noise as an input, or "
            "call torch.manual_seed at the beginning of forward."
        )
    else:
        msg = (
            f"{kind} gives another output {name} in a second call on the same inputs, "
            "so it changes its own state; make that an input and an output."
        )
    raise SpecError(msg)


def _refuse_hooks(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    inputs: Mapping[str, torch.Tensor],
    outputs: Mapping[str, torch.Tensor],
) -> None:
    """Refuse hooks that change the outputs: no exporter and no worker has them."""
    hooked = [
        name or "the module itself"
        for name, part in module.named_modules()
        if part._forward_hooks or part._forward_pre_hooks  # noqa: SLF001  # no public way
    ]
    if not hooked:
        return
    with without_hooks(module):
        without = _outputs(module, args, kwargs, inputs)
    if next(_differing(outputs, without), None) is not None:
        msg = (
            f"{type(module).__name__} has a hook of forward on {hooked[0]} that "
            "changes its outputs, and an exported file has no hooks; put what it "
            "does into forward."
        )
        raise SpecError(msg)


def _opened(  # noqa: C901  # what torch.export takes has many forms
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    call: RecordedCall,
    dynamic_shapes: Any,
) -> Iterator[tuple[tuple[str, int], str]]:
    """Yield tensor, axis and symbol of each axis that a user opens."""
    import torch

    from harness.recipes.methods import signature_of

    bound = signature_of(module).bind(*args, **kwargs).arguments
    if not isinstance(dynamic_shapes, Mapping):
        dynamic_shapes = dict(zip(bound, dynamic_shapes, strict=False))
    unknown = [name for name in dynamic_shapes if name not in bound]
    if unknown:
        msg = (
            f"dynamic_shapes names {unknown[0]!r}, and the inputs are "
            f"{', '.join(bound)}; correct the name."
        )
        raise SpecError(msg)
    by_id: dict[str, Any] = {}

    def walk(value: Any, wanted: Any, name: str) -> None:
        if wanted is None:
            return
        if isinstance(value, torch.Tensor):
            by_id[name] = wanted
        elif isinstance(value, Mapping) and isinstance(wanted, Mapping):
            for key, own in wanted.items():
                walk(value[key], own, f"{name}.{key}")
        elif isinstance(value, Sequence) and isinstance(wanted, Sequence):
            for at, (item, own) in enumerate(zip(value, wanted, strict=False)):
                walk(item, own, f"{name}.{at}")

    for name, wanted in dynamic_shapes.items():
        walk(bound[name], wanted, name)
    hinted: dict[tuple[int, int], str] = {}
    for name, wanted in by_id.items():
        axes = wanted.items() if isinstance(wanted, Mapping) else enumerate(wanted)
        for axis, dim in axes:
            word = getattr(dim, "__name__", "") or str(getattr(dim, "type", dim))
            if dim is None or isinstance(dim, int) or word.endswith("STATIC"):
                continue
            size = call.inputs[name].shape[axis]
            symbol = getattr(dim, "__name__", "")
            if not is_symbol(symbol):  # a hint without a name: AUTO, DYNAMIC
                usual = "batch" if axis == 0 else re.sub(r"\W", "_", f"{name}_{axis}")
                symbol = hinted.setdefault((axis, size), usual)
            yield (name, axis), symbol


def _resized(
    module: torch.nn.Module,
    call: RecordedCall,
    opened: Mapping[tuple[str, int], str],
    symbol: str,
) -> RecordedCall:
    """Return a call in which one open axis is longer; its values are the given ones."""
    import torch

    why = ""
    for times, more in ((2, 0), (1, 1), (3, 0)):
        inputs = {}
        for name, tensor in call.inputs.items():
            shape = [
                times * size + more if opened.get((name, axis)) == symbol else size
                for axis, size in enumerate(tensor.shape)
            ]
            inputs[name] = tensor
            if shape != list(tensor.shape):
                draws = torch.Generator().manual_seed(0)
                at = torch.randint(tensor.numel(), shape, generator=draws)
                inputs[name] = tensor.reshape(-1)[at]
        types: dict[str, type] = {}
        args, kwargs = put_together(call.arguments, list(inputs.values()), types)
        try:
            return _called(module, args, kwargs, is_first=False)
        except SpecError as error:
            why = why or str(error)
    msg = (
        f"dynamic_shapes opens {symbol!r}, and forward does not take another size of "
        f"it: {why} Leave that axis out."
    )
    raise SpecError(msg)
