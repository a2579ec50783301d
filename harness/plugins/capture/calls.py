"""Record the calls of modules while a program of one's own runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.case import check_name
from harness.core.errors import SpecError
from harness.recipes.nested import Tree, taken_apart

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One call of a module, with copies of its tensors on the CPU.

    Attributes:
        arguments: The positional arguments and the named ones, as plain data.
        inputs: The tensors in the arguments, by name.
        outputs: The tensors in the result, by name.

    """

    arguments: Tree
    inputs: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]

    @property
    def form(self) -> str:
        """What is equal in all calls that one exported graph can serve."""
        kinds = [
            [name, str(one.dtype), one.dim()]
            for tensors in (self.inputs, self.outputs)
            for name, one in tensors.items()
        ]
        return json.dumps([self.arguments, kinds], sort_keys=True)


_THIRD = 3
"""Every third call stays where there are too many. With every second one, only one of
two kinds of calls that take turns would stay."""


@dataclass(eq=False)
class CallRecorder:
    """Records calls of one module, evenly in time, and a few more than asked.

    Attributes:
        name: The name of the component that the module becomes.
        module: The module.
        most: How many calls are kept in the end.
        seen: How many calls there were.
        refused: Why a call could not be recorded; empty if all could.
        given: The name of the module, if a name gave it.
        opened: Names of axes that are open by a user's wish, by tensor and axis.

    """

    name: str
    module: torch.nn.Module
    most: int
    seen: int = 0
    refused: str = ""
    given: str = ""
    opened: dict[tuple[str, int], str] = field(default_factory=dict)
    _calls: list[RecordedCall] = field(default_factory=list)
    _every: int = 1
    _begun: list[tuple[Tree, dict[str, torch.Tensor]] | None] = field(
        default_factory=list
    )

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the calls that are made meanwhile."""
        from harness.recipes.methods import called_by

        network, method = called_by(self.module)
        with ExitStack() as stack:
            stack.callback(self._begun.clear)
            if method == "forward":
                for hook in (
                    network.register_forward_pre_hook(self._begins, with_kwargs=True),
                    network.register_forward_hook(self._ends, with_kwargs=True),
                ):
                    stack.callback(hook.remove)
            else:
                stack.callback(delattr, network, method)
                setattr(network, method, self._watched(getattr(network, method)))
            yield

    def _watched(self, called: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that is recorded; no hook sees one."""

        @wraps(called)
        def watched(*args: Any, **kwargs: Any) -> Any:  # anything
            self._begins(called, args, kwargs)
            made = called(*args, **kwargs)
            self._ends(called, args, kwargs, made)
            return made

        return watched

    def _begins(self, module: object, args: Any, kwargs: Any) -> None:
        del module
        # Arguments are copied before the call, which may change them.
        wanted = self.seen % self._every == 0 and not self.refused
        self._begun.append(
            self._taken(lambda own: named_arguments(self.module, args, kwargs, own))
            if wanted
            else None
        )
        self.seen += 1

    def _ends(self, module: object, args: Any, kwargs: Any, made: Any) -> None:
        del module, args, kwargs
        begun = self._begun.pop() if self._begun else None
        result = self._taken(partial(taken_apart, made, "")) if begun else None
        if begun is None or result is None:
            return
        self._calls.append(
            RecordedCall(arguments=begun[0], inputs=begun[1], outputs=result[1])
        )
        if len(self._calls) >= _THIRD * self.most:
            self._calls = self._calls[::_THIRD]
            self._every *= _THIRD

    def _taken(
        self, take: Callable[[dict[str, torch.Tensor]], Tree]
    ) -> tuple[Tree, dict[str, torch.Tensor]] | None:
        """Return plain data and copies of tensors; None if it cannot be recorded."""
        tensors: dict[str, torch.Tensor] = {}
        try:
            tree = take(tensors)
        except SpecError as error:  # the user's own program goes on
            self.refused = str(error)
            return None
        return tree, {name: _copy(one) for name, one in tensors.items()}

    def keep(self, calls: Sequence[RecordedCall]) -> None:
        """Keep calls that were made elsewhere."""
        self._calls = list(calls)
        self.most = max(self.most, len(calls))

    @property
    def calls(self) -> list[RecordedCall]:
        """The calls that are kept: evenly in time, with the first and the last."""
        if len(self._calls) <= self.most:
            return self._calls
        last = len(self._calls) - 1
        return [
            self._calls[round(at * last / max(self.most - 1, 1))]
            for at in range(self.most)
        ]


class Calls(Mapping[str, CallRecorder]):
    """The recorded calls of several modules, by name."""

    def __init__(self, recorders: Mapping[str, CallRecorder]) -> None:
        self._recorders = dict(recorders)

    def __getitem__(self, name: str) -> CallRecorder:
        """Return what was recorded of a module."""
        return self._recorders[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the modules."""
        return iter(self._recorders)

    def __len__(self) -> int:
        """Return the number of modules."""
        return len(self._recorders)

    def __repr__(self) -> str:
        """Return the names of the modules, with the number of calls."""
        counts = (
            f"{name}: {len(one.calls)} of {one.seen} calls"
            for name, one in self.items()
        )
        return f"<{', '.join(counts)}>"

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the calls of every module that are made meanwhile."""
        with ExitStack() as stack:
            for one in self.values():
                stack.enter_context(one.recording())
            yield

    def require(self) -> None:
        """Refuse a module that was never called, or whose call cannot be recorded.

        Raises:
            SpecError: There is such a module; the message names it.

        """
        for name, one in self.items():
            if one.refused:
                msg = f"{name}: {one.refused}"
                raise SpecError(msg)
            if not one.seen:
                msg = (
                    f"{name}: it was never called inside `capture`; call it as "
                    "`module(...)` there, because `module.forward(...)` is not seen, "
                    "and make sure that your program uses this very object."
                )
                raise SpecError(msg)

    def save(self, folder: str | Path, **modules: str) -> None:
        """Write the calls to a folder, of which `parity init` makes a suite.

        Args:
            folder: A new or empty folder.
            **modules: For a name, where its module comes from, as in
                ``"my_project.nets:make"``. `parity init` can be told too.

        Raises:
            ParityError: A module was not called, or the folder is not empty.

        """
        from harness.plugins.capture.saved import save_calls

        self.require()
        save_calls(self, folder, modules)


@contextmanager
def capture(*, samples: int = 8, **modules: torch.nn.Module) -> Iterator[Calls]:
    """Record what modules are called with, while a program of one's own runs.

    Args:
        samples: How many calls of each module are kept, evenly in time.
        **modules: The modules, by the names that they get as components.

    Yields:
        The calls, which are complete when the block ends. They have copies of all
        tensors, on the CPU and in the dtype of the call.

    Raises:
        SpecError: A name cannot be that of a component, an argument is no module, or a
            module was never called.

    """
    from harness.recipes.methods import as_module

    if not modules or samples < 1:
        msg = (
            "capture takes modules by name, as in capture(unet=pipe.unet), and a "
            "number of samples from 1."
        )
        raise SpecError(msg)
    recorders = {}
    for name, given in modules.items():
        check_name("component", name)
        if (module := as_module(given)) is None:
            kind = type(given).__name__
            msg = f"{name} is a {kind}, and no torch.nn.Module; give one."
            raise SpecError(msg)
        recorders[name] = CallRecorder(name=name, module=module, most=samples)
    calls = Calls(recorders)
    with calls.recording():
        yield calls
    calls.require()


def named_arguments(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    tensors: dict[str, torch.Tensor],
) -> Tree:
    """Return the arguments of a call as plain data, and put tensors into `tensors`.

    Each tensor gets the name of its parameter of ``forward``.

    Raises:
        SpecError: ``forward`` does not take them, or one is no plain data.

    """
    from harness.recipes.methods import signature_of

    signature = signature_of(module)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        msg = (
            f"forward of {type(module).__name__} does not take these inputs: {error}; "
            f"it takes {signature}."
        )
        raise SpecError(msg) from None
    names: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}.{at}" for at in range(len(args) - len(names))]
        elif len(names) < len(args):
            names.append(parameter.name)
    listed = [
        taken_apart(value, name, tensors)
        for name, value in zip(names, args, strict=True)
    ]
    named = {name: taken_apart(value, name, tensors) for name, value in kwargs.items()}
    return {"tuple": [{"tuple": listed}, {"dict": named}]}


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)
