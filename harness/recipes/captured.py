"""The recipe of any module whose calls were recorded.

The source's path is the folder of the calls. Its `module` says where the module comes
from: a class or a function without arguments, a class of diffusers or transformers with
a checkpoint, or a module that `harness.check` kept.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from harness.core.case import LIVE, Component, Source
from harness.core.digest import digest_value
from harness.core.entry import check_artifact, read_entry
from harness.core.errors import StageError, StoreError, SuiteError, first_line
from harness.core.kinds import MODULE
from harness.core.outcome import Outcome
from harness.core.permissions import is_private
from harness.core.received import DamagedError
from harness.core.store_root import entry_folder, local_root
from harness.recipes.calls import (
    FILE,
    WEIGHTS,
    Captured,
    read_captured,
    read_tensors,
)
from harness.recipes.checkpoint import load_network, option
from harness.recipes.nested import put_together, taken_apart
from harness.recipes.types import Drawn, Options, Rng, Signature, Sizes

if TYPE_CHECKING:
    import numpy as np
    import torch

PIPELINE = "pipeline"
"""The kind of every input: the recipe draws it, and no profile changes it."""


def signature(source: Source, options: Options) -> Signature:
    """Return the tensors of the recorded calls, by their paths in the arguments."""
    option(options, ())
    captured = read_captured(source.path)
    return (
        tuple(one.spec(PIPELINE) for one in captured.inputs),
        tuple(one.spec() for one in captured.outputs),
    )


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the module behind a ``forward`` of tensors, in float32 and eval mode."""
    captured = read_captured(component.source.path)
    network, types = _network(component.source, captured)
    arguments_of(component.source.path, captured, types)
    if attention and hasattr(network, "set_attn_implementation"):
        network.set_attn_implementation(attention)
    return played_back(network, captured, types)


def arguments_of(
    folder: Path, captured: Captured, types: dict[str, type]
) -> tuple[Any, Any]:
    """Return the arguments of the first recorded call: the positional ones, the named.

    Raises:
        SuiteError: They are no arguments, or a class of them is not imported.

    """
    names = [f"0/{at}" for at in range(len(captured.inputs))]
    tensors = list(read_tensors(folder, names).values())
    try:
        args, kwargs = put_together(captured.arguments, tensors, types)
        return tuple(args), dict(kwargs)
    except (DamagedError, TypeError, ValueError) as error:
        msg = f"{folder / FILE} cannot be read ({error}); record the calls again."
        raise SuiteError(msg) from None


def played_back(
    network: torch.nn.Module, captured: Captured, types: dict[str, type]
) -> torch.nn.Module:
    """Return a network behind a ``forward`` of the tensors of a recorded call."""
    import torch

    from harness.recipes.methods import called_by

    network, method = called_by(network)

    class Call(torch.nn.Module):
        """The network with tensors as inputs, by position, and tensors as outputs."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            args, kwargs = put_together(captured.arguments, tensors, types)
            made: dict[str, torch.Tensor] = {}
            own = self.network
            called = own if method == "forward" else getattr(own, method)
            taken_apart(called(*args, **kwargs), "", made)
            return tuple(made.values())

    call = Call()
    call.training = network.training
    return call


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw inputs that resemble the recorded ones.

    A tensor that is equal in every recorded call of these sizes stays as it is. Each
    other one takes its values from those that the calls have, at random. So dtype,
    range and the share of each number are theirs.
    """
    import numpy as np

    del step
    captured = read_captured(component.source.path)
    same = captured.calls_of(shapes)
    every = [_arrays(component, at) for at in same or range(len(captured.calls))]
    drawn: Drawn = {}
    for spec in component.inputs:
        shape = spec.bind(shapes)
        seen = [arrays[spec.name] for arrays in every]
        first = seen[0]
        if len(seen) > 1 and first.shape == shape and all(map(_equal(first), seen)):
            drawn[spec.name] = first
            continue
        pool = np.concatenate([one.reshape(-1) for one in seen])
        if not pool.size:
            drawn[spec.name] = np.zeros(shape, spec.dtype)
        elif pool.size <= _FEW and pool.dtype.kind == "f":
            low, high = float(pool.min()), float(pool.max())
            drawn[spec.name] = rng.uniform(low, high, size=shape).astype(spec.dtype)
        else:
            drawn[spec.name] = rng.choice(pool, size=shape)
    return drawn


_FEW = 8
"""Of so few numbers, such as timesteps, a draw is between the least and the largest."""


def recorded(component: Component, shapes: Sizes, index: int) -> Drawn | None:
    """Return a recorded call of these sizes; None if there are not so many.

    A suite's realistic samples step through the sizes, so each has its turn.
    """
    captured = read_captured(component.source.path)
    calls = captured.calls_of(shapes)
    turn = index // max(len(captured.sizes), 1)
    if turn >= len(calls):
        return None
    return _arrays(component, calls[turn])


def _arrays(component: Component, call: int) -> Drawn:
    """Return the inputs of a recorded call, in the dtypes in which they are tested."""
    import torch

    names = {f"{call}/{at}": spec for at, spec in enumerate(component.inputs)}
    tensors = read_tensors(component.source.path, list(names))
    return {
        spec.name: tensors[name].to(getattr(torch, spec.dtype)).numpy()
        for name, spec in names.items()
    }


def _equal(first: np.ndarray) -> Any:
    import numpy as np

    return lambda other: first.shape == other.shape and np.array_equal(first, other)


def weights_of(module: torch.nn.Module) -> tuple[str, int]:
    """Return a digest of the names and shapes of weights, and how many numbers."""
    shapes = {name: list(one.shape) for name, one in module.state_dict().items()}
    return digest_value(shapes), sum(one.numel() for one in module.parameters())


def _network(
    source: Source, captured: Captured
) -> tuple[torch.nn.Module, dict[str, type]]:
    """Return the module, and the data classes that its calls need."""
    import torch

    name, types = source.module, dict[str, type]()
    if name.startswith(LIVE):
        kept = live(name)
        made, types = kept["value"], kept["types"]
    else:
        made = _made(source)
    if not isinstance(made, torch.nn.Module):
        msg = (
            f"module = {name!r} made a {type(made).__name__}, and no torch.nn.Module; "
            "name a class, or a function without arguments, that makes one."
        )
        raise StageError(msg, outcome=Outcome.EXPORT)
    if weights_of(made)[0] != captured.weights:
        msg = (
            f"The calls in {source.path} are of another module than {name!r} makes: "
            f"those of {captured.module}, whose weights have other names or shapes. "
            "Record the calls of this one, or name that module."
        )
        raise StageError(msg, outcome=Outcome.EXPORT)
    for weight in (*made.parameters(), *made.buffers()):
        if weight.dtype in {torch.float16, torch.bfloat16}:
            made = made.float()
            break
    return made.requires_grad_(requires_grad=False), types


def _made(source: Source) -> Any:
    """Return what the name of a module makes; weights beside the calls are loaded."""
    from harness.recipes.methods import Method

    name, method = source.module, ""
    try:
        found = pkgutil.resolve_name(name)
        above, _, last = name.rpartition(".")
        if ":" in above and not inspect.isclass(found):
            owner = pkgutil.resolve_name(above)
            found, method = (owner, last) if inspect.isclass(owner) else (found, "")
    except Exception as error:
        msg = (
            f"module = {name!r} cannot be imported: {type(error).__name__}: "
            f"{first_line(error)}. Write it as in 'my_package.nets:make'."
        )
        raise StageError(msg, outcome=Outcome.EXPORT) from error
    if source.weights is not None and hasattr(found, "from_pretrained"):
        home = Source(path=source.weights, seed=source.seed)
        loaded = load_network(home, "", found)
        return Method(loaded, method) if method else loaded
    try:
        made = found()
    except Exception as error:
        msg = (
            f"module = {name!r} failed: {type(error).__name__}: {first_line(error)}. "
            "It is called without arguments; name a function that makes your module."
        )
        raise StageError(msg, outcome=Outcome.EXPORT) from error
    if (weights := source.path / WEIGHTS).is_file():
        from safetensors.torch import load_model

        try:
            load_model(made, str(weights))
        except Exception as error:
            msg = f"{weights} does not fit {name!r}: {first_line(error)}."
            raise StageError(msg, outcome=Outcome.EXPORT) from error
    return made.eval() if inspect.isclass(found) else made


def live(name: str) -> dict[str, Any]:
    """Return what `harness.check` kept: a pickle of this user's, on this machine.

    The store is a folder where nobody else can write, or nothing is read from it.
    """
    import torch

    digest, root = name.removeprefix(LIVE), local_root()
    again = "Call harness.check again."
    try:
        if not is_private(root):
            msg = (
                f"Others can write to the store at {root}, so it keeps no live module."
            )
            raise StageError(msg, outcome=Outcome.LOAD)
        entry = read_entry(entry_folder(root, MODULE, Path(digest).name))
        check_artifact(entry)
    except StoreError as error:
        msg = f"The module {name} is no longer in the store at {root}. {again}"
        raise StageError(msg, outcome=Outcome.LOAD) from error
    path: Path = entry.file("module.pt")
    try:
        kept = torch.load(path, mmap=True, weights_only=False)  # noqa: TID251  # ours
    except Exception as error:
        msg = f"The module of {path} cannot be made again: {first_line(error)}. {again}"
        raise StageError(msg, outcome=Outcome.LOAD) from error
    _register(kept["value"])
    return cast("dict[str, Any]", kept)


def _register(value: Any) -> None:
    """Tell transformers which outputs its networks collect.

    Its constructors tell it, and a network that is read from a file has none.
    """
    import torch

    outputs = sys.modules.get("transformers.utils.output_capturing")
    for part in value.modules() if isinstance(value, torch.nn.Module) else ():
        if outputs and hasattr(part, "_can_record_outputs"):
            registry = outputs._CAN_RECORD_REGISTRY  # noqa: SLF001  # no public way
            registry[part] = part._can_record_outputs  # noqa: SLF001
